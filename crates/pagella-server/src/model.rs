//! Models: which there are, which answer, and how they come and go.
//!
//! Opening one is the business of whoever starts the server: here nothing is known of files and
//! devices, only a [`ModelOpener`]. [`Models`] keeps those that answer; a [`Load`] is one on its way;
//! `change.rs` does the loading and unloading, `restart.rs` what follows a failure of an engine,
//! `successor.rs` what follows when the device is lost with it, `resolve.rs` says which model a request means.
//!
//! What always holds:
//! - Only one model is loaded at a time.
//! - A model that has left the registry answers nobody any more, and its memory is returned before the
//!   next one is opened in its place.
//! - A load that fails leaves nothing behind.

mod change;
mod conversation;
mod draft;
mod file;
mod idle;
mod load;
mod observe;
mod open;
mod options;
mod plan;
mod pulse;
mod registry;
mod resolve;
mod restart;
mod served;
mod successor;

pub use change::{LoadAsk, Unload, UnloadMode, begin_load, load_at_start, place, preview, unload};
pub use conversation::{ConversationOptions, describe as describe_conversation};
pub use draft::DraftLoad;
pub use file::effective_options;
pub use idle::watch as watch_idle;
pub use load::{Followed, Follower, LoadOrigin};
pub use open::{KnownModel, LoadStep, ModelFile, ModelOpener, OpenError};
#[cfg(test)]
pub use options::OptionsBody;
pub use options::{ForeignFields, LoadOptions, OptionFields};
pub use pagella_http::settings::DraftTokens;
pub use plan::{DevicePlan, MemoryPlan};
pub use registry::{Models, Slot};
pub use resolve::{meant, resolve};
pub use served::{
    ActiveTemplate, Closing, DraftFacts, EmbeddingFacts, Judge, JudgeForm, ModelFacts, ModelParts,
    RerankFacts, ServedModel, Verdict, constraint_refusal,
};
pub use successor::{Legacy, LegacyModel, Replace, succeed};
