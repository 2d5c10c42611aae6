//! Whole models: families against transformers, goldens, invariance, bad directories, progress.

#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

#[path = "../reference/mod.rs"]
mod reference;

mod adapters;
mod cpu;
mod directories;
mod directory;
mod draft;
mod experts;
mod families;
mod family_invariance;
mod forward;
mod golden;
mod integers;
mod invariance;
mod latent;
mod progress;
mod quirks;
mod small_floats;
mod synthetic;
mod unused;
