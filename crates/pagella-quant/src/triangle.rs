//! Triangular factors in place: Cholesky, and the inverse of a triangle. Blocked, parallel, and with one
//! order for every sum.

use pagella_backend::isa::{self, Kernel};
use rayon::prelude::*;

use crate::product::{self, Block, Sign};

/// Rows that are finished at a time, and columns of one task.
const BLOCK: usize = 64;

/// Overwrites the upper triangle of a symmetric matrix with V, where `A = VᵀV`; what is below is not
/// read. `None` if the matrix is not positive definite, as far as f32 can tell.
pub(crate) fn cholesky(values: &mut [f32], size: usize) -> Option<()> {
    for first in (0..size).step_by(BLOCK) {
        let height = BLOCK.min(size - first);
        let (done, rest) = values.split_at_mut(first * size);
        let panel = &mut rest[..height * size];
        let stripes: Vec<usize> = (first..size).step_by(BLOCK).collect();
        let updated: Vec<Vec<f32>> = stripes
            .par_iter()
            .map(|column| {
                let width = BLOCK.min(size - column);
                let mut stripe = cut(panel, size, *column, width);
                let left = Block::new(done, size, first, height);
                let right = Block::new(done, size, *column, width);
                product::accumulate(&mut stripe, width, Sign::Minus, first, left, right);
                stripe
            })
            .collect();
        let mut updated = updated;
        let (diagonal, others) = updated.split_first_mut()?;
        factor_small(diagonal, height)?;
        others.par_iter_mut().for_each(|stripe| {
            let width = stripe.len() / height;
            isa::run(Solve { triangle: diagonal, size: height, values: stripe, width });
        });
        for (column, stripe) in stripes.iter().zip(&updated) {
            paste(panel, size, *column, stripe, height);
        }
    }
    Some(())
}

/// Overwrites the upper triangle V of a matrix with the inverse of its transpose, `V⁻ᵀ`, which fills
/// the lower triangle; what is above becomes zero.
pub(crate) fn invert_transposed(values: &mut [f32], size: usize) {
    for first in (0..size).step_by(BLOCK) {
        let height = BLOCK.min(size - first);
        let (done, rest) = values.split_at_mut(first * size);
        let done = &*done;
        let panel = &mut rest[..height * size];
        let triangle = cut(panel, size, first, height);
        let stripes: Vec<usize> = (0..=first).step_by(BLOCK).collect();
        let solved: Vec<Vec<f32>> = stripes
            .par_iter()
            .map(|column| {
                let width = BLOCK.min(size - column);
                let mut stripe = vec![0.0; height * width];
                if *column == first {
                    stripe.iter_mut().step_by(width + 1).for_each(|one| *one = 1.0);
                } else {
                    // Rows above `column` are zero in these columns.
                    let below = &done[column * size..];
                    let left = Block::new(below, size, first, height);
                    let right = Block::new(below, size, *column, width);
                    let depth = first - column;
                    product::accumulate(&mut stripe, width, Sign::Minus, depth, left, right);
                }
                let values = &mut stripe;
                isa::run(Solve { triangle: &triangle, size: height, values, width });
                stripe
            })
            .collect();
        for (column, stripe) in stripes.iter().zip(&solved) {
            paste(panel, size, *column, stripe, height);
        }
    }
    for (row, values) in values.chunks_exact_mut(size.max(1)).enumerate() {
        values[row + 1..].fill(0.0);
    }
}

/// Columns `column..column + width` of a panel.
fn cut(panel: &[f32], size: usize, column: usize, width: usize) -> Vec<f32> {
    panel.chunks_exact(size).flat_map(|row| &row[column..column + width]).copied().collect()
}

/// The way back.
fn paste(panel: &mut [f32], size: usize, column: usize, stripe: &[f32], height: usize) {
    let width = stripe.len() / height;
    for (to, from) in panel.chunks_exact_mut(size).zip(stripe.chunks_exact(width)) {
        to[column..column + width].copy_from_slice(from);
    }
}

/// Cholesky of one block, row by row.
fn factor_small(values: &mut [f32], size: usize) -> Option<()> {
    for row in 0..size {
        let (done, rest) = values.split_at_mut(row * size);
        let current = &mut rest[..size];
        for above in done.chunks_exact(size) {
            let factor = above[row];
            for (value, above) in current[row..].iter_mut().zip(&above[row..]) {
                *value = (-factor).mul_add(*above, *value);
            }
        }
        let pivot = current[row].sqrt();
        // Also false for NaN.
        if !(pivot > 0.0 && pivot.is_finite()) {
            return None;
        }
        current[row..].iter_mut().for_each(|value| *value /= pivot);
    }
    Some(())
}

/// `values = V⁻ᵀ · values` for a small upper triangle V: rows from top to bottom.
struct Solve<'a> {
    triangle: &'a [f32],
    size: usize,
    values: &'a mut [f32],
    width: usize,
}

impl Kernel for Solve<'_> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        for row in 0..self.size {
            let (done, rest) = self.values.split_at_mut(row * self.width);
            let current = &mut rest[..self.width];
            for (above, done) in done.chunks_exact(self.width).enumerate() {
                let factor = -self.triangle[above * self.size + row];
                for (value, done) in current.iter_mut().zip(done) {
                    *value = factor.mul_add(*done, *value);
                }
            }
            let pivot = self.triangle[row * self.size + row];
            current.iter_mut().for_each(|value| *value /= pivot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// A well-conditioned symmetric matrix.
    fn positive(size: usize, seed: u64) -> Vec<f32> {
        let x = Random::new(seed).normal(2 * size * size);
        let mut values = vec![0.0; size * size];
        let block = Block::new(&x, size, 0, size);
        product::accumulate(&mut values, size, Sign::Plus, 2 * size, block, block);
        values
    }

    #[test]
    fn a_factor_times_itself_is_the_matrix() {
        for size in [1, 32, 64, 96, 200] {
            let matrix = positive(size, size as u64);
            let mut factor = matrix.clone();
            cholesky(&mut factor, size).unwrap();
            for i in 0..size {
                for j in i..size {
                    let v = |k: usize, l: usize| f64::from(factor[k * size + l]);
                    let product: f64 = (0..=i).map(|k| v(k, i) * v(k, j)).sum();
                    let expected = f64::from(matrix[i * size + j]);
                    assert!((product - expected).abs() < 1e-3 * size as f64, "{size} {i} {j}");
                }
            }
        }
    }

    #[test]
    fn an_inverse_times_its_triangle_is_the_identity() {
        for size in [1, 32, 64, 96, 200] {
            let mut factor = positive(size, 7 + size as u64);
            cholesky(&mut factor, size).unwrap();
            let mut inverse = factor.clone();
            invert_transposed(&mut inverse, size);
            for i in 0..size {
                for j in 0..size {
                    // Row i of V⁻ᵀ times column j of Vᵀ.
                    let products = (j..=i).map(|k| {
                        f64::from(inverse[i * size + k]) * f64::from(factor[j * size + k])
                    });
                    let expected = if i == j { 1.0 } else { 0.0 };
                    assert!((products.sum::<f64>() - expected).abs() < 1e-4, "{size} {i} {j}");
                    assert!(j <= i || inverse[i * size + j] == 0.0);
                }
            }
        }
    }

    #[test]
    fn what_is_not_positive_definite_has_no_factor() {
        let mut matrix = positive(96, 1);
        matrix[70 * 96 + 70] = -1.0;
        assert!(cholesky(&mut matrix, 96).is_none());
        assert!(cholesky(&mut vec![f32::NAN; 96 * 96], 96).is_none());
        assert!(cholesky(&mut vec![1.0; 64 * 64], 64).is_none());
    }
}
