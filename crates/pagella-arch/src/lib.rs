//! `config.json` to [`ModelSpec`]: one small file per model family.

#![forbid(unsafe_code)]

pub mod spec;

pub use spec::*;
