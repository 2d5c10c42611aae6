//! The server as a whole: from its settings to its end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use pagella_http::Phase;
use pagella_http::net::{Listening, ServerError};

use crate::app::App;
use crate::auth::Keys;
use crate::log::Log;
use crate::model::watch_idle;
use crate::presets::{self, Selected};
use crate::settings::Settings;

/// How often the end of running requests is looked for while draining.
const DRAIN_INTERVAL: Duration = Duration::from_millis(20);
/// How long cancelled requests may take to say so.
const CANCEL_TIME: Duration = Duration::from_secs(2);

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
    listening: Listening,
}

impl Server {
    /// Listens, so that an address in use is noticed before a model is loaded.
    pub async fn bind(settings: Settings, keys: Keys) -> Result<Self, ServerError> {
        let listening = Listening::bind::<App>(&settings).await?;
        let path = settings.logging.file.clone().unwrap_or_default();
        let log = Log::open(settings.logging.clone());
        let log = log.map_err(|source| ServerError::Log { path, source })?;
        let app = Arc::new(App::new(settings, log, keys, listening.address()));
        select_preset(&app)?;
        Ok(Server { app, listening })
    }

    /// Where it listens, for people.
    pub fn place(&self) -> String {
        self.listening.place()
    }

    /// Where counts alone are told, if that is a socket of its own.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.listening.metrics_address()
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
        let app = self.app;
        let serving = self.listening.serve(app.clone());
        let idling = tokio::spawn(watch_idle(app.clone()));
        tokio::spawn(app.wakes.forward());
        let mut phases = app.phases();
        // The sender lives in `app`, so waiting cannot fail.
        let _ = phases.wait_for(|phase| *phase >= Phase::Leaving).await;
        tokio::time::sleep(app.settings.shutdown.drain_delay).await;
        app.advance(Phase::Draining);
        app.model.cancel_load();
        serving.close();
        idling.abort();
        app.downloads.stop_all();
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

/// Lets the preset hold that was chosen for the start.
fn select_preset(app: &App) -> Result<(), ServerError> {
    let sampling = &app.settings.sampling;
    let Some(name) = &sampling.override_preset else { return Ok(()) };
    let preset = presets::load(&sampling.preset_dir, name)
        .map_err(|error| ServerError::Preset { problem: error.message })?;
    app.presets.select(Some(Selected { name: Some(name.clone()), preset }));
    Ok(())
}
