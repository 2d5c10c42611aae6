//! The command as a user runs it: the built binary, on the demo model.

// Helpers of tests fail by panicking, like the tests themselves.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used)]

mod batch;
mod bench;
mod chat;
mod config;
mod constrain;
mod devices;
mod golden;
mod hostile;
mod inspect;
mod jsonl;
mod list;
mod memory;
mod network;
mod ppl;
mod pull;
mod quantize;
mod report;
mod run;
mod sampling;
mod sequence;
mod serve;
mod serve_draft;
mod shell;
mod support;
mod tokens;
mod usage;
