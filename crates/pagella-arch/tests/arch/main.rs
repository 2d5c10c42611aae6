//! What families make of configs, tensors and rotary tables.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here is a failed test")]

mod defaults;
mod descriptor;
mod docs;
mod hostile;
mod quirks;
mod recipe;
mod rope;
mod support;
mod tensors;
