//! The server as clients see it: real sockets, the demo model.

#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

mod access;
mod chat;
mod completions;
mod download;
mod embeddings;
mod field;
mod folder;
mod hang_up;
mod hardening;
mod http;
mod inline_load;
mod kobold;
mod limits;
mod load;
mod load_conversation;
mod log;
mod messages;
mod metrics;
mod model;
mod operator;
mod packaging;
mod pages;
mod preset;
mod reasoning;
mod reload;
mod resident;
mod responses;
mod restart;
mod resume;
mod shape;
mod shutdown;
mod slots;
mod successor;
mod support;
mod tls;
mod token;
mod tools;
mod ui;
mod ui_store;
mod watched;
