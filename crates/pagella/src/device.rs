//! Where a model runs and how it computes: the choices a user has, as names.

use std::fmt;
use std::str::FromStr;

use pagella_cpu::MathMode;
use pagella_cuda::probe::Probe;

use crate::Error;

/// Where to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// The CUDA device with the most memory, or the CPU where none can be used.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// A CUDA device, by index.
    Cuda(u32),
}

/// Where a model really runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The CPU.
    Cpu,
    /// A CUDA device, by index.
    Cuda(usize),
}

/// How the CPU multiplies quantised weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Math {
    /// Exact weights, f32 arithmetic; what results are compared with.
    Exact,
    /// 16-bit integer activations: less work, at a small error.
    #[default]
    Wide,
}

/// A name that stands for nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnknownName(String);

impl UnknownName {
    pub(crate) fn new(sentence: impl Into<String>) -> Self {
        UnknownName(sentence.into())
    }
}

impl Device {
    /// What a model can run on here: every CUDA device that can be used, or the CPU where there is none.
    pub fn usable() -> Vec<Device> {
        let probe = Probe::look();
        let usable = (0..probe.gpus().len()).filter(|index| probe.obstacle(*index).is_none());
        let all: Vec<Device> =
            usable.filter_map(|index| u32::try_from(index).ok()).map(Device::Cuda).collect();
        if all.is_empty() { vec![Device::Cpu] } else { all }
    }

    /// Looks at the machine and decides. A device that was named and cannot be used is an error that
    /// says why.
    pub fn place(self) -> Result<Place, Error> {
        match self {
            Device::Cpu => Ok(Place::Cpu),
            Device::Auto => Ok(Probe::look().best().map_or(Place::Cpu, Place::Cuda)),
            Device::Cuda(index) => match Probe::look().obstacle(index as usize) {
                None => Ok(Place::Cuda(index as usize)),
                Some(reason) => Err(Error::NoCuda { device: self.to_string(), reason }),
            },
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Auto => f.write_str("auto"),
            Device::Cpu => f.write_str("cpu"),
            Device::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

impl FromStr for Device {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        match text {
            "auto" => Ok(Device::Auto),
            "cpu" => Ok(Device::Cpu),
            "cuda" => Ok(Device::Cuda(0)),
            _ => {
                let index = text.strip_prefix("cuda:").and_then(|index| index.parse().ok());
                let unknown =
                    || UnknownName("choose auto, cpu, cuda or cuda:N with a device number".into());
                index.map(Device::Cuda).ok_or_else(unknown)
            }
        }
    }
}

impl Math {
    /// Every way that is available.
    pub const ALL: [Math; 2] = [Math::Exact, Math::Wide];

    /// Name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Math::Exact => "exact",
            Math::Wide => "wide",
        }
    }

    pub(crate) fn mode(self) -> MathMode {
        match self {
            Math::Exact => MathMode::Exact,
            Math::Wide => MathMode::Wide,
        }
    }
}

impl FromStr for Math {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        if text == "fast" {
            return Err(UnknownName("fast is not available yet, choose exact or wide".into()));
        }
        let found = Math::ALL.into_iter().find(|math| math.name() == text);
        found.ok_or_else(|| UnknownName("choose exact or wide".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        for (text, device) in
            [("auto", Device::Auto), ("cpu", Device::Cpu), ("cuda:3", Device::Cuda(3))]
        {
            assert_eq!(text.parse(), Ok(device));
            assert_eq!(device.to_string(), text);
        }
        assert_eq!("cuda".parse(), Ok(Device::Cuda(0)));
        for text in ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "CPU"] {
            assert!(text.parse::<Device>().is_err(), "{text}");
        }
        for math in Math::ALL {
            assert_eq!(math.name().parse(), Ok(math));
        }
        assert!("fast".parse::<Math>().unwrap_err().to_string().contains("exact or wide"));
    }

    #[test]
    fn a_cuda_device_that_cannot_be_used_is_refused_with_the_reason() {
        assert_eq!(Device::Cpu.place().unwrap(), Place::Cpu);
        let error = Device::Cuda(99).place().unwrap_err().to_string();
        assert!(error.contains("cuda:99") && error.contains("--device cpu"), "{error}");
    }
}
