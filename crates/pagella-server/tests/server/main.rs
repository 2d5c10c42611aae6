//! The server as clients see it: real sockets, the demo model.

mod access;
mod chat;
mod completions;
mod download;
mod field;
mod folder;
mod hang_up;
mod http;
mod inline_load;
mod load;
mod metrics;
mod model;
mod pages;
mod preset;
mod reload;
mod resident;
mod restart;
mod resume;
mod shape;
mod shutdown;
mod support;
mod tls;
mod token;
