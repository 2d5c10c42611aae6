//! Numbers of which every device has one.

use toml::Value;

use super::value::{Notation, SettingValue, number_within};

/// Devices that a list may speak of.
const DEVICES_MAX: usize = 64;

/// A number for each device, in their order; a number alone is that of the first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceNumbers(pub Vec<f64>);

impl SettingValue for DeviceNumbers {
    const NOTATION: Notation = Notation::Toml;

    fn read(value: &Value) -> Result<Self, String> {
        if value.as_str() == Some("") {
            return Ok(Self::default());
        }
        let items = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        if items.len() > DEVICES_MAX {
            return Err(format!("at most {DEVICES_MAX} numbers, one per device"));
        }
        let number = |item: &Value| number_within(item, &(0.0..=1e6));
        items.iter().map(number).collect::<Result<_, _>>().map(DeviceNumbers)
    }

    fn write(&self) -> Value {
        Value::Array(self.0.iter().map(|number| Value::Float(*number)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::find;

    #[test]
    fn devices_have_a_number_each() {
        let setting = find("model.gpu_split").unwrap();
        let read = |text: &str| setting.parse(text).and_then(|value| DeviceNumbers::read(&value));
        assert_eq!(read("[20, 23.5]").unwrap().0, [20.0, 23.5]);
        assert_eq!(read("8").unwrap().0, [8.0]);
        assert_eq!(read("[]").unwrap(), DeviceNumbers::default());
        let both = DeviceNumbers(vec![20.0, 0.5]);
        assert_eq!(DeviceNumbers::read(&both.write()), Ok(both));
        for wrong in ["[-1]", "['a']", "[2000000]", "auto"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
