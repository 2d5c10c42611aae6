//! Tokenizers, templates and model folders as other programs see them, and as nobody should write them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here is a failed test")]

mod conformance;
mod hostile_templates;
mod malformed;
mod properties;
mod resolution;
mod support;
mod templates;
