//! A new process in place of this one, with the same number, arguments and terminal. What it must know
//! goes by an environment variable.

use pagella_server::Legacy;

/// What a process hands to the one that takes its place, as JSON.
const LEGACY: &str = "PAGELLA_SUCCEEDS";

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
