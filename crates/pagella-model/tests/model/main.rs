//! Whole models: families against transformers, goldens, invariance, bad directories, progress.

#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

#[path = "../reference/mod.rs"]
mod reference;

mod directories;
mod directory;
mod families;
mod forward;
mod progress;
mod synthetic;
