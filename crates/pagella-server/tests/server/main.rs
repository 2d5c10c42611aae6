//! The server as clients see it: real sockets, the demo model.

#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

mod access;
mod cancel;
mod chat;
mod completions;
mod download;
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
mod line;
mod liveness;
mod load;
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
mod sameness;
mod shape;
mod shutdown;
mod support;
mod tls;
mod token;
mod tools;
mod ui;
mod watched;
