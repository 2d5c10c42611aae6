//! What all requests share: what HTTP needs, the model, counters. One value per server.

use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;

pub use pagella_http::Phase;
use pagella_http::{Application, HttpState};
use serde_json::Value;

use crate::auth::Keys;
use crate::downloads::Downloads;
use crate::fields::{Field, Rules};
use crate::generate::parameters;
#[cfg(feature = "kobold")]
use crate::kobold::Genkeys;
use crate::log::Log;
use crate::metrics::Metrics;
use crate::model::{LoadOptions, ModelParts, Models, ServedModel, place};
use crate::presets::Presets;
use crate::requests::Requests;
use crate::responses::Store;
use crate::route::Route;
use crate::router::{self, ROUTES};
use crate::routes::docs::Described;
use crate::settings::Settings;
use crate::ui_store::UiStore;
use crate::wakes::Wakes;
use crate::wire::error::Dialect;

/// What all requests share.
pub struct App {
    /// What of it has to do with HTTP: settings, keys, limits, logs.
    pub http: Arc<HttpState>,
    /// The models that answer.
    pub model: Models,
    /// What is counted.
    pub metrics: Metrics,
    /// Requests that live.
    pub requests: Requests,
    /// Answers of Kobold's clients, by the names they gave them.
    #[cfg(feature = "kobold")]
    pub genkeys: Genkeys,
    /// What is put below and above the fields of requests.
    pub presets: Presets,
    /// Models on their way here.
    pub downloads: Downloads,
    /// The description of the routes.
    pub described: Described,
    /// Responses that are kept.
    pub responses: Store,
    /// What the page keeps here.
    pub ui_store: UiStore,
    /// How engines wake streams.
    pub(crate) wakes: Wakes,
}

/// Handlers and models use what HTTP needs as they use the rest.
impl Deref for App {
    type Target = HttpState;

    fn deref(&self) -> &HttpState {
        &self.http
    }
}

impl Rules for App {
    fn field(name: &str) -> Option<Field> {
        parameters::field(name)
    }
}

impl Application for App {
    fn http(&self) -> &Arc<HttpState> {
        &self.http
    }

    fn routes() -> &'static [Route] {
        ROUTES
    }

    fn dialect_beside(path: &str) -> Dialect {
        router::dialect_beside(path)
    }
}

impl App {
    /// A server that is about to begin.
    pub fn new(settings: Settings, log: Log, keys: Keys, bound: SocketAddr) -> Self {
        App {
            model: Models::default(),
            metrics: Metrics::default(),
            requests: Requests::default(),
            #[cfg(feature = "kobold")]
            genkeys: Genkeys::default(),
            presets: Presets::default(),
            downloads: Downloads::default(),
            described: Described::default(),
            responses: Store::new(&settings.responses),
            ui_store: UiStore::new(&settings.ui),
            wakes: Wakes::default(),
            http: Arc::new(HttpState::new::<App>(settings, log, keys, bound)),
        }
    }

    /// Lets an open model answer, as the current one.
    pub fn serve(self: &Arc<Self>, parts: ModelParts) -> io::Result<()> {
        let options = LoadOptions::default();
        let model = ServedModel::new(parts, options.conversation.clone())?;
        place(self, Arc::new(model), options)
    }

    /// Tells that something happened to a model.
    pub fn model_event(&self, id: &str, mut data: Value) {
        data["model"] = id.into();
        self.events.send("model_status", data);
    }
}
