//! What a linear was fed with, as far as rounding its weights is concerned: `H = XᵀX`, averaged over
//! the rows of calibration.
//!
//! A Hessian that exists is symmetric and finite. Sums have one order, whatever the number of threads.

use rayon::prelude::*;

use crate::error::QuantError;
use crate::product::{self, Block, Sign};

/// Rows of H that one task adds to.
const PANEL: usize = 64;

/// A Hessian in the making: only its upper triangle is kept up.
#[derive(Clone, Debug)]
pub struct HessianSum {
    inputs: usize,
    rows: u64,
    values: Vec<f32>,
}

impl HessianSum {
    /// Of a linear with `inputs` inputs, of no rows yet.
    pub fn new(inputs: usize) -> Self {
        Self { inputs, rows: 0, values: vec![0.0; inputs * inputs] }
    }

    /// Adds one row of calibration: what entered the linear for each of its tokens, `[tokens, inputs]`.
    pub fn add(&mut self, activations: &[f32]) {
        let inputs = self.inputs;
        let tokens = activations.len() / inputs.max(1);
        debug_assert_eq!(activations.len(), tokens * inputs);
        self.rows += 1;
        self.values.par_chunks_mut((PANEL * inputs).max(1)).enumerate().for_each(|(idx, panel)| {
            let first = idx * PANEL;
            let left = Block::new(activations, inputs, first, panel.len() / inputs);
            let right = Block::new(activations, inputs, first, inputs - first);
            product::accumulate(&mut panel[first..], inputs, Sign::Plus, tokens, left, right);
        });
    }

    /// Adds what another sum of the same width has seen.
    pub fn join(&mut self, other: &Self) {
        debug_assert_eq!(self.inputs, other.inputs);
        self.rows += other.rows;
        self.values.iter_mut().zip(&other.values).for_each(|(sum, value)| *sum += value);
    }

    /// Its size.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Rows added so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The mean over the rows, or the identity if there were none. `source` says in errors whose
    /// inputs these are.
    pub fn finish(mut self, source: &str) -> Result<Hessian, QuantError> {
        let inputs = self.inputs;
        let scale = 1.0 / self.rows.max(1) as f32;
        for row in 0..inputs {
            for column in row..inputs {
                let mean = self.values[row * inputs + column] * scale;
                self.values[row * inputs + column] = mean;
                self.values[column * inputs + row] = mean;
            }
            if self.rows == 0 {
                self.values[row * inputs + row] = 1.0;
            }
        }
        if let Some(at) = self.values.iter().position(|value| !value.is_finite()) {
            let (source, input) = (source.to_owned(), at % inputs.max(1));
            return Err(QuantError::Activations { source_name: source, input });
        }
        Ok(Hessian { source: source.to_owned(), inputs, values: self.values })
    }
}

/// A symmetric, finite matrix `[inputs, inputs]`.
#[derive(Clone, Debug)]
pub struct Hessian {
    source: String,
    inputs: usize,
    values: Vec<f32>,
}

impl Hessian {
    /// Whose inputs these are.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Its size.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// All elements, row-major.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The mean square of each input, times tokens per row.
    pub fn diagonal(&self) -> impl Iterator<Item = f32> + '_ {
        self.values.iter().step_by(self.inputs + 1).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn rows_add_up_to_their_mean() {
        let mut random = Random::new(3);
        let (inputs, tokens) = (96, 40);
        let rows = [random.normal(tokens * inputs), random.normal(tokens * inputs)];
        let mut sum = HessianSum::new(inputs);
        rows.iter().for_each(|row| sum.add(row));
        let hessian = sum.finish("x").unwrap();
        for (at, found) in hessian.values().iter().enumerate() {
            let (i, j) = (at / inputs, at % inputs);
            let tokens = rows.iter().flat_map(|row| row.chunks_exact(inputs));
            let expected: f64 =
                tokens.map(|x| f64::from(x[i]) * f64::from(x[j])).sum::<f64>() / 2.0;
            assert!((f64::from(*found) - expected).abs() < 1e-4, "{i} {j}: {found} {expected}");
        }
    }

    #[test]
    fn an_expert_that_was_never_asked_has_the_identity() {
        let hessian = HessianSum::new(64).finish("x").unwrap();
        for (at, value) in hessian.values().iter().enumerate() {
            assert_eq!(*value, if at % 65 == 0 { 1.0 } else { 0.0 });
        }
    }

    #[test]
    fn activations_that_are_not_finite_are_refused_by_name_and_input() {
        for bad in [f32::NAN, f32::INFINITY, 1e30] {
            let mut sum = HessianSum::new(32);
            let mut row = vec![1.0; 3 * 32];
            row[32 + 7] = bad;
            sum.add(&row);
            let message = sum.finish("layers.2.mlp.down_proj").unwrap_err().to_string();
            assert!(message.contains("layers.2.mlp.down_proj"), "{message}");
            assert!(message.contains("input 7"), "{message}");
        }
    }

    #[test]
    fn any_number_of_threads_gives_the_same_bits() {
        let row = Random::new(4).normal(50 * 160);
        let of = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let mut sum = HessianSum::new(160);
                sum.add(&row);
                sum.finish("x").unwrap().values
            })
        };
        assert_eq!(of(1), of(3));
    }
}
