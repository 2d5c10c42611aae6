//! Files that other programs wrote, and files that nobody should write.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here is a failed test")]

mod awq;
mod compressed;
mod damaged_integers;
mod gptq_widths;
mod hostile_linears;
mod shared_models;
mod support;
