//! What a chip allows, from which every kernel's sizes follow; and holding a device to the limits of
//! a smaller chip, so that what people have can be tried on what is there.

use cudarc::driver::{DriverError, sys};
use pagella_backend::BackendError;

/// Holds the device to the limits of another chip, e.g. `8.6`. For development: in a build
/// for `compute_80:sm_90` everything runs as it does there.
pub const HELD_ENV: &str = "PAGELLA_CUDA_AS";

/// The limits that kernels are chosen by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Compute capability, e.g. `(9, 0)`.
    pub capability: (u32, u32),
    /// Multiprocessors.
    pub sms: u32,
    /// Most shared memory per block.
    pub shared_bytes_max: u32,
}

/// Chips that a device can be held to: the largest of their generation that people have.
const CHIPS: [Limits; 5] = [
    Limits { capability: (8, 0), sms: 108, shared_bytes_max: 166_912 },
    Limits { capability: (8, 6), sms: 82, shared_bytes_max: 101_376 },
    Limits { capability: (8, 9), sms: 128, shared_bytes_max: 101_376 },
    Limits { capability: (9, 0), sms: 132, shared_bytes_max: 232_448 },
    Limits { capability: (12, 0), sms: 170, shared_bytes_max: 101_376 },
];

impl Limits {
    /// What a device says, whose attributes are read by `attribute`.
    pub(crate) fn of(
        attribute: impl Fn(sys::CUdevice_attribute) -> Result<i32, DriverError>,
    ) -> Result<Self, DriverError> {
        use sys::CUdevice_attribute::{
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
            CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN as SHARED,
            CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT as SMS,
        };
        let number = |which| attribute(which).map(i32::unsigned_abs);
        Ok(Limits {
            capability: (number(MAJOR)?, number(MINOR)?),
            sms: number(SMS)?,
            shared_bytes_max: number(SHARED)?,
        })
    }

    /// The chip that the environment asks for, if it does.
    fn held() -> Result<Option<Self>, BackendError> {
        let Some(asked) = std::env::var_os(HELD_ENV).filter(|asked| !asked.is_empty()) else {
            return Ok(None);
        };
        let asked = asked.to_string_lossy();
        let found = CHIPS.iter().find(|chip| chip.version() == asked);
        let chip = found.copied().ok_or_else(|| {
            BackendError::unsupported(
                "cuda",
                format!("{HELD_ENV}={asked}"),
                format!("choose among {}", CHIPS.map(|chip| chip.version()).join(", ")),
            )
        })?;
        Ok(Some(chip))
    }

    /// What may be used of a device that has these: no more than the chip that the environment asks for.
    pub(crate) fn allowed(self) -> Result<Self, BackendError> {
        Ok(Self::held()?.map_or(self, |chip| self.within(chip)))
    }

    /// No more than another chip allows.
    fn within(self, other: Self) -> Self {
        Limits {
            capability: self.capability.min(other.capability),
            sms: self.sms.min(other.sms),
            shared_bytes_max: self.shared_bytes_max.min(other.shared_bytes_max),
        }
    }

    /// Whether the tensor cores of this chip take whole warpgroups.
    pub fn has_wgmma(&self) -> bool {
        self.capability == (9, 0)
    }

    /// Whether a copy of many bytes to shared memory is one instruction.
    pub fn has_bulk_copies(&self) -> bool {
        self.capability >= (9, 0)
    }

    /// As NVIDIA writes it: `8.6`.
    pub fn version(&self) -> String {
        let (major, minor) = self.capability;
        format!("{major}.{minor}")
    }

    /// How linears run here, for people. `warpgroups`: whether the build has code for them.
    pub(crate) fn ways(&self, warpgroups: bool) -> String {
        let prompts = if warpgroups { "warpgroup tiles" } else { "warp tiles" };
        let weights = if self.has_bulk_copies() { "bulk copies" } else { "asynchronous copies" };
        let kib = self.shared_bytes_max / 1024;
        format!(
            "{} multiprocessors, {kib} KiB of shared memory; prompts by {prompts}, weights by {weights}",
            self.sms
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_device_has_nothing_that_the_chip_lacks() {
        let [_, small, .., hopper, blackwell] = CHIPS;
        assert_eq!(hopper.within(small), small);
        assert_eq!(small.within(hopper), small);
        let held = hopper.within(blackwell);
        assert_eq!((held.sms, held.shared_bytes_max), (132, 101_376));
        assert!(!small.has_wgmma() && !small.has_bulk_copies());
        assert!(hopper.has_wgmma() && hopper.has_bulk_copies());
        assert!(!blackwell.has_wgmma() && blackwell.has_bulk_copies());
    }

    #[test]
    fn people_read_what_a_chip_will_use() {
        assert_eq!(
            CHIPS[1].ways(false),
            "82 multiprocessors, 99 KiB of shared memory; prompts by warp tiles, \
             weights by asynchronous copies"
        );
    }
}
