//! The listening socket, and the end of the server.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::connection;
use crate::app::{App, Phase};
use crate::auth::{KeyFileError, Keys};
use crate::model::watch_idle;
use crate::settings::Settings;

/// How often the file of keys is looked at.
const KEYS_INTERVAL: Duration = Duration::from_secs(2);
/// Pause after the system could not accept, e.g. because files ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often the end of running requests is looked for while draining.
const DRAIN_INTERVAL: Duration = Duration::from_millis(20);
/// How long cancelled requests may take to say so.
const CANCEL_TIME: Duration = Duration::from_secs(2);

/// Why a server could not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}: choose another with --host and --port")]
    Bind {
        /// Host and port.
        address: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// No keys on an address that others can reach.
    #[error(
        "{address} can be reached by others, and keys are switched off: use keys, or allow it with network.allow_open"
    )]
    Open {
        /// Where it would listen.
        address: SocketAddr,
    },
    /// The file of keys cannot be used.
    #[error(transparent)]
    Keys(#[from] KeyFileError),
    /// The base path does not look like one.
    #[error("base path {path:?} must begin with a slash and not end with one")]
    BasePath {
        /// What was given.
        path: String,
    },
}

/// Tells a running server to end.
#[derive(Clone)]
pub struct Shutdown {
    app: Arc<App>,
}

impl Shutdown {
    /// Ends the server: what runs may go on for a while, what waits is refused.
    pub fn begin(&self) {
        self.app.advance(Phase::Leaving);
    }
}

/// A server that listens.
pub struct Server {
    app: Arc<App>,
    listener: TcpListener,
}

impl Server {
    /// Listens, so that an address in use is noticed before a model is loaded.
    pub async fn bind(settings: Settings, keys: Keys) -> Result<Self, ServerError> {
        let network = &settings.network;
        let base = &network.base_path;
        if !base.is_empty() && (!base.starts_with('/') || base.ends_with('/')) {
            return Err(ServerError::BasePath { path: base.clone() });
        }
        let host = network.host.trim_start_matches('[').trim_end_matches(']');
        let failed = |source| ServerError::Bind {
            address: format!("{}:{}", network.host, network.port),
            source,
        };
        let listener = TcpListener::bind((host, network.port)).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        if network.disable_auth && !network.allow_open && !address.ip().is_loopback() {
            return Err(ServerError::Open { address });
        }
        Ok(Server { app: Arc::new(App::new(settings, keys, address)), listener })
    }

    /// What its requests share.
    pub fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.app.bound
    }

    /// A handle that ends it.
    pub fn shutdown(&self) -> Shutdown {
        Shutdown { app: self.app.clone() }
    }

    /// Serves until the end was asked for and has come.
    pub async fn run(self) {
        let app = self.app.clone();
        let watching = tokio::spawn(watch_keys(app.clone()));
        let idling = tokio::spawn(watch_idle(app.clone()));
        let accepting = tokio::spawn(accept(self.app, self.listener));
        let mut phases = app.phases();
        // The sender lives in `app`, so waiting cannot fail.
        let _ = phases.wait_for(|phase| *phase >= Phase::Leaving).await;
        tokio::time::sleep(app.settings.shutdown.drain_delay).await;
        app.advance(Phase::Draining);
        app.model.cancel_load();
        accepting.abort();
        watching.abort();
        idling.abort();
        app.log.info("drain", &[("requests", app.requests.len().into())]);
        if !wait_idle(&app, app.settings.shutdown.drain_timeout).await {
            app.advance(Phase::Cancelling);
            app.requests.cancel_all();
            wait_idle(&app, CANCEL_TIME).await;
        }
        app.log.info("stopped", &[]);
    }
}

/// Waits until no request lives; false when time runs out.
async fn wait_idle(app: &App, time: Duration) -> bool {
    let idle = async {
        while !app.requests.is_empty() {
            tokio::time::sleep(DRAIN_INTERVAL).await;
        }
    };
    tokio::time::timeout(time, idle).await.is_ok()
}

async fn accept(app: Arc<App>, listener: TcpListener) {
    let limits = &app.settings.limits;
    let places = Arc::new(Semaphore::new(limits.connections));
    let peers = Peers::default();
    loop {
        // While all places are taken, connections wait in the system's queue.
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let (socket, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                app.issue("accept", &error.to_string());
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(counted) = peers.enter(peer.ip(), limits.connections_per_peer) else { continue };
        let app = app.clone();
        tokio::spawn(async move {
            connection::serve(app, socket, peer).await;
            drop((place, counted));
        });
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

/// Reads the file of keys again when it changes. A file that is wrong keeps the old keys.
async fn watch_keys(app: Arc<App>) {
    let stamp = || -> Option<(SystemTime, u64)> {
        let meta = std::fs::metadata(&app.settings.auth.keys_file).ok()?;
        Some((meta.modified().ok()?, meta.len()))
    };
    let mut seen = stamp();
    loop {
        tokio::time::sleep(KEYS_INTERVAL).await;
        let now = stamp();
        if now.is_none() || now == seen {
            continue;
        }
        seen = now;
        if let Err(error) = app.reload_keys() {
            app.issue("keys", &error.to_string());
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
