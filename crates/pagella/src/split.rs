//! How a model is cut over its devices: what people may choose.

use std::str::FromStr;

use crate::{Devices, UnknownName};

/// Bytes of what ExLlamaV2 and its users call a GB.
const GB: f64 = (1u64 << 30) as f64;
/// Bytes of what they call a MB.
const MB: f64 = (1u64 << 20) as f64;
/// Devices that a list may name.
pub(crate) const DEVICES_MAX: usize = 64;

/// How a model is cut over its devices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Split {
    /// Most bytes that the model may take of each device, cache included; empty: what is free. Devices
    /// beyond the end take nothing.
    pub shares: Vec<u64>,
    /// Bytes of each device that stay free; empty: as is usual for its kind.
    pub reserves: Vec<u64>,
    /// Layers that the CPU takes behind the listed devices.
    pub cpu_layers: Option<CpuLayers>,
    /// Every layer is shared by all devices. There is no such way over several devices, which is
    /// refused; one device has the model as a whole, and says so in a warning.
    pub tensor_parallel: bool,
}

/// How many of the last layers the CPU takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuLayers {
    /// As few as possible.
    Auto,
    /// So many.
    Exactly(usize),
}

impl Split {
    /// Whether layers go wherever there is room.
    pub fn is_default(&self) -> bool {
        let Split { shares, reserves, cpu_layers, tensor_parallel: _ } = self;
        shares.is_empty() && reserves.is_empty() && cpu_layers.is_none()
    }

    /// The list that has more numbers than there are devices, with a sentence.
    pub(crate) fn longer_than(&self, devices: &Devices) -> Option<(&'static str, String)> {
        let lists = [("gpu_split", &self.shares), ("reserve_vram", &self.reserves)];
        let n = devices.all().len();
        let (name, list) = lists.into_iter().find(|(_, list)| list.len() > n)?;
        let given = list.len();
        Some((
            name,
            format!(
                "{name} has {given} numbers and there are {n} devices ({devices}): give at most one \
                 for each"
            ),
        ))
    }

    /// How many of so many listed devices can be given a part of the model.
    pub(crate) fn takers(&self, listed: usize) -> usize {
        let shared = self.shares.iter().take(listed).filter(|share| **share > 0).count();
        let listed = if self.shares.is_empty() { listed } else { shared };
        listed + usize::from(!matches!(self.cpu_layers, None | Some(CpuLayers::Exactly(0))))
    }

    /// Shares in GB, as `--gpu-split` has them; if none is above 0, nothing was chosen.
    pub fn shares_of_gb(gb: &[f64]) -> Result<Vec<u64>, UnknownName> {
        let shares = amounts(gb, GB, "a share")?;
        Ok(if shares.iter().all(|share| *share == 0) { Vec::new() } else { shares })
    }

    /// Reserves in MB, as `--reserve-vram` has them.
    pub fn reserves_of_mb(mb: &[f64]) -> Result<Vec<u64>, UnknownName> {
        amounts(mb, MB, "a reserve")
    }
}

fn amounts(numbers: &[f64], unit: f64, what: &str) -> Result<Vec<u64>, UnknownName> {
    if numbers.len() > DEVICES_MAX {
        return Err(UnknownName::new(format!(
            "give at most {DEVICES_MAX} numbers, one per device"
        )));
    }
    let bytes = |number: &f64| match (0.0..=1e6).contains(number) {
        true => Ok((number * unit) as u64),
        false => Err(UnknownName::new(format!("{what} is a number from 0 to 1000000"))),
    };
    numbers.iter().map(bytes).collect()
}

impl FromStr for CpuLayers {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        match (text, text.parse()) {
            ("auto", _) => Ok(CpuLayers::Auto),
            (_, Ok(layers)) => Ok(CpuLayers::Exactly(layers)),
            _ => Err(UnknownName::new("give a number of layers, or auto")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_reserves_are_read() {
        assert_eq!(Split::shares_of_gb(&[1.5, 0.0]), Ok(vec![3 << 29, 0]));
        assert_eq!(Split::shares_of_gb(&[0.0]), Ok(Vec::new()), "which says nothing");
        assert_eq!(Split::reserves_of_mb(&[0.0, 96.0]), Ok(vec![0, 96 << 20]));
        for bad in [-1.0, f64::NAN, f64::INFINITY, 2e6] {
            assert!(Split::shares_of_gb(&[bad]).is_err(), "{bad}");
        }
        assert!(Split::shares_of_gb(&[1.0; 65]).is_err());
        let two = Split { shares: vec![0, 5, 0, 7], ..Split::default() };
        assert_eq!((two.takers(2), two.takers(4), Split::default().takers(3)), (1, 2, 3));
        assert_eq!("auto".parse(), Ok(CpuLayers::Auto));
        assert_eq!("3".parse(), Ok(CpuLayers::Exactly(3)));
        assert!("-3".parse::<CpuLayers>().is_err());
    }
}
