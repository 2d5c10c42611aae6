//! What stands between this build and the CUDA devices of a machine: kernels, driver, devices.
//!
//! Looking never fails and never panics: what is missing is a fact like any other, and
//! [`Probe::obstacle`] turns it into a sentence that says what to do.

mod code;
mod look;

use pagella_backend::BackendError;

use crate::limits::{HELD_ENV, Limits};

pub use code::Code;
pub(crate) use code::has_code;

/// The CUDA version that the driver must offer, and the first driver that does.
pub const CUDA_MIN: (u32, u32) = (13, 0);
/// See [`CUDA_MIN`].
pub const DRIVER_MIN: &str = "580";

/// Facts about CUDA on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Version of the compiler that made the kernels; `None` when this build has none.
    pub toolkit: Option<(u32, u32)>,
    /// What the kernels were compiled for, as NVIDIA names it: `sm_90`, `compute_80`.
    pub targets: Vec<&'static str>,
    /// The driver and its devices.
    pub driver: Driver,
}

/// What the driver said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Driver {
    /// Its library cannot be loaded.
    Missing,
    /// It does not start.
    Broken {
        /// In its own words.
        message: String,
    },
    /// It works.
    Ready {
        /// The CUDA version it offers.
        cuda: (u32, u32),
        /// In its order.
        gpus: Vec<Gpu>,
    },
}

/// One device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// As the driver calls it.
    pub name: String,
    /// What it allows.
    pub limits: Limits,
    /// All its memory.
    pub memory_bytes: u64,
    /// Memory that nobody uses; unknown until [`Probe::measure_free`].
    pub free_bytes: Option<u64>,
    /// How this build would run on it.
    pub code: Code,
}

impl Probe {
    /// Looks at the build, the driver and its devices. Uses no memory of a device.
    pub fn look() -> Self {
        let files = code::TARGETS;
        let toolkit = (!files.is_empty()).then_some(code::TOOLKIT);
        let mut targets = Vec::new();
        for target in files.iter().flat_map(|(_, targets)| *targets) {
            if !targets.contains(target) {
                targets.push(*target);
            }
        }
        Probe { toolkit, targets, driver: look::driver() }
    }

    /// Asks every device that can be used how much memory is free. Opens each for a moment, which
    /// takes a fraction of a second.
    pub fn measure_free(&mut self) {
        let usable: Vec<bool> =
            (0..self.gpus().len()).map(|index| self.obstacle(index).is_none()).collect();
        let Driver::Ready { gpus, .. } = &mut self.driver else { return };
        for (index, gpu) in gpus.iter_mut().enumerate().filter(|(index, _)| usable[*index]) {
            gpu.free_bytes = look::free_bytes(index);
        }
    }

    /// Whether a device that can be used has failed in this process. CUDA then fails with the same
    /// error whatever is asked, until the program is started again.
    pub fn is_lost(&self, index: usize) -> bool {
        match &self.driver {
            Driver::Missing => false,
            Driver::Broken { .. } => true,
            Driver::Ready { .. } => self.obstacle(index).is_none() && look::is_lost(index),
        }
    }

    /// The devices, usable or not.
    pub fn gpus(&self) -> &[Gpu] {
        match &self.driver {
            Driver::Ready { gpus, .. } => gpus,
            Driver::Missing | Driver::Broken { .. } => &[],
        }
    }

    /// Why device `index` cannot be used, and what to do about it; `None` when it can.
    pub fn obstacle(&self, index: usize) -> Option<String> {
        if let Some(general) = self.general_obstacle() {
            return Some(general);
        }
        let gpus = self.gpus();
        let Some(gpu) = gpus.get(index) else {
            let n = gpus.len();
            let devices = if n == 1 { "one device, cuda:0".into() } else { format!("{n} devices") };
            return Some(format!("there is no cuda:{index}; the driver shows {devices}"));
        };
        let chip = format!("{}, compute capability {}", gpu.name, gpu.limits.version());
        match &gpu.code {
            Code::Machine(_) | Code::Portable(_) => None,
            Code::None if gpu.limits.capability < code::CAPABILITY_MIN => {
                let (major, minor) = code::CAPABILITY_MIN;
                Some(format!("the device is too old ({chip}): {major}.{minor} is the least"))
            }
            Code::None => Some(format!(
                "this build has no code for the device ({chip}): build it without \
                 PAGELLA_CUDA_ARCHS, and use a driver as new as the compiler"
            )),
        }
    }

    /// What device `index` allows, and how this build uses it.
    pub fn ways(&self, index: usize) -> String {
        let Some(Gpu { limits: own, .. }) = self.gpus().get(index) else { return String::new() };
        match own.allowed() {
            Ok(limits) if limits == *own => own.ways(self.has_warpgroups(own)),
            Ok(limits) => {
                let ways = limits.ways(self.has_warpgroups(&limits));
                format!("as {}, by {HELD_ENV}: {ways}", limits.version())
            }
            Err(error) => error.to_string(),
        }
    }

    /// Whether prompts on a chip are multiplied by warpgroups: it can, and this build has the code.
    pub fn has_warpgroups(&self, limits: &Limits) -> bool {
        limits.has_wgmma() && self.targets.contains(&"sm_90a")
    }

    /// The device that is chosen when none was named: the usable one with the most memory, the
    /// first among equals. Otherwise, why there is none.
    pub fn best(&self) -> Result<usize, String> {
        if let Some(obstacle) = self.general_obstacle() {
            return Err(obstacle);
        }
        let usable = (0..self.gpus().len()).filter(|index| self.obstacle(*index).is_none());
        let best = usable.rev().max_by_key(|index| self.gpus()[*index].memory_bytes);
        best.ok_or_else(|| self.obstacle(0).unwrap_or_else(|| "no device can be used".to_owned()))
    }

    /// What keeps every device from being used.
    fn general_obstacle(&self) -> Option<String> {
        if self.toolkit.is_none() {
            return Some(
                "this build has no CUDA kernels: run `cargo xtask cuda-toolchain` and build again"
                    .to_owned(),
            );
        }
        match &self.driver {
            Driver::Missing => Some(format!(
                "the NVIDIA driver was not found: install version {DRIVER_MIN} or later; in a \
                 container, pass the GPU through"
            )),
            Driver::Broken { message } => Some(format!(
                "the NVIDIA driver does not start ({message}): `nvidia-smi` may say more"
            )),
            Driver::Ready { cuda: (major, minor), .. } if (*major, *minor) < CUDA_MIN => {
                let (need_major, need_minor) = CUDA_MIN;
                Some(format!(
                    "the NVIDIA driver offers CUDA {major}.{minor}, which is too old: \
                     {need_major}.{need_minor} comes with driver {DRIVER_MIN}"
                ))
            }
            Driver::Ready { gpus, .. } if gpus.is_empty() => {
                let hidden = std::env::var_os("CUDA_VISIBLE_DEVICES").is_some();
                let hint = if hidden { " (CUDA_VISIBLE_DEVICES may hide it)" } else { "" };
                Some(format!("the NVIDIA driver shows no device{hint}"))
            }
            Driver::Ready { .. } => None,
        }
    }
}

/// Refuses a device that cannot be used, with the reason. Anything else that talks to the driver
/// comes after this: its bindings panic where the driver is missing or too old.
pub fn usable(ordinal: usize) -> Result<(), BackendError> {
    match Probe::look().obstacle(ordinal) {
        None => Ok(()),
        Some(hint) => {
            let what = format!("cuda:{ordinal}");
            Err(BackendError::unsupported("cuda", what, hint))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(capability: (u32, u32), memory_bytes: u64, code: Code) -> Gpu {
        let limits = Limits { capability, sms: 1, shared_bytes_max: 101_376 };
        Gpu { name: "NVIDIA Test".into(), limits, memory_bytes, free_bytes: None, code }
    }

    fn probe(driver: Driver) -> Probe {
        Probe { toolkit: Some((13, 0)), targets: vec!["sm_80", "compute_80"], driver }
    }

    fn ready(gpus: Vec<Gpu>) -> Probe {
        probe(Driver::Ready { cuda: (13, 0), gpus })
    }

    #[test]
    fn every_obstacle_says_what_to_do() {
        let machine = Code::Machine("sm_80");
        let fine = gpu((8, 0), 1, machine);
        let broken = Driver::Broken { message: "unknown error".into() };
        let old_driver = Driver::Ready { cuda: (12, 4), gpus: vec![fine.clone()] };
        let without = Probe { toolkit: None, targets: vec![], driver: Driver::Missing };
        for (probe, words) in [
            (without, "cargo xtask cuda-toolchain"),
            (probe(Driver::Missing), "install version 580 or later"),
            (probe(broken), "(unknown error): `nvidia-smi`"),
            (probe(old_driver), "offers CUDA 12.4, which is too old: 13.0 comes with driver 580"),
            (ready(vec![]), "shows no device"),
            (ready(vec![gpu((7, 5), 1, Code::None)]), "7.5): 8.0 is the least"),
            (ready(vec![gpu((15, 0), 1, Code::None)]), "no code for the device (NVIDIA Test"),
        ] {
            let obstacle = probe.obstacle(0).unwrap();
            assert!(obstacle.contains(words), "{obstacle}");
            assert_eq!(probe.best(), Err(obstacle));
        }
        let one = ready(vec![fine]);
        assert_eq!(one.obstacle(0), None);
        assert!(one.obstacle(1).unwrap().contains("no cuda:1; the driver shows one device"));
    }

    #[test]
    fn the_largest_usable_device_is_the_best_and_the_first_of_equals() {
        let machine = Code::Machine("sm_80");
        let gpus = vec![
            gpu((7, 0), 90, Code::None),
            gpu((8, 0), 10, machine.clone()),
            gpu((8, 6), 40, machine.clone()),
            gpu((10, 0), 40, Code::Portable("compute_90")),
        ];
        assert_eq!(ready(gpus).best(), Ok(2));
    }

    #[test]
    fn looking_never_fails() {
        let mut probe = Probe::look();
        probe.measure_free();
        assert_eq!(probe.best().is_ok(), (0..probe.gpus().len()).any(|i| usable(i).is_ok()));
        assert!(usable(1_000).is_err());
    }
}
