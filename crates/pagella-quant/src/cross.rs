//! `Σ aᵀb` over the rows of calibration, divided by their number like a [Hessian](crate::Hessian).

use rayon::prelude::*;

use crate::product::{self, Block, Sign};

/// Rows of the sum that one task adds to.
const PANEL: usize = 64;

/// A product in the making. Sums have one order, whatever the number of threads.
#[derive(Clone, Debug)]
pub(crate) struct CrossSum {
    left: usize,
    right: usize,
    rows: u64,
    values: Vec<f32>,
}

impl CrossSum {
    /// Of vectors of these widths.
    pub fn new(left: usize, right: usize) -> Self {
        Self { left, right, rows: 0, values: vec![0.0; left * right] }
    }

    /// Adds one row of calibration: `a` is `[tokens, left]`, `b` `[tokens, right]`.
    pub fn add(&mut self, a: &[f32], b: &[f32]) {
        let (left, right) = (self.left, self.right);
        let tokens = a.len() / left.max(1);
        debug_assert_eq!((a.len(), b.len()), (tokens * left, tokens * right));
        self.rows += 1;
        self.values.par_chunks_mut((PANEL * right).max(1)).enumerate().for_each(|(idx, panel)| {
            let a = Block::new(a, left, idx * PANEL, panel.len() / right);
            let b = Block::new(b, right, 0, right);
            product::accumulate(panel, right, Sign::Plus, tokens, a, b);
        });
    }

    /// The mean over the rows, `[left, right]`.
    pub fn finish(mut self) -> Vec<f32> {
        let scale = 1.0 / self.rows.max(1) as f32;
        self.values.iter_mut().for_each(|value| *value *= scale);
        self.values
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn rows_add_up_to_their_mean() {
        let mut random = Random::new(5);
        let (left, right, tokens) = (70, 9, 12);
        let mut sum = CrossSum::new(left, right);
        let mut expected = vec![0.0f64; left * right];
        for _ in 0..3 {
            let (a, b) = (random.normal(tokens * left), random.normal(tokens * right));
            sum.add(&a, &b);
            for (i, expected) in expected.iter_mut().enumerate() {
                let term = |t: usize| {
                    f64::from(a[t * left + i / right]) * f64::from(b[t * right + i % right])
                };
                *expected += (0..tokens).map(term).sum::<f64>() / 3.0;
            }
        }
        for (found, expected) in sum.finish().iter().zip(&expected) {
            assert!((f64::from(*found) - expected).abs() < 1e-4, "{found} {expected}");
        }
    }
}
