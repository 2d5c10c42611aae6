//! How many files this process may have open, a connection being one of them.

/// What is open beside connections: models while they are loaded, logs, sockets that listen.
const FILES_BESIDE: usize = 128;

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
