//! What answers, one file per endpoint, and the rows of those that are no family of their own.

mod body;
pub(crate) mod card;
pub mod chat;
pub mod completions;
pub mod control;
pub mod docs;
pub mod download;
pub mod events;
pub mod health;
mod interval;
pub mod list;
pub mod load;
pub mod lora;
pub mod metrics;
pub mod model;
pub(crate) mod model_name;
pub mod pages;
pub mod parameters;
pub mod permission;
pub mod requests;
pub mod sampling_override;
pub mod service_info;
pub mod slots;
pub mod stats;
pub mod stream;
pub(crate) mod streamed;
mod table;
pub mod template;
pub mod token;
pub mod ui;
pub mod ui_store;
pub mod unload;

pub use table::ROUTES;
