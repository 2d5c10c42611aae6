//! Adapters, by TabbyAPI's names.

use std::path::PathBuf;

use serde_json::json;
use toml::Value;

use super::declare::section;
use super::value::{Notation, SettingValue};
use crate::adapter_entry::{AdapterEntry, AdapterLoad, entries};
use crate::name;

/// Most adapters in the list.
const LISTED_MAX: usize = 16;

section! {
    /// Which adapters there are, and which of them the model at the start has.
    LoraSettings at lora {
        /// Folder of adapters, as PEFT writes them
        lora_dir: PathBuf = "loras".into(), common;
        /// Adapters of the model at the start, for requests that ask for no others: a list of names, or of { name = "…", scaling = 1.0 }
        loras: AdapterList = AdapterList::default();
        /// Most GiB that the adapters of a model may take together
        memory_budget: f32 = 8.0, within(0.0..=1e6);
    }
}

impl LoraSettings {
    /// Most bytes that the adapters of a model may take together.
    pub fn bytes_max(&self) -> u64 {
        (f64::from(self.memory_budget) * (1u64 << 30) as f64) as u64
    }
}

/// Adapters that the model at the start has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AdapterList(pub Vec<AdapterLoad>);

impl SettingValue for AdapterList {
    const NOTATION: Notation = Notation::Toml;

    fn read(value: &Value) -> Result<Self, String> {
        let json = serde_json::to_value(value).map_err(|error| error.to_string())?;
        let read = entries("loras", &json, LISTED_MAX).map_err(|error| error.message)?;
        let load = |entry: &AdapterEntry| {
            let name = entry.name().map_err(|error| error.message)?;
            name::check(name).map_err(|error| error.to_string())?;
            Ok(AdapterLoad::new(name, entry.scale.unwrap_or(1.0)))
        };
        read.iter().flatten().map(load).collect::<Result<_, String>>().map(AdapterList)
    }

    fn write(&self) -> Value {
        let list =
            self.0.iter().map(|load| json!({ "name": load.name, "scaling": load.scaling_shown() }));
        Value::try_from(list.collect::<Vec<_>>()).unwrap_or_else(|_| Value::Array(Vec::new()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::find;

    #[test]
    fn adapters_are_named_with_and_without_a_scale() {
        let setting = find("lora.loras").unwrap();
        let read = |text: &str| AdapterList::read(&setting.parse(text).unwrap());
        let expected = vec![AdapterLoad::new("a", 1.0), AdapterLoad::new("org/b", 0.5)];
        let both = "[\"a\", { name = \"org/b\", scaling = 0.5 }]";
        assert_eq!(read(both).unwrap().0, expected);
        assert_eq!(AdapterList::read(&AdapterList(expected.clone()).write()).unwrap().0, expected);
        assert_eq!(read("a").unwrap().0, [AdapterLoad::new("a", 1.0)]);
        assert_eq!(read("[]").unwrap().0, []);
        for wrong in ["[1]", "[\"../x\"]", "[{ name = \"a\", scaling = 99 }]", "[{ scaling = 1 }]"]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
