//! Counts by size, without a lock.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of values at most as large as each bound, and their sum.
pub struct Histogram {
    bounds: &'static [f64],
    /// One per bound, and one for all that is larger; not cumulative.
    counts: Vec<AtomicU64>,
    /// In millionths, so that it can be added to without a lock.
    sum_micros: AtomicU64,
}

impl Histogram {
    /// Bounds in increasing order.
    pub fn new(bounds: &'static [f64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram { bounds, counts, sum_micros: AtomicU64::new(0) }
    }

    /// Counts a value.
    pub fn note(&self, value: f64) {
        let place = self.bounds.iter().position(|bound| value <= *bound);
        let place = place.unwrap_or(self.bounds.len());
        if let Some(count) = self.counts.get(place) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.sum_micros.fetch_add((value.max(0.0) * 1e6) as u64, Ordering::Relaxed);
    }

    /// `(bound, values up to it)`, the last bound being infinite.
    pub fn cumulative(&self) -> Vec<(f64, u64)> {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        let mut sum = 0;
        let mut add = |count: &AtomicU64| {
            sum += count.load(Ordering::Relaxed);
            sum
        };
        bounds.zip(&self.counts).map(|(bound, count)| (bound, add(count))).collect()
    }

    /// How many values.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Sum of all values.
    pub fn sum(&self) -> f64 {
        self.sum_micros.load(Ordering::Relaxed) as f64 / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_up_to_their_bound() {
        let histogram = Histogram::new(&[1.0, 5.0]);
        [0.5, 1.0, 3.0, 9.0].into_iter().for_each(|value| histogram.note(value));
        assert_eq!(histogram.cumulative(), [(1.0, 2), (5.0, 3), (f64::INFINITY, 4)]);
        assert_eq!(histogram.sum(), 13.5);
    }
}
