//! A local LLM inference engine for EXL2 and GPTQ models.
//!
//! ```
//! use pagella::Engine;
//!
//! let engine = Engine::open("demo")?;
//! println!("{}", engine.complete("The `map()` method").max_tokens(20).text()?);
//!
//! let mut chat = engine.chat().max_tokens(20);
//! for event in chat.send("What is an array?")? {
//!     print!("{}", event?.text);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`Engine`] is an open model: cheap to clone, usable from any thread. [`Engine::builder`] has
//!   every choice: device, threads, arithmetic, cache.
//! - [`Complete`] is one prompt with its settings; [`Chat`] a conversation that remembers;
//!   [`Engine::generate`] and [`Batch`] many prompts at once.
//! - Answers carry their own counts and timings ([`Completion`]).
//! - [`EngineBuilder::load`] gives the model below the text, for programs that bring token ids: a
//!   [`Session`] is one sequence of them, a [`Generator`] any number of jobs;
//!   [`score`](pagella_engine::score) measures how likely a model finds them.
//! - [`command`] is the `pagella` program, with the feature `command`.
//! - [`hub`] knows the local Hugging Face cache and, with the feature `download`, how to fill it.
//!
//! Depend on it with `default-features = false`: the default features are the command and its server.
//!
//! The crates underneath can be used alone: `pagella-formats`, `pagella-arch`, `pagella-text`,
//! `pagella-backend`, `pagella-cpu`, `pagella-model`, `pagella-engine`.

#![forbid(unsafe_code)]

// The command was written as a user of the library, and still is.
#[cfg(feature = "command")]
extern crate self as pagella;

#[cfg(feature = "command")]
mod bandwidth;
mod batch;
mod builder;
mod chat;
#[cfg(feature = "command")]
pub mod command;
#[cfg(feature = "command")]
mod commands;
mod complete;
mod device;
mod devices;
mod engine;
mod error;
#[cfg(feature = "command")]
mod flags;
mod generation_config;
mod host_memory;
pub mod hub;
mod identity;
#[cfg(feature = "command")]
mod machine;
mod memory;
mod model_ref;
mod open_machine;
#[cfg(feature = "command")]
mod output;
mod placing;
#[cfg(feature = "command")]
mod printable;
mod split;
mod units;
#[cfg(feature = "command")]
mod usage;

pub use batch::{Batch, BatchItem};
pub use builder::{DEFAULT_CACHE_TOKENS, EngineBuilder, LoadedModel};
pub use chat::{Chat, ChatEvent, ChatStream};
pub use complete::Complete;
pub use device::{Device, Math, Place, UnknownName};
pub use devices::{DeviceShare, Devices};
pub use engine::{DraftFacts, Engine, EngineFacts};
pub use error::Error;
pub use generation_config::read as recommended_sampling;
pub use memory::{CudaLayout, MemoryNeed};
pub use model_ref::{BUNDLED, DEMO, resolve_model};
pub use split::{CpuLayers, Split};

pub use pagella_arch::RopeOverride;
pub use pagella_backend::KvFormat;
pub use pagella_conversation::{ConversationError, Part, TextModel, ToolCall};
pub use pagella_engine::constraint::ConstraintSpec;
pub use pagella_engine::pages::PageInfo;
pub use pagella_engine::{
    Adapter, Backpressure, Canceller, Completion, DraftDepth, DraftOptions, EngineError, EosReason,
    Generator, JobOptions, JobSpec, JobStream, LengthPolicy, Record, Reserve, SampleOptions,
    Session, Stage, Stats, Stored, StreamGranularity, TokenLogprobs, Worker,
};
pub use pagella_model::place::{PlacedPart, Placement};
pub use pagella_model::{LoadProgress, MemoryReport};
pub use pagella_text::{AddBos, BanPattern, BanRule, ChatTemplate, Message, Tokenizer};

/// The examples of the guides are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/library.md")]
#[doc = include_str!("../../../docs/batching.md")]
struct Guides;
