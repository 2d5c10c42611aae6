//! `?stream=1&interval=MS`: whether something is told once, or again and again.

use std::time::Duration;

use crate::fields::{out_of_range, wrong_type};
use crate::router::query_value;
use crate::wire::error::ApiError;

/// Times between two events, in milliseconds.
const MILLIS: std::ops::RangeInclusive<u64> = 250..=10_000;
/// Unless stated.
const MILLIS_DEFAULT: u64 = 1000;

/// How often something is told.
pub enum Interval {
    /// Once, as one body.
    Once,
    /// As a stream of events.
    Every(Duration),
}

/// Reads it from a query.
pub fn interval(query: &str) -> Result<Interval, ApiError> {
    match query_value(query, "stream").as_deref() {
        None | Some("0" | "false") => return Ok(Interval::Once),
        Some("1" | "true") => {}
        Some(_) => return Err(wrong_type("stream", "0 or 1")),
    }
    let millis = match query_value(query, "interval") {
        None => MILLIS_DEFAULT,
        Some(text) => text.parse().map_err(|_| wrong_type("interval", "a number"))?,
    };
    if !MILLIS.contains(&millis) {
        return Err(out_of_range("interval", "from 250 to 10000 ms"));
    }
    Ok(Interval::Every(Duration::from_millis(millis)))
}
