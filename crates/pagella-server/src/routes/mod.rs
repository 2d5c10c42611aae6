//! What answers, one file per endpoint. The table is in `router.rs`.

mod card;
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
mod model_name;
pub mod pages;
pub mod permission;
pub mod requests;
pub mod sampling_override;
pub mod service_info;
pub mod stats;
pub mod stream;
mod streamed;
pub mod template;
pub mod token;
pub mod ui;
pub mod unload;
