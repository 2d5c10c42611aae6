//! Requests by route: how many, how long, how large. Fixed places made at the start, so neither
//! counting nor telling takes a lock, and no text of a client becomes a label.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::bounds::{BYTES, FIRST_TOKEN};
use super::histogram::Histogram;
use crate::route::Route;
use crate::router::ROUTES;

/// Statuses that are told apart; the last one stands for all others.
pub const STATUSES: &[u16] = &[
    200, 204, 400, 401, 403, 404, 405, 408, 409, 411, 413, 414, 415, 426, 429, 431, 499, 500, 501,
    503, 504, 529, 0,
];

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
}

impl Default for HttpMetrics {
    fn default() -> Self {
        let named = ROUTES.iter().map(|route| (route.method, route.path));
        let counts = |labels| RouteCounts {
            labels,
            statuses: STATUSES.iter().map(|_| AtomicU64::new(0)).collect(),
            in_flight: AtomicU64::new(0),
            time: Histogram::new(FIRST_TOKEN),
        };
        let routes = named.chain([("-", "<unmatched>")]).map(counts).collect();
        HttpMetrics { routes, body_bytes: Histogram::new(BYTES) }
    }
}

/// Whether a route is for those who watch, so that counting it would drown everything else.
fn is_watching(path: &str) -> bool {
    let of = |prefix: &str| path == prefix || path.starts_with(&format!("{prefix}/"));
    ["/health", "/v1/health", "/metrics", "/docs", "/openapi.json", "/ui"].iter().any(|p| of(p))
        || path == "/"
}

impl HttpMetrics {
    /// The counts of a route; `None` for those that are not counted.
    fn of(&self, route: Option<&'static Route>) -> Option<&RouteCounts> {
        let Some(route) = route else { return self.routes.last() };
        let same = |counts: &&RouteCounts| counts.labels == (route.method, route.path);
        if is_watching(route.path) { None } else { self.routes.iter().find(same) }
    }

    /// A request has come.
    pub fn begin(&self, route: Option<&'static Route>) {
        if let Some(counts) = self.of(route) {
            counts.in_flight.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Its answer has ended.
    pub fn end(&self, route: Option<&'static Route>, status: u16, time: Duration) {
        let Some(counts) = self.of(route) else { return };
        counts.in_flight.fetch_sub(1, Ordering::Relaxed);
        counts.time.note(time.as_secs_f64());
        let place = STATUSES.iter().position(|known| *known == status);
        if let Some(count) = counts.statuses.get(place.unwrap_or(STATUSES.len() - 1)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
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
        let metrics = HttpMetrics::default();
        let places = metrics.routes.iter().map(|counts| counts.statuses.len()).sum::<usize>();
        for status in 0..1000 {
            metrics.begin(None);
            metrics.end(None, status, Duration::ZERO);
        }
        let after = metrics.routes.iter().map(|counts| counts.statuses.len()).sum::<usize>();
        assert_eq!((places, metrics.routes.len()), (after, ROUTES.len() + 1));
        assert_eq!(metrics.used().count(), 1);
    }

    #[test]
    fn every_status_that_an_error_has_is_told_apart() {
        for code in crate::wire::error::Code::ALL {
            assert!(STATUSES.contains(&code.status().as_u16()), "{code:?}");
        }
    }
}
