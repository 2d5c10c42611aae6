//! The server as clients see it: real sockets, the demo model.

// Bodies of real clients have more fields than `json!` takes by default.
#![recursion_limit = "256"]
#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

mod access;
mod adapters;
mod cancel;
mod chat;
mod client_bodies;
mod completions;
mod download;
mod draft;
mod embeddings;
mod field;
mod folder;
mod gate;
mod hang_up;
mod hardening;
mod hostile;
mod http;
mod incident;
mod inline_load;
mod kobold;
mod limits;
mod line;
mod liveness;
mod llamacpp;
mod load;
mod load_conversation;
mod log;
mod messages;
mod metrics;
mod model;
mod neutral;
mod ollama;
mod operator;
mod packaging;
mod pages;
mod preset;
mod reasoning;
mod reload;
mod rerank;
mod resident;
mod responses;
mod restart;
mod resume;
mod sameness;
mod shape;
mod shutdown;
mod slots;
mod successor;
mod support;
mod tls;
mod token;
mod tool_arguments;
mod tools;
mod ui;
mod ui_store;
mod watched;
mod ws;
