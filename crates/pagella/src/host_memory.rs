//! Memory of this machine that could be used now, as files of the system tell it.

use std::fs::read_to_string;

/// Bytes that could be used now: the system's estimate, or less where the container has a limit.
pub(crate) fn available_bytes() -> Option<u64> {
    let system = memory_field("MemAvailable")?;
    let number = |path: &str| read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let pairs = [
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        ),
    ];
    let limits = pairs
        .iter()
        .filter_map(|(limit, used)| Some(number(limit)?.saturating_sub(number(used).unwrap_or(0))));
    limits.chain([system]).min()
}

/// A line of what the system says about memory, in bytes.
pub(crate) fn memory_field(name: &str) -> Option<u64> {
    kib_field(&read_to_string("/proc/meminfo").ok()?, name)
}

/// The value of `Name:  123 kB`, in bytes.
pub(crate) fn kib_field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.split(':').next() == Some(name))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "MemTotal:       24631252 kB\nMemAvailable:   100 kB\n";
        assert_eq!(kib_field(text, "MemAvailable"), Some(102_400));
        assert_eq!(kib_field(text, "Mem"), None);
    }
}
