//! The HTTP server: everything between a socket and the engine's handle.
//!
//! What of it is HTTP stands below, in `pagella_http`: connections, routing, keys, bodies, errors,
//! settings. Its modules are used here under their own names. The way of a request from there:
//!
//! 1. the row of the table that its path leads to says what answers (`router`);
//! 2. a conversation becomes ids (`chat`), fields become a job (`generate`);
//! 3. it is let in or refused, and the engine computes;
//! 4. its records become an answer, whole or piece by piece (`routes`, and a folder for each dialect).
//!
//! What always holds:
//! - No input stops the engine or another request; a panic is answered and ends one request.
//! - Whoever goes away costs nothing after the next step: everything a request holds is held by the
//!   future that answers it, and goes with it.
//! - Nothing that changes the output is ignored in silence.
//! - The server never opens a connection by itself.
//!
//! What a model is made of is not known here: whoever starts the server hands in a [`ModelOpener`].

#![forbid(unsafe_code)]
// Only WebSockets go on with a connection.
#![cfg_attr(not(feature = "ws"), allow(dead_code, unused_imports))]

mod adapters;
mod app;
mod chat;
mod embeddings;
mod generate;
#[cfg(feature = "kobold")]
mod kobold;
mod llamacpp;
mod messages;
mod metrics;
mod model;
mod ollama;
mod openapi;
mod presets;
mod refused;
mod requests;
mod rerank;
mod responses;
mod router;
mod routes;
mod server;
mod templates;
mod ui;
mod wakes;
#[cfg(feature = "ws")]
mod ws;

/// Requests on their way to the handlers of this server.
mod call {
    pub use pagella_http::call::{Ignored, Reply};
    /// A request whose sender is known and may ask this.
    pub type Call = pagella_http::call::Call<crate::App>;
}

/// Rows of the table of this server.
mod route {
    pub use pagella_http::route::*;
    /// One row.
    pub type Route = pagella_http::route::Route<crate::App>;
}

use pagella_http::{
    access, admission, auth, caught, downloads, exchange, fields, log, net, ui_store, whole_pages,
    wire,
};
pub use pagella_http::{config, name, settings};

pub use adapters::{AdapterLoad, OperatorAdapter};
pub use app::App;
pub use auth::{
    CacheScope, Key, KeyFileError, Keys, Role, create as create_keys, file_in_use as keys_in_use,
    is_open_to_others as keys_open_to_others, load as load_keys,
};
pub use downloads::{FetchError, FetchProgress, Fetcher, Order, Secret};
pub use model::{
    ActiveTemplate, ConversationOptions, DevicePlan, DraftFacts, DraftLoad, DraftTokens,
    EmbeddingFacts, Judge, JudgeForm, KnownModel, Legacy, LegacyModel, LoadAsk, LoadOptions,
    LoadOrigin, LoadStep, MemoryPlan, ModelFacts, ModelFile, ModelOpener, ModelParts, Models,
    OpenError, Replace, RerankFacts, ServedModel, Slot, Verdict, begin_load, load_at_start,
    succeed,
};
pub use net::ServerError;
pub use openapi::text as openapi_text;
pub use route::{Access, Route};
pub use router::ROUTES;
pub use server::{Server, Shutdown};
pub use settings::Settings;
pub use whole_pages::{PartialPage, whole_pages};
