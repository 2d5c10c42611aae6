//! Adapters: those in the folder, those of a model that answers, and those that a request asks for.
//!
//! - `folder`: what is on disk;
//! - `loaded`: what a model has in memory, in which order, with which scales, and which of them are its
//!   default set; `change`: how they come and go;
//! - `choice`: what a request is answered with.
//!
//! What always holds:
//! - A request has its adapters from the moment it is read; what is unloaded meanwhile stays for it.
//! - A load that fails changes nothing: neither what is loaded nor what is the default set.
//! - An adapter is loaded because an administrator or the configuration says so, never by a request.

mod change;
mod choice;
mod folder;
mod loaded;

pub use change::{Changed, LoadMode, find, load, load_all, set_default, unload};
pub use choice::{ADAPTERS_MAX, ChosenAdapters, Signature, choose, refuse_named, unknown};
pub use folder::{KnownAdapter, list};
pub use loaded::{LoadedAdapter, LoadedAdapters, OperatorAdapter};
pub use pagella_http::adapter_entry::{AdapterEntry, AdapterLoad, Which, entries};
