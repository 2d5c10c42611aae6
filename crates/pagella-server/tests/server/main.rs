//! The server as clients see it: real sockets, the demo model.

mod access;
mod chat;
mod completions;
mod field;
mod hang_up;
mod http;
mod model;
mod shape;
mod shutdown;
mod support;
mod token;
