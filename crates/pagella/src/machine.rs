//! What this machine offers: processor, memory, graphics driver. Facts only; `doctor` judges.
//!
//! Everything is read from files of the system that anyone may read. On systems without them a
//! fact is absent rather than guessed.

use std::fs::read_to_string;
use std::path::Path;

use serde_json::{Value, json};

pub(crate) use crate::host_memory::available_bytes;
use crate::host_memory::{kib_field, memory_field};

/// Processor features that the kernels can use, as Linux spells them.
const FEATURES: &[&str] = &[
    "avx",
    "avx2",
    "f16c",
    "fma",
    "avx512f",
    "avx512bw",
    "avx512vl",
    "avx512_vnni",
    "avx_vnni",
    "avx512_bf16",
    "amx_tile",
    "asimd",
    "asimddp",
    "i8mm",
    "sve",
];

/// The machine, as far as it tells.
pub struct Machine {
    /// Marketing name of the processor.
    pub cpu: Option<String>,
    /// Those of [`FEATURES`] that it has.
    pub features: Vec<&'static str>,
    /// CPUs this process may use at once, quotas included.
    pub parallelism: usize,
    /// CPUs worth a thread: one per physical core among them.
    pub cores: usize,
    /// Bytes of the largest cache of one CPU.
    pub last_cache_bytes: Option<u64>,
    pub memory_bytes: Option<u64>,
    /// Bytes that could be used now without swapping; a limit of the container counts.
    pub available_bytes: Option<u64>,
    /// When large pages are used by themselves: always, madvise or never.
    pub huge_pages: Option<String>,
    /// Version of the NVIDIA driver.
    pub nvidia_driver: Option<String>,
}

impl Machine {
    /// Looks around.
    pub fn look() -> Self {
        let cpuinfo = read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |names: &[&str]| {
            cpuinfo.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                names.contains(&name.trim()).then(|| value.trim().to_owned())
            })
        };
        let flags = field(&["flags", "Features"]).unwrap_or_default();
        let has = |feature: &&&str| flags.split_whitespace().any(|flag| flag == **feature);
        Machine {
            cpu: field(&["model name"]),
            features: FEATURES.iter().filter(has).copied().collect(),
            parallelism: std::thread::available_parallelism().map_or(1, usize::from),
            cores: pagella_cpu::usable_cpus().len(),
            last_cache_bytes: last_cache_bytes(),
            memory_bytes: memory_field("MemTotal"),
            available_bytes: available_bytes(),
            huge_pages: read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
                .ok()
                .and_then(|text| chosen_word(&text)),
            nvidia_driver: nvidia_driver(),
        }
    }

    /// The facts for programs.
    pub fn json(&self) -> Value {
        json!({
            "cpu": self.cpu,
            "features": self.features,
            "parallelism": self.parallelism,
            "cores": self.cores,
            "last_cache_bytes": self.last_cache_bytes,
            "memory_bytes": self.memory_bytes,
            "available_bytes": self.available_bytes,
            "huge_pages": self.huge_pages,
            "nvidia_driver": self.nvidia_driver,
        })
    }
}

/// Memory this process has now, in bytes.
pub fn memory_bytes() -> Option<u64> {
    kib_field(&read_to_string("/proc/self/status").ok()?, "VmRSS")
}

/// Largest memory this process has had, in bytes.
pub fn peak_memory_bytes() -> Option<u64> {
    kib_field(&read_to_string("/proc/self/status").ok()?, "VmHWM")
}

/// Makes the peak start from the present. Whether the system did it.
pub fn reset_peak_memory() -> bool {
    std::fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// The word in brackets of `always [madvise] never`.
fn chosen_word(text: &str) -> Option<String> {
    Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
}

fn last_cache_bytes() -> Option<u64> {
    let sizes = (0..8).filter_map(|index| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
        cache_size(read_to_string(path).ok()?.trim())
    });
    sizes.max()
}

/// `32768K` or `32M`, in bytes.
fn cache_size(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let factor: u64 = match unit {
        "K" => 1 << 10,
        "M" => 1 << 20,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

fn nvidia_driver() -> Option<String> {
    let version = read_to_string("/sys/module/nvidia/version").ok().map(|v| v.trim().to_owned());
    let device = || Path::new("/dev/nvidiactl").exists().then(|| "unknown version".to_owned());
    version.or_else(device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_system_are_understood() {
        assert_eq!(chosen_word("always [madvise] never\n").as_deref(), Some("madvise"));
        assert_eq!((cache_size("32768K"), cache_size("4M")), (Some(32 << 20), Some(4 << 20)));
        assert_eq!((cache_size(""), cache_size("12"), cache_size("1T")), (None, None, None));
    }

    #[test]
    fn looking_around_never_fails() {
        let machine = Machine::look();
        assert!(machine.parallelism >= 1 && machine.cores >= 1);
    }
}
