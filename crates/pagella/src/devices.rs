//! `Devices`: where a model runs, as a list in the order in which devices take layers.

use std::fmt;
use std::str::FromStr;

use crate::split::DEVICES_MAX;
use crate::units::{bytes, parse_bytes};
use crate::{Device, Error, Place, UnknownName};

/// One device or several, in the order in which they take layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Devices(Vec<DeviceShare>);

/// A device with the part of its memory that may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceShare {
    /// The device. Of a CPU there may be several, each with a part of its memory.
    pub device: Device,
    /// Most bytes; `None`: what is free. Only on CPUs.
    pub limit_bytes: Option<u64>,
}

impl Devices {
    /// All of them, at least one.
    pub fn all(&self) -> &[DeviceShare] {
        &self.0
    }

    /// Whether layers must be placed: there are several devices, or one that ends somewhere.
    pub fn are_limited(&self) -> bool {
        self.0.len() > 1 || self.0.iter().any(|share| share.limit_bytes.is_some())
    }

    /// Looks at the machine and decides where the first of them is; several are all in one place.
    pub fn place(&self) -> Result<Place, Error> {
        match &self.0[..] {
            [only] => only.device.place(),
            all if all.iter().all(|share| share.device == Device::Cpu) => Ok(Place::Cpu),
            // The one place that refuses several devices with a GPU among them.
            _ => Err(Error::SeveralGpus { devices: self.to_string() }),
        }
    }

    /// With the CPU at the end, if it is not there yet with whatever memory it has.
    pub(crate) fn with_cpu(&self) -> Self {
        let mut all = self.0.clone();
        let whole = DeviceShare::from(Device::Cpu);
        if all.last() != Some(&whole) || all.len() == 1 {
            all.push(whole);
        }
        Devices(all)
    }

    /// The name of a device of the list, for people; one that is chosen by itself is a CPU.
    pub fn name(&self, index: usize) -> String {
        match self.0.get(index).map(|share| share.device) {
            Some(Device::Cuda(number)) => format!("cuda:{number}"),
            _ if self.0.len() > 1 => format!("cpu:{index}"),
            _ => "cpu".to_owned(),
        }
    }
}

impl Default for Devices {
    fn default() -> Self {
        Device::default().into()
    }
}

impl From<Device> for Devices {
    fn from(device: Device) -> Self {
        Devices(vec![device.into()])
    }
}

impl From<Device> for DeviceShare {
    fn from(device: Device) -> Self {
        DeviceShare { device, limit_bytes: None }
    }
}

impl fmt::Display for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, DeviceShare { device, limit_bytes }) in self.0.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{device}")?;
            if let Some(limit) = limit_bytes {
                write!(f, ":{}", bytes(*limit).replace(' ', ""))?;
            }
        }
        Ok(())
    }
}

impl FromStr for Devices {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        let share = |text: &str| match text.trim().strip_prefix("cpu:") {
            Some(limit) => {
                let problem =
                    || UnknownName::new("give memory for the CPU as cpu:2GiB or cpu:512MiB");
                let limit_bytes = Some(parse_bytes(limit).ok_or_else(problem)?);
                Ok(DeviceShare { device: Device::Cpu, limit_bytes })
            }
            None => text.trim().parse::<Device>().map(DeviceShare::from),
        };
        let all: Vec<DeviceShare> = text.split(',').map(share).collect::<Result<_, _>>()?;
        let counted = |wanted: DeviceShare| all.iter().filter(|share| **share == wanted).count();
        let is_twice = |share: &DeviceShare| share.limit_bytes.is_none() && counted(*share) > 1;
        let problem = match &all[..] {
            list if list.len() > DEVICES_MAX => format!("name at most {DEVICES_MAX} devices"),
            list if list.len() > 1 && list.iter().any(|share| share.device == Device::Auto) => {
                "auto is one device: name each device of a list".to_owned()
            }
            list => match list.iter().find(|share| is_twice(share)) {
                Some(DeviceShare { device: Device::Cpu, .. }) => {
                    "say how much memory each may take, as in cpu:2GiB,cpu:1GiB".to_owned()
                }
                Some(share) => format!("{} is named twice", share.device),
                None => return Ok(Devices(all)),
            },
        };
        Err(UnknownName::new(problem))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written() {
        for text in
            ["auto", "cpu", "cuda:3", "cpu:2.0GiB,cpu:512MiB", "cuda:0,cuda:1", "cuda:0,cpu"]
        {
            assert_eq!(text.parse::<Devices>().unwrap().to_string(), text);
        }
        let two: Devices = "cpu:2GiB, cpu".parse().unwrap();
        assert_eq!(two.all()[0].limit_bytes, Some(2 << 30));
        assert_eq!((two.name(0), two.name(1)), ("cpu:0".into(), "cpu:1".into()));
        assert_eq!(Devices::from(Device::Cpu).name(0), "cpu");
        for (text, says) in [
            ("", "choose auto"),
            ("cpu:", "cpu:2GiB"),
            ("cpu:2", "cpu:2GiB"),
            ("cpu:2GiB,", "choose auto"),
            ("cpu,cpu", "how much memory"),
            ("cuda:1,cuda:1", "twice"),
            ("auto,cpu", "auto is one device"),
            ("cuda:0:2GiB", "choose auto"),
        ] {
            let error = text.parse::<Devices>().unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn several_devices_with_a_gpu_are_refused_and_several_cpus_are_not() {
        for text in ["cuda:0,cuda:1", "cuda:0,cpu", "cpu:1GiB,cuda:0"] {
            let error = text.parse::<Devices>().unwrap().place().unwrap_err().to_string();
            assert!(error.contains("cuda:0") && error.contains("one GPU"), "{error}");
        }
        let cpus: Devices = "cpu:1GiB,cpu".parse().unwrap();
        assert_eq!((cpus.place().unwrap(), cpus.are_limited()), (Place::Cpu, true));
        assert_eq!(cpus.with_cpu(), cpus, "it ends with the CPU already");
        let one: Devices = "cpu:1GiB".parse().unwrap();
        assert_eq!(one.with_cpu().to_string(), "cpu:1.0GiB,cpu");
        assert!(one.are_limited() && !Devices::default().are_limited());
    }
}
