//! The sockets that listen.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::accept::{Entrance, HERE, Listener};
use super::connection::Door;
use super::service::Service;
use super::tls::Certificates;
use super::watch::watch;
use crate::Application;
use crate::auth::KeyFileError;
use crate::settings::Settings;

/// What a host begins with that is a path.
const UNIX: &str = "unix:";

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

/// Sockets that listen, and nobody who answers yet.
pub struct Listening {
    entrances: Vec<Entrance>,
    certificates: Option<Arc<Certificates>>,
    /// A socket in the file system, removed at the end.
    socket: Option<PathBuf>,
    address: SocketAddr,
}

/// Sockets whose clients are answered.
pub struct Serving {
    tasks: Vec<JoinHandle<()>>,
    socket: Option<PathBuf>,
}

impl Listening {
    /// Listens, as the settings of an application say.
    pub async fn bind<A: Application>(settings: &Settings) -> Result<Self, ServerError> {
        let network = &settings.network;
        let base = &network.base_path;
        if !base.is_empty() && (!base.starts_with('/') || base.ends_with('/')) {
            return Err(ServerError::BasePath { path: base.clone() });
        }
        let is_built = |family| A::routes().iter().any(|route| route.family() == Some(family));
        if let Some(family) = network.api_servers.iter().find(|family| !is_built(**family)) {
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
        Ok(Listening { entrances, certificates, socket, address })
    }

    /// Where it listens, for people.
    pub fn place(&self) -> String {
        match (&self.socket, &self.certificates) {
            (Some(path), _) => format!("{UNIX}{}", path.display()),
            (None, None) => format!("http://{}", self.address),
            (None, Some(_)) => format!("https://{}", self.address),
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

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers whoever comes, and follows files that change.
    pub fn serve<A: Application>(self, app: Arc<A>) -> Serving {
        let service = Service::new(app);
        let watching = tokio::spawn(watch(service.http.clone(), self.certificates));
        let serve = |entrance: Entrance| tokio::spawn(entrance.serve(service.clone()));
        let accepting = self.entrances.into_iter().map(serve);
        Serving { tasks: accepting.chain([watching]).collect(), socket: self.socket }
    }
}

impl Serving {
    /// Lets nobody in any more. Connections that are open go on.
    pub fn close(self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        if let Some(path) = &self.socket {
            // Whoever starts next removes it otherwise.
            let _ = std::fs::remove_file(path);
        }
    }
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
