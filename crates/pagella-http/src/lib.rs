//! HTTP as Pagella's server speaks it: everything between a socket and a handler that knows its sender.
//!
//! The way of a request:
//!
//! 1. a connection with deadlines reads it ([`net`]);
//! 2. the table says who may ask and what answers ([`router`], one [`route`] a row), keys say who asks
//!    ([`auth`]);
//! 3. it is a [`call`](call::Call) that a handler is given: its body becomes JSON ([`wire`]), and its
//!    fields structs that describe themselves ([`fields`]);
//! 4. heavy work waits for a thread ([`blocking`]), and whoever computes for long for its turn
//!    ([`admission`]);
//! 5. the answer is whole or comes piece by piece ([`wire::sse`]), also after its connection was lost
//!    ([`detached`]); how it ended is written down ([`access`], [`log`]) and counted ([`metrics`]).
//!
//! What an operator chooses is declared once ([`settings`]) and read from files, variables and flags
//! ([`config`]). The table has all keys of the server: one file is one file to its operator. What those
//! of models mean is not known here; to this crate they are names, numbers and texts.
//!
//! What computes answers is not known here either: it is an [`Application`], which brings the table of
//! routes and what their handlers share, and keeps a [`HttpState`] within it.
//!
//! What always holds:
//! - Nothing of a body is read before the sender is known, and no handler runs that the sender may not
//!   call.
//! - A panic in a handler is answered and ends one request.
//! - Whoever goes away takes with it everything its request holds.
//! - No connection is opened from here.

#![forbid(unsafe_code)]

pub mod access;
pub mod adapter_entry;
pub mod admission;
mod application;
pub mod auth;
pub mod blocking;
pub mod call;
pub mod caught;
pub mod config;
pub mod detached;
pub mod downloads;
pub mod events;
pub mod exchange;
pub mod fields;
pub mod log;
pub mod metrics;
pub mod name;
pub mod net;
pub mod openapi;
pub mod route;
pub mod router;
pub mod settings;
mod state;
pub mod ui_store;
pub mod whole_pages;
pub mod wire;

pub use application::Application;
pub use settings::Settings;
pub use state::{HttpState, Phase};
