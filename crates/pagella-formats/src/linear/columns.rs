//! Which stored columns a linear takes: all, all but padding, or its share of a fused tensor.

use std::ops::Range;

/// Column ranges of a stored matrix, in the order of the linear's outputs.
///
/// Invariant: every range lies inside `0..stored`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    stored: usize,
    ranges: Vec<Range<usize>>,
}

impl Columns {
    /// Takes `ranges` of a matrix with `stored` columns; `None` when one leaves the matrix.
    pub fn new(stored: usize, ranges: Vec<Range<usize>>) -> Option<Self> {
        let inside = ranges.iter().all(|range| range.start <= range.end && range.end <= stored);
        inside.then_some(Self { stored, ranges })
    }

    /// The first `len` columns; `None` when there are fewer.
    pub fn first(len: usize, stored: usize) -> Option<Self> {
        Self::new(stored, vec![Range { start: 0, end: len }])
    }

    /// Columns of the stored matrix, those not taken included.
    pub fn stored(&self) -> usize {
        self.stored
    }

    /// The ranges taken.
    pub fn ranges(&self) -> &[Range<usize>] {
        &self.ranges
    }

    /// Number of columns taken.
    pub fn len(&self) -> usize {
        self.ranges.iter().map(ExactSizeIterator::len).sum()
    }

    /// Whether no column is taken.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether every stored column is taken in its order.
    pub fn is_whole(&self) -> bool {
        self.iter().eq(0..self.stored)
    }

    /// Stored index of every output.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.ranges.iter().cloned().flatten()
    }
}
