//! The quantiser as a whole, on tiny models of several families.

#![allow(clippy::unwrap_used, clippy::panic, clippy::result_large_err, reason = "these are tests")]

mod families;
mod invariants;
mod measurements;
mod resume;
mod source;
