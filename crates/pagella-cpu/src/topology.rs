//! Which cores this process may use, and which of them are worth a thread.

/// One CPU number per physical core of the affinity mask, at most as many as the CPU quota allows.
///
/// Siblings of a core share its vector units, so a second thread there only adds noise.
pub fn usable_cpus() -> Vec<usize> {
    let quota = cores();
    let mut cpus: Vec<usize> = Vec::new();
    for cpu in allowed_cpus() {
        if !siblings(cpu).iter().any(|s| cpus.contains(s)) {
            cpus.push(cpu);
        }
    }
    if cpus.is_empty() {
        cpus = (0..quota).collect();
    }
    cpus.truncate(quota);
    cpus
}

/// Threads that can run at once, by the affinity mask and the CPU quota of control groups.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(target_os = "linux")]
pub(crate) fn allowed_cpus() -> Vec<usize> {
    // SAFETY: `set` is a plain bit mask that the call fills; its size is passed along.
    let (set, ok) = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let rc = libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set);
        (set, rc == 0)
    };
    if !ok {
        return Vec::new();
    }
    // SAFETY: the index stays below the size of the mask.
    (0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect()
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn allowed_cpus() -> Vec<usize> {
    Vec::new()
}

/// CPUs of the same physical core, `cpu` included.
fn siblings(cpu: usize) -> Vec<usize> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    let list = std::fs::read_to_string(path).unwrap_or_default();
    let parsed = parse_cpu_list(list.trim());
    if parsed.is_empty() { vec![cpu] } else { parsed }
}

/// Parses `0,64-66`.
fn parse_cpu_list(list: &str) -> Vec<usize> {
    list.split(',')
        .filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.trim().parse::<usize>().ok()?..=last.trim().parse::<usize>().ok()?)
        })
        .flatten()
        .collect()
}

/// Binds the calling thread to one CPU; a refusal is harmless.
pub(crate) fn pin_current_thread(cpu: usize) {
    run_on(std::iter::once(cpu));
}

/// Lets the calling thread run on these CPUs only; a refusal is harmless.
#[cfg(target_os = "linux")]
pub(crate) fn run_on(cpus: impl Iterator<Item = usize>) {
    // SAFETY: `set` is a plain bit mask; every index is below its size; the call only reads it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        cpus.filter(|cpu| *cpu < libc::CPU_SETSIZE as usize)
            .for_each(|cpu| libc::CPU_SET(cpu, &mut set));
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn run_on(_: impl Iterator<Item = usize>) {}

/// The CPU that the calling thread runs on now; `usize::MAX` where nobody can tell.
pub(crate) fn current_cpu() -> usize {
    #[cfg(target_os = "linux")]
    // SAFETY: the call takes nothing and touches no memory of ours.
    return usize::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(usize::MAX);
    #[cfg(not(target_os = "linux"))]
    usize::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_parsed() {
        assert_eq!(parse_cpu_list("0,64-66"), vec![0, 64, 65, 66]);
        assert_eq!(parse_cpu_list("7"), vec![7]);
        assert!(parse_cpu_list("").is_empty());
    }

    #[test]
    fn there_is_at_least_one_cpu() {
        assert!(!usable_cpus().is_empty());
    }
}
