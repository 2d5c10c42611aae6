//! What goes over the wire whatever the route: JSON in, errors and events out, ids, dates.

pub mod date;
pub mod error;
pub mod id;
pub mod json;
pub mod nearest;
pub mod sse;
