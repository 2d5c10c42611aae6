//! The server as clients see it: real sockets, the demo model.

mod access;
mod chat;
mod completions;
mod field;
mod folder;
mod hang_up;
mod http;
mod inline_load;
mod load;
mod model;
mod pages;
mod resident;
mod restart;
mod shape;
mod shutdown;
mod support;
mod token;
