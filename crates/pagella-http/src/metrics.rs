//! Counts of connections, requests and answers, and the text in which Prometheus reads counts.
//!
//! Every series is a fixed set of numbers made at the start; no text of a client becomes a label.

pub mod bounds;
mod form;
mod histogram;
mod http;
mod page;

pub use form::Form;
pub use histogram::Histogram;
pub use http::{Cause, HttpMetrics, RouteCounts, STATUSES};
pub use page::{Buckets, Page, escape};
