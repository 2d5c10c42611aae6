//! What SIGHUP means here: the end of a terminal, or an operator's word.

/// What the server does on SIGHUP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hangup {
    /// Its terminal is gone, and with it whoever watches it: it ends as on SIGTERM.
    Ends,
    /// There is no terminal that could go: it reads settings and keys again.
    Reloads,
}

/// What SIGHUP means to this process. To be asked before anyone listens to signals.
pub fn hangup() -> Hangup {
    match has_terminal() && !ignores_hangup() {
        true => Hangup::Ends,
        false => Hangup::Reloads,
    }
}

/// Whether a terminal controls this process, whatever its output goes to.
fn has_terminal() -> bool {
    cfg!(unix) && std::fs::File::open("/dev/tty").is_ok()
}

/// Whether whoever started this process wants it to survive its terminal, as `nohup` does.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignores(&status)
}

/// The first bit of the mask of ignored signals is that of SIGHUP.
fn ignores(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|bits| bits & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_under_nohup_survives_its_terminal() {
        assert!(ignores("Name:\tpagella\nSigIgn:\t0000000000001001\n"));
        assert!(!ignores("SigIgn:\t0000000000001000\n"));
        assert!(!ignores(""));
    }
}
