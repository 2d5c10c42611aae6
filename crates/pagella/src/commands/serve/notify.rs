//! Tells the service manager that started us how far we are, if one did (systemd's protocol).

/// Sends lines such as `READY=1`. Nothing happens where nobody asked.
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
