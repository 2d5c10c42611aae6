//! The listening socket, and the end of the server.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use super::accept::{Entrance, HERE, Listener};
use super::connection::Door;
use super::tls::Certificates;
use super::watch::watch;
use crate::app::{App, Phase};
use crate::auth::{KeyFileError, Keys};
use crate::log::Log;
use crate::model::watch_idle;
use crate::presets::{self, Selected};
use crate::router;
use crate::settings::Settings;

/// What a host begins with that is a path.
const UNIX: &str = "unix:";
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
    /// Certificates or their key cannot be used.
    #[error("{problem}: check network.tls_cert and network.tls_key")]
    Tls {
        /// The file, and what is wrong with it.
        problem: String,
    },
    /// Nothing can be written to the log file.
    #[error("cannot write to {path}: {source}: check logging.file")]
    Log {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The preset that is to hold from the start cannot be used.
    #[error("sampling.override_preset: {problem}")]
    Preset {
        /// What is wrong with it.
        problem: String,
    },
    /// A family of routes that is not part of this build.
    #[error(
        "network.api_servers has {name:?}, which this build leaves out: build with that feature"
    )]
    NotBuilt {
        /// The family, which is the name of its feature too.
        name: &'static str,
    },
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
    entrances: Vec<Entrance>,
    certificates: Option<Arc<Certificates>>,
    /// A socket in the file system, removed at the end.
    socket: Option<PathBuf>,
}

impl Server {
    /// Listens, so that an address in use is noticed before a model is loaded.
    pub async fn bind(settings: Settings, keys: Keys) -> Result<Self, ServerError> {
        let network = &settings.network;
        let base = &network.base_path;
        if !base.is_empty() && (!base.starts_with('/') || base.ends_with('/')) {
            return Err(ServerError::BasePath { path: base.clone() });
        }
        if let Some(family) = network.api_servers.iter().find(|family| !router::is_built(**family))
        {
            return Err(ServerError::NotBuilt { name: family.name() });
        }
        let certificates = network.tls().map(Certificates::load).transpose();
        let certificates = certificates.map_err(|problem| ServerError::Tls { problem })?;
        let certificates = certificates.map(Arc::new);
        let socket = network.host.strip_prefix(UNIX).map(PathBuf::from);
        let (listener, address) = match &socket {
            Some(path) => (bind_path(path).await?, HERE),
            None => bind_address(&network.host, network.port).await?,
        };
        if network.disable_auth && !network.allow_open && !address.ip().is_loopback() {
            return Err(ServerError::Open { address });
        }
        let main = Entrance { listener, door: Door::Main, certificates: certificates.clone() };
        let mut entrances = vec![main];
        if let Some(address) = settings.metrics.listen {
            let (listener, _) = bind_address(&address.ip().to_string(), address.port()).await?;
            entrances.push(Entrance { listener, door: Door::Metrics, certificates: None });
        }
        let path = settings.logging.file.clone().unwrap_or_default();
        let log = Log::open(settings.logging.clone());
        let log = log.map_err(|source| ServerError::Log { path, source })?;
        let app = Arc::new(App::new(settings, log, keys, address));
        select_preset(&app)?;
        Ok(Server { app, entrances, certificates, socket })
    }

    /// Where it listens, for people.
    pub fn place(&self) -> String {
        match (&self.socket, &self.certificates) {
            (Some(path), _) => format!("{UNIX}{}", path.display()),
            (None, None) => format!("http://{}", self.app.bound),
            (None, Some(_)) => format!("https://{}", self.app.bound),
        }
    }

    /// Where counts alone are told, if that is a socket of its own.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        let metrics = self.entrances.iter().find(|entrance| entrance.door == Door::Metrics)?;
        match &metrics.listener {
            Listener::Tcp(listener) => listener.local_addr().ok(),
            #[cfg(unix)]
            Listener::Unix(_) => None,
        }
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
        let watching = tokio::spawn(watch(app.clone(), self.certificates));
        let serve = |entrance: Entrance| tokio::spawn(entrance.serve(app.clone()));
        let accepting: Vec<_> = self.entrances.into_iter().map(serve).collect();
        let idling = tokio::spawn(watch_idle(app.clone()));
        tokio::spawn(app.wakes.forward());
        let mut phases = app.phases();
        // The sender lives in `app`, so waiting cannot fail.
        let _ = phases.wait_for(|phase| *phase >= Phase::Leaving).await;
        tokio::time::sleep(app.settings.shutdown.drain_delay).await;
        app.advance(Phase::Draining);
        app.model.cancel_load();
        accepting.iter().for_each(tokio::task::JoinHandle::abort);
        watching.abort();
        idling.abort();
        app.downloads.stop_all();
        if let Some(path) = &self.socket {
            // Whoever starts next removes it otherwise.
            let _ = std::fs::remove_file(path);
        }
        app.log.info("drain", &[("requests", app.requests.len().into())]);
        if !wait_idle(&app, app.settings.shutdown.drain_timeout).await {
            app.advance(Phase::Cancelling);
            app.requests.cancel_all();
            wait_idle(&app, CANCEL_TIME).await;
        }
        app.log.info("stopped", &[]);
    }
}

/// Waits until no request lives and no socket is open; false when time runs out.
async fn wait_idle(app: &App, time: Duration) -> bool {
    let idle = async {
        while !(app.requests.is_empty() && app.sockets.is_empty()) {
            tokio::time::sleep(DRAIN_INTERVAL).await;
        }
    };
    tokio::time::timeout(time, idle).await.is_ok()
}

async fn bind_address(host: &str, port: u16) -> Result<(Listener, SocketAddr), ServerError> {
    let failed = |source| ServerError::Bind { address: format!("{host}:{port}"), source };
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let listener = TcpListener::bind((name, port)).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((Listener::Tcp(listener), address))
}

/// Listens on a path. A socket that nobody listens on any more is replaced, anything else is not.
#[cfg(unix)]
async fn bind_path(path: &Path) -> Result<Listener, ServerError> {
    use std::os::unix::fs::FileTypeExt;
    let failed =
        |source| ServerError::Bind { address: format!("{UNIX}{}", path.display()), source };
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    if is_socket && tokio::net::UnixStream::connect(path).await.is_err() {
        std::fs::remove_file(path).map_err(failed)?;
    }
    tokio::net::UnixListener::bind(path).map(Listener::Unix).map_err(failed)
}

/// There are no such sockets here.
#[cfg(not(unix))]
async fn bind_path(path: &Path) -> Result<Listener, ServerError> {
    let source = std::io::Error::from(std::io::ErrorKind::Unsupported);
    Err(ServerError::Bind { address: format!("{UNIX}{}", path.display()), source })
}

/// Lets the preset hold that was chosen for the start.
fn select_preset(app: &App) -> Result<(), ServerError> {
    let sampling = &app.settings.sampling;
    let Some(name) = &sampling.override_preset else { return Ok(()) };
    let preset = presets::load(&sampling.preset_dir, name)
        .map_err(|error| ServerError::Preset { problem: error.message })?;
    app.presets.select(Some(Selected { name: Some(name.clone()), preset }));
    Ok(())
}
