//! What all requests share, as far as HTTP goes: settings, keys, limits, logs, counts. One value per
//! server, within whatever else its handlers share.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Instant, SystemTime};

use http::HeaderMap;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::Application;
use crate::admission::Admission;
use crate::auth::{self, Caller, Failures, KeyFileError, Keys};
use crate::blocking::Blocking;
use crate::config::{Change, Config, ConfigError, Source};
use crate::detached::Detached;
use crate::events::Events;
use crate::exchange::Exchange;
use crate::log::Log;
use crate::metrics::HttpMetrics;
use crate::net::Sockets;
use crate::route::{Access, Route};
use crate::settings::{CacheIsolation, DocsAuth, LiveSettings, MetricsAuth, Settings};
use crate::wire::error::{ApiError, Code};

/// How far the server is with ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// It serves.
    Serving,
    /// It says that it is not ready, and still accepts.
    Leaving,
    /// What runs goes on, what waits is refused.
    Draining,
    /// What still runs is cancelled.
    Cancelling,
}

/// What all requests share.
pub struct HttpState {
    /// What the operator chose.
    pub settings: LiveSettings,
    /// Where events go.
    pub log: Log,
    /// What happens, for whoever listens.
    pub events: Events,
    /// Who may start, who waits.
    pub admission: Admission,
    /// Threads for work that is not moving bytes.
    pub blocking: Blocking,
    /// What is counted of connections, requests and answers.
    pub http_metrics: HttpMetrics,
    /// Streams that go on without their connection.
    pub detached: Detached,
    /// The code that a person at the terminal has, and the key it was given for.
    pub exchange: Exchange,
    /// WebSockets that are open.
    pub sockets: Sockets,
    /// Where the server listens.
    pub bound: SocketAddr,
    /// When it began.
    pub started: Instant,
    phase: watch::Sender<Phase>,
    keys: RwLock<Arc<Keys>>,
    failures: Failures,
    /// Where the settings came from, so that they can be read again.
    config: Mutex<Option<(Source, Config)>>,
}

impl HttpState {
    /// Of a server that is about to begin.
    pub fn new<A: Application>(
        settings: Settings,
        log: Log,
        keys: Keys,
        bound: SocketAddr,
    ) -> Self {
        HttpState {
            log,
            events: Events::default(),
            admission: Admission::new(&settings.limits),
            blocking: Blocking::new(&settings.limits),
            http_metrics: HttpMetrics::new(A::routes().iter().map(Route::labels)),
            detached: Detached::default(),
            exchange: Exchange::default(),
            sockets: Sockets::default(),
            bound,
            started: Instant::now(),
            phase: watch::Sender::new(Phase::Serving),
            keys: RwLock::new(Arc::new(keys)),
            failures: Failures::default(),
            config: Mutex::default(),
            settings: LiveSettings::new(settings),
        }
    }

    /// How far the server is with ending.
    pub fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Follows the end of the server.
    pub fn phases(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// Goes on to a later phase; never back.
    pub fn advance(&self, phase: Phase) {
        self.phase.send_if_modified(|now| {
            let later = phase > *now;
            *now = phase.max(*now);
            later
        });
    }

    fn keys(&self) -> Arc<Keys> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the file of keys again. A file that is wrong changes nothing.
    pub fn reload_keys(&self) -> Result<(), KeyFileError> {
        if self.settings.network.disable_auth {
            return Ok(());
        }
        let keys = auth::load(&self.settings.auth)?;
        let n = keys.len();
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
        self.log.info("keys_reload", &[("keys", n.into())]);
        self.events.send("keys_reload", json!({ "keys": n }));
        Ok(())
    }

    /// Says where the settings came from; from now on they can be read again.
    pub fn configured_by(&self, source: Source, config: Config) {
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = Some((source, config));
    }

    /// The file that the settings came from, if there is one.
    pub fn config_file(&self) -> Option<std::path::PathBuf> {
        let config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        config.as_ref()?.0.path()
    }

    /// Reads the settings again: those that can change do, a file that is wrong changes nothing.
    pub fn reload_config(&self) -> Result<Change, ConfigError> {
        let mut config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((source, before)) = config.as_mut() else { return Ok(Change::default()) };
        let newer = source.load()?;
        let (settings, change) = before.follow(&newer, &self.settings);
        *before = newer;
        if !change.changed.is_empty() {
            self.settings.change(settings);
            self.admission.set_limits(&self.settings.limits);
            self.blocking.set_limits(&self.settings.limits);
            self.log.set(&self.settings.logging);
        }
        drop(config);
        let list = |keys: &[String]| Value::from(keys.join(","));
        let fields = [("changed", list(&change.changed)), ("at_next_start", list(&change.later))];
        self.log.info("config_reload", &fields);
        let data = json!({ "changed": change.changed, "at_next_start": change.later });
        self.events.send("config_reload", data);
        Ok(change)
    }

    /// Who may ask for a route here.
    pub fn access<A>(&self, route: &Route<A>) -> Access {
        match (route.access, self.settings.metrics.auth) {
            (Access::Metrics, MetricsAuth::None) => Access::Public,
            (Access::Metrics, MetricsAuth::Admin) => Access::Admin,
            (Access::Docs, _) => match self.settings.network.docs_auth {
                DocsAuth::None => Access::Public,
                DocsAuth::Api => Access::Api,
                DocsAuth::Admin => Access::Admin,
            },
            (access, _) => access.here(self.bound.ip().is_loopback()),
        }
    }

    /// Refuses a route whose family the operator did not choose.
    pub fn check_served<A>(&self, route: &Route<A>) -> Result<(), ApiError> {
        match route.family() {
            Some(family) if !self.settings.network.api_servers.contains(&family) => {
                let name = family.name();
                let message =
                    format!("this interface is switched off: add {name:?} to network.api_servers");
                Err(ApiError::new(Code::FeatureDisabled, message))
            }
            _ => Ok(()),
        }
    }

    /// Who asks; counts failures of the peer.
    pub fn identify(&self, headers: &HeaderMap, peer: SocketAddr) -> Result<Caller, ApiError> {
        if self.settings.network.disable_auth {
            return Ok(Caller::open());
        }
        let now = SystemTime::now();
        let found = self.keys().identify(headers, now);
        let found = found.or_else(|error| self.exchange.identify(headers, now).ok_or(error));
        let Err(error) = found else { return found };
        Err(self.refuse_peer(peer, error))
    }

    /// Counts a failure of a peer; with too many, the error says so instead.
    pub fn refuse_peer(&self, peer: SocketAddr, error: ApiError) -> ApiError {
        match self.failures.note(peer.ip(), Instant::now()) {
            None => error,
            Some(wait) => {
                let message = "too many requests without a valid key: wait a minute";
                ApiError::new(Code::TooManyRequests, message).retry_after(wait)
            }
        }
    }

    /// Whether keys are kept apart in the prompt cache.
    pub fn isolates_keys(&self) -> bool {
        match self.settings.auth.cache_isolation {
            CacheIsolation::None => false,
            CacheIsolation::Key => true,
            CacheIsolation::Auto => !self.bound.ip().is_loopback() && self.keys().len() > 1,
        }
    }

    /// Notes something that went wrong inside.
    pub fn issue(&self, what: &str, detail: &str) {
        self.log.warn("issue", &[("what", what.into()), ("detail", Value::from(detail))]);
    }
}
