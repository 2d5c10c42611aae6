//! Counts by size: how many values were at most as large as each bound. Noting one allocates nothing.

use serde::Serialize;

/// How many values there were up to each bound.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Distribution {
    /// Upper bounds, in increasing order.
    pub bounds: &'static [f64],
    /// Values up to each bound and beyond the one before it; one more for all that is larger.
    pub counts: Vec<u64>,
    /// Sum of all values.
    pub sum: f64,
}

impl Distribution {
    pub(crate) fn new(bounds: &'static [f64]) -> Self {
        Distribution { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    pub(crate) fn note(&mut self, value: f64) {
        let place = self.bounds.iter().position(|bound| value <= *bound);
        self.counts[place.unwrap_or(self.bounds.len())] += 1;
        self.sum += value;
    }

    /// How many values.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_up_to_their_bound() {
        let mut distribution = Distribution::new(&[1.0, 5.0]);
        [0.5, 1.0, 3.0, 9.0].into_iter().for_each(|value| distribution.note(value));
        assert_eq!((distribution.counts.as_slice(), distribution.sum), (&[2, 1, 1][..], 13.5));
        assert_eq!(distribution.count(), 4);
    }
}
