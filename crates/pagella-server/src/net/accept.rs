//! Who comes in: sockets that listen, connections in all and by peer.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::TcpListener;
#[cfg(unix)]
use tokio::net::UnixListener;
use tokio::sync::Semaphore;

use super::connection::{self, Door};
use super::tls::Certificates;
use crate::app::App;

/// Pause after the system could not accept, e.g. because files ran out.
const PAUSE: Duration = Duration::from_millis(100);
/// What clients of a socket in the file system are called: they are on this machine.
pub const HERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A socket that listens.
pub enum Listener {
    /// On an address.
    Tcp(TcpListener),
    /// In the file system.
    #[cfg(unix)]
    Unix(UnixListener),
}

/// What every connection of a socket has in common.
pub struct Entrance {
    pub listener: Listener,
    pub door: Door,
    pub certificates: Option<Arc<Certificates>>,
}

impl Entrance {
    /// Serves whoever comes.
    pub async fn serve(self, app: Arc<App>) {
        let places = Arc::new(Semaphore::new(app.settings.limits.connections));
        let peers = Peers::default();
        loop {
            // While all places are taken, connections wait in the system's queue.
            let Ok(place) = places.clone().acquire_owned().await else { return };
            let accepted = self.accept_one(&app, &peers).await;
            let connection = match accepted {
                Ok(Some(connection)) => connection,
                Ok(None) => continue,
                Err(error) => {
                    app.issue("accept", &error.to_string());
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            tokio::spawn(async move {
                connection.await;
                drop(place);
            });
        }
    }

    /// The next connection; `None` when its peer has too many already.
    async fn accept_one(
        &self,
        app: &Arc<App>,
        peers: &Peers,
    ) -> io::Result<Option<std::pin::Pin<Box<dyn Future<Output = ()> + Send>>>> {
        let (app, door) = (app.clone(), self.door);
        let listener = match &self.listener {
            Listener::Tcp(listener) => listener,
            #[cfg(unix)]
            Listener::Unix(listener) => {
                let (socket, _) = listener.accept().await?;
                return Ok(Some(Box::pin(connection::serve_http1(app, socket, HERE, door))));
            }
        };
        let (socket, peer) = listener.accept().await?;
        let most = app.settings.limits.connections_per_peer;
        let Some(counted) = peers.enter(peer.ip(), most) else { return Ok(None) };
        connection::tune(&socket);
        let certificates = self.certificates.clone();
        Ok(Some(Box::pin(async move {
            match certificates {
                None => connection::serve_http1(app, socket, peer, door).await,
                Some(certificates) => {
                    connection::serve_tls(app, &certificates, socket, peer, door).await;
                }
            }
            drop(counted);
        })))
    }
}

/// Connections by peer address.
#[derive(Clone, Default)]
struct Peers {
    counts: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// One connection of a peer, while it lives.
struct Counted {
    peers: Peers,
    peer: IpAddr,
}

impl Peers {
    fn enter(&self, peer: IpAddr, most: usize) -> Option<Counted> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(peer).or_insert(0);
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Counted { peers: self.clone(), peer })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut counts = self.peers.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_so_many_connections_and_no_more() {
        let peers = Peers::default();
        let peer = IpAddr::from([10, 0, 0, 1]);
        let first = peers.enter(peer, 2);
        let _second = peers.enter(peer, 2);
        assert!(first.is_some() && peers.enter(peer, 2).is_none());
        drop(first);
        assert!(peers.enter(peer, 2).is_some());
        assert!(peers.enter(IpAddr::from([10, 0, 0, 2]), 1).is_some());
    }
}
