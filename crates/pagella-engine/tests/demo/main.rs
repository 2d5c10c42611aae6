//! The generator over the bundled demo model on the CPU: the same promises as on the checksum model,
//! with real logits, real text and every cache format.

#![allow(clippy::unwrap_used, clippy::panic)] // Support code of tests.

mod adapters;
mod devices;
mod drafting;
mod families;
mod invariance;
mod schema;
#[path = "../support/schemas.rs"]
mod schemas;
mod support;
