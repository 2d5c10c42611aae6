//! Requests by route: how many, how long, how large; and what went wrong with them. Fixed places made at the start, so neither
//! counting nor telling takes a lock, and no text of a client becomes a label.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::bounds::{BYTES, FIRST_TOKEN};
use super::histogram::Histogram;
use crate::access::Progress;
use crate::wire::error::Code;

/// Statuses that are told apart; the last one stands for all others.
pub const STATUSES: &[u16] = &[
    200, 204, 400, 401, 403, 404, 405, 408, 409, 411, 413, 414, 415, 426, 429, 431, 499, 500, 501,
    503, 504, 529, 0,
];

/// Why a request ended before its answer did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Its client went away.
    Disconnect,
    /// Someone asked for its end.
    Asked,
}

impl Cause {
    /// Every cause.
    pub const ALL: [Cause; 2] = [Cause::Disconnect, Cause::Asked];

    /// For labels.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Disconnect => "disconnect",
            Cause::Asked => "asked",
        }
    }
}

/// Counts of one route.
pub struct RouteCounts {
    /// Method and path; `<unmatched>` for paths that do not exist.
    pub labels: (&'static str, &'static str),
    /// By status.
    pub statuses: Vec<AtomicU64>,
    /// Being answered now.
    pub in_flight: AtomicU64,
    /// Seconds.
    pub time: Histogram,
}

/// Counts of all routes.
pub struct HttpMetrics {
    routes: Vec<RouteCounts>,
    /// Bytes of bodies.
    pub body_bytes: Histogram,
    /// Clients that did not read their answer.
    pub stalls: Arc<AtomicU64>,
    /// Connections of addresses that had too many.
    pub refused_connections: AtomicU64,
    /// Refused requests by reason.
    pub rejected: Vec<AtomicU64>,
    /// Requests that ended early, by phase and cause.
    pub cancelled: [[AtomicU64; Cause::ALL.len()]; Progress::ALL.len()],
    /// Handlers that had a defect.
    pub panics: AtomicU64,
    /// Requests and tokens by key, where the operator wants them.
    pub keys: Mutex<BTreeMap<String, (u64, u64)>>,
}

impl HttpMetrics {
    /// Of a server with these routes, by method and path.
    pub fn new(paths: impl Iterator<Item = (&'static str, &'static str)>) -> Self {
        let counts = |labels| RouteCounts {
            labels,
            statuses: STATUSES.iter().map(|_| AtomicU64::new(0)).collect(),
            in_flight: AtomicU64::new(0),
            time: Histogram::new(FIRST_TOKEN),
        };
        let routes = paths.chain([("-", "<unmatched>")]).map(counts).collect();
        HttpMetrics {
            routes,
            body_bytes: Histogram::new(BYTES),
            stalls: Arc::default(),
            refused_connections: AtomicU64::new(0),
            rejected: Code::ALL.iter().map(|_| AtomicU64::new(0)).collect(),
            cancelled: [const { [const { AtomicU64::new(0) }; Cause::ALL.len()] };
                Progress::ALL.len()],
            panics: AtomicU64::new(0),
            keys: Mutex::default(),
        }
    }
}

/// One more.
fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Whether a route is for those who watch, so that counting it would drown everything else.
fn is_watching(path: &str) -> bool {
    let of = |prefix: &str| path == prefix || path.starts_with(&format!("{prefix}/"));
    ["/health", "/v1/health", "/metrics", "/docs", "/openapi.json", "/ui"].iter().any(|p| of(p))
        || path == "/"
}

impl HttpMetrics {
    /// The counts of a route; `None` for those that are not counted.
    fn of(&self, route: Option<(&str, &str)>) -> Option<&RouteCounts> {
        let Some(route) = route else { return self.routes.last() };
        let same = |counts: &&RouteCounts| counts.labels == route;
        if is_watching(route.1) { None } else { self.routes.iter().find(same) }
    }

    /// A request has come.
    pub fn begin(&self, route: Option<(&str, &str)>) {
        if let Some(counts) = self.of(route) {
            counts.in_flight.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Its answer has ended.
    pub fn end(&self, route: Option<(&str, &str)>, status: u16, time: Duration) {
        let Some(counts) = self.of(route) else { return };
        counts.in_flight.fetch_sub(1, Ordering::Relaxed);
        counts.time.note(time.as_secs_f64());
        let place = STATUSES.iter().position(|known| *known == status);
        if let Some(count) = counts.statuses.get(place.unwrap_or(STATUSES.len() - 1)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A request was refused, or failed.
    pub fn note_rejected(&self, code: Code) {
        if let Some(idx) = Code::ALL.iter().position(|known| *known == code) {
            self.rejected.get(idx).into_iter().for_each(add);
        }
    }

    /// A connection was refused because its address has too many.
    pub fn note_refused_connection(&self) {
        add(&self.refused_connections);
    }

    /// A request ended before its answer did.
    pub fn note_cancelled(&self, phase: Progress, cause: Cause) {
        add(&self.cancelled[phase as usize][cause as usize]);
    }

    /// A handler had a defect.
    pub fn note_panic(&self) {
        add(&self.panics);
    }

    /// A request of a key has ended. Keys are few: they are those of the operator's file.
    pub fn note_key(&self, key: &str, tokens: usize) {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let (requests, sum) = keys.entry(key.to_owned()).or_default();
        *requests += 1;
        *sum += tokens as u64;
    }

    /// Routes that were asked for.
    pub fn used(&self) -> impl Iterator<Item = &RouteCounts> {
        let used = |counts: &&RouteCounts| {
            counts.in_flight.load(Ordering::Relaxed) > 0 || counts.time.count() > 0
        };
        self.routes.iter().filter(used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_cardinality() {
        let metrics = HttpMetrics::new([("GET", "/one"), ("POST", "/one")].into_iter());
        let places = metrics.routes.iter().map(|counts| counts.statuses.len()).sum::<usize>();
        for status in 0..1000 {
            metrics.begin(None);
            metrics.end(None, status, Duration::ZERO);
        }
        let after = metrics.routes.iter().map(|counts| counts.statuses.len()).sum::<usize>();
        assert_eq!((places, metrics.routes.len()), (after, 3));
        assert_eq!(metrics.used().count(), 1);
    }

    #[test]
    fn every_status_that_an_error_has_is_told_apart() {
        for code in crate::wire::error::Code::ALL {
            assert!(STATUSES.contains(&code.status().as_u16()), "{code:?}");
        }
    }
}
