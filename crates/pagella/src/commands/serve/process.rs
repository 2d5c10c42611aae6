//! The server as a process: how many files it may open, what SIGHUP means to it, the service manager
//! that started it, the process that takes its place.

use pagella_server::Legacy;

/// What is open beside connections: models while they are loaded, logs, sockets that listen.
const FILES_BESIDE: usize = 128;
/// What a process hands to the one that takes its place, as JSON.
const LEGACY: &str = "PAGELLA_SUCCEEDS";

/// How many connections there is room for, once the limit is as high as it can be without asking
/// anyone; `None` where there is no limit.
pub fn connections() -> Option<usize> {
    let files = raise()?;
    let files = usize::try_from(files).unwrap_or(usize::MAX);
    Some(files.saturating_sub(FILES_BESIDE).max(files / 2).max(1))
}

/// Raises the limit that holds to the one that may be chosen; the limit, if there is one.
#[cfg(unix)]
fn raise() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    /// What some systems take where they say that there is no limit.
    const FILES_USUAL: u64 = 10_240;
    let before = getrlimit(Resource::Nofile);
    let usual = before.maximum.map_or(FILES_USUAL, |most| most.min(FILES_USUAL));
    for current in [before.maximum, Some(usual)] {
        let is_more = match (current, before.current) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(wanted), Some(now)) => wanted > now,
        };
        if is_more && setrlimit(Resource::Nofile, Rlimit { current, ..before }).is_ok() {
            break;
        }
    }
    getrlimit(Resource::Nofile).current
}

/// There is no such limit here.
#[cfg(not(unix))]
fn raise() -> Option<u64> {
    None
}

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

/// Tells the service manager that started this process how far it is, in systemd's protocol: lines such
/// as `READY=1`. Nothing happens where nobody asked.
#[cfg(unix)]
pub fn notify(state: &str) {
    use std::os::unix::net::UnixDatagram;
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    // Not hearing of it is the manager's business, not a reason to stop.
    let _ = UnixDatagram::unbound().and_then(|socket| send(&socket, &path, state));
}

#[cfg(unix)]
fn send(
    socket: &std::os::unix::net::UnixDatagram,
    path: &std::ffi::OsStr,
    state: &str,
) -> std::io::Result<usize> {
    // A name without a file begins with `@` here and with a zero byte in the system.
    #[cfg(target_os = "linux")]
    {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::ffi::OsStrExt;
        if let [b'@', name @ ..] = path.as_bytes() {
            let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
            return socket.send_to_addr(state.as_bytes(), &address);
        }
    }
    socket.send_to(state.as_bytes(), path)
}

/// There is no such manager here.
#[cfg(not(unix))]
pub fn notify(_: &str) {}

/// What the process before this one handed over, if there was one.
pub fn legacy() -> Option<Legacy> {
    let text = std::env::var(LEGACY).ok()?;
    serde_json::from_str(&text).ok()
}

/// Starts this program again in place of itself; comes back only with the reason why not.
#[cfg(unix)]
pub fn replace(legacy: &Legacy) -> String {
    use std::os::unix::process::CommandExt;
    let (Ok(program), Ok(text)) = (std::env::current_exe(), serde_json::to_string(legacy)) else {
        return "the program's own file is not known".to_owned();
    };
    let mut command = std::process::Command::new(program);
    command.args(std::env::args_os().skip(1)).env(LEGACY, text).exec().to_string()
}

/// Starts this program again in place of itself: nobody knows how, here.
#[cfg(not(unix))]
pub fn replace(_: &Legacy) -> String {
    "a program cannot replace itself on this system".to_owned()
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
