//! The HTTP server: everything between a socket and the engine's handle.
//!
//! The way of a request:
//!
//! 1. a connection with deadlines reads it (`net`);
//! 2. the table says who may ask and what answers (`router`), keys say who asks (`auth`);
//! 3. the body becomes JSON (`wire`), and its fields structs (`fields`);
//! 4. a conversation becomes ids (`chat`), fields become a job (`generate`);
//! 5. it is let in or refused (`admission`), and the engine computes;
//! 6. its records become an answer, whole or piece by piece (`routes`).
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

mod access;
mod admission;
mod app;
mod auth;
mod blocking;
mod call;
mod caught;
mod chat;
pub mod config;
mod detached;
mod downloads;
mod embeddings;
mod events;
mod exchange;
mod fields;
mod generate;
#[cfg(feature = "kobold")]
mod kobold;
mod llamacpp;
mod log;
mod messages;
mod metrics;
mod model;
pub mod name;
mod net;
mod ollama;
mod openapi;
mod presets;
mod requests;
mod rerank;
mod responses;
mod route;
mod router;
mod routes;
pub mod settings;
mod templates;
mod ui;
mod ui_store;
mod wakes;
mod whole_pages;
mod wire;
#[cfg(feature = "ws")]
mod ws;

pub use app::App;
pub use auth::{
    CacheScope, Key, KeyFileError, Keys, Role, create as create_keys, file_in_use as keys_in_use,
    is_open_to_others as keys_open_to_others, load as load_keys,
};
pub use downloads::{FetchError, FetchProgress, Fetcher, Order, Secret};
pub use model::{
    ActiveTemplate, ConversationOptions, DevicePlan, EmbeddingFacts, Judge, JudgeForm, KnownModel,
    Legacy, LegacyModel, LoadAsk, LoadOptions, LoadOrigin, LoadStep, MemoryPlan, ModelFacts,
    ModelFile, ModelOpener, ModelParts, Models, OpenError, Replace, RerankFacts, ServedModel, Slot,
    Verdict, begin_load, load_at_start, succeed,
};
pub use net::{Server, ServerError, Shutdown};
pub use openapi::text as openapi_text;
pub use route::{Access, Route};
pub use router::ROUTES;
pub use settings::Settings;
pub use whole_pages::{PartialPage, whole_pages};
