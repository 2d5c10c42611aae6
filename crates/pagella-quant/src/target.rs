//! What a linear should compute, given that what enters it is no longer what it was.
//!
//! Linears before it are quantised, so its inputs `a` differ from those of the unquantised model, `a'`.
//! The weights that come closest to the outputs it had are not its own: `‖aW* − (a'W + r)‖²` is least at
//! `W* = W + H⁻¹(CW + R)`, with `C = Σ aᵀ(a' − a)` and `R = Σ aᵀr`, where r is what the residual stream
//! has lost before the linear adds to it. Rounding W* instead of W makes up for part of what was lost.

use rayon::prelude::*;

use crate::error::QuantError;
use crate::factor::Factor;
use crate::product::{self, Block, Sign};
use crate::weights::WeightMatrix;

/// Rows of one task.
const PANEL: usize = 64;

/// How far the inputs of a linear are from those of the unquantised model. Sums are divided like those
/// of its Hessian.
#[derive(Clone, Copy, Debug)]
pub struct Shift<'a> {
    /// `C`, `[inputs, inputs]`.
    pub cross: &'a [f32],
    /// `R`, `[inputs, outputs]` without padding, for linears that write the residual stream.
    pub residual: Option<&'a [f32]>,
}

/// The weights to round instead of `weights`. They are finite, but not binary16.
pub fn shifted_target(
    weights: &WeightMatrix,
    factor: &Factor,
    shift: &Shift<'_>,
) -> Result<WeightMatrix, QuantError> {
    let (inputs, outputs) = (weights.inputs(), weights.outputs());
    let columns = weights.columns();
    let refuse = |reason: &str| {
        Err(QuantError::Weights { linear: weights.name().to_owned(), reason: reason.to_owned() })
    };
    let residual_len = shift.residual.map_or(inputs * outputs, <[f32]>::len);
    if (shift.cross.len(), residual_len) != (inputs * inputs, inputs * outputs) {
        return refuse("what its inputs have lost was measured for another shape");
    }
    let (Some(triangle), true) = (factor.triangle(), factor.inputs() == inputs) else {
        return refuse("there is no factor of its Hessian to correct it with");
    };
    let transposed = transposed(shift.cross, inputs);
    let mut wanted = product(&transposed, inputs, weights.values(), columns);
    if let Some(residual) = shift.residual {
        for (to, from) in wanted.chunks_exact_mut(columns).zip(residual.chunks_exact(outputs)) {
            to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        }
    }
    let correction = solve(triangle, factor.perm(), &wanted, columns);
    let pairs = weights.values().iter().zip(&correction);
    let values: Vec<f32> = pairs.map(|(weight, correction)| weight + correction).collect();
    if values.iter().any(|value| !value.is_finite()) {
        return refuse("what its inputs have lost is not finite");
    }
    Ok(WeightMatrix::decoded(weights.name(), outputs, columns, values))
}

/// `(H + λI)⁻¹ B` for `B` `[inputs, columns]`, rows of both in the order of the inputs.
fn solve(triangle: &[f32], perm: &[u32], values: &[f32], columns: usize) -> Vec<f32> {
    let inputs = perm.len();
    let row = |row: &u32| &values[*row as usize * columns..][..columns];
    let packed: Vec<f32> = perm.iter().flat_map(row).copied().collect();
    // (H + λI)⁻¹ = UᵀU.
    let half = product(&transposed(triangle, inputs), inputs, &packed, columns);
    let solved = product(triangle, inputs, &half, columns);
    let mut ordered = vec![0.0; values.len()];
    for (row, solved) in perm.iter().zip(solved.chunks_exact(columns.max(1))) {
        ordered[*row as usize * columns..][..columns].copy_from_slice(solved);
    }
    ordered
}

/// `AᵀB` for a square A.
fn product(a: &[f32], inputs: usize, b: &[f32], columns: usize) -> Vec<f32> {
    let mut values = vec![0.0; inputs * columns];
    values.par_chunks_mut((PANEL * columns).max(1)).enumerate().for_each(|(idx, panel)| {
        let a = Block::new(a, inputs, idx * PANEL, panel.len() / columns);
        let b = Block::new(b, columns, 0, columns);
        product::accumulate(panel, columns, Sign::Plus, inputs, a, b);
    });
    values
}

fn transposed(values: &[f32], size: usize) -> Vec<f32> {
    /// Elements of a tile that stays in the cache.
    const TILE: usize = 32;
    let mut transposed = vec![0.0; values.len()];
    transposed.par_chunks_mut((TILE * size).max(1)).enumerate().for_each(|(idx, rows)| {
        for first in (0..size).step_by(TILE) {
            for (row, to) in rows.chunks_exact_mut(size).enumerate() {
                for (column, to) in to[first..].iter_mut().take(TILE).enumerate() {
                    *to = values[(first + column) * size + idx * TILE + row];
                }
            }
        }
    });
    transposed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cross::CrossSum;
    use crate::factor::FactorOptions;
    use crate::hessian::HessianSum;
    use crate::random::Random;

    #[test]
    fn a_transposed_matrix_is_mirrored() {
        for size in [1, 32, 70] {
            let values: Vec<f32> = (0..size * size).map(|at| at as f32).collect();
            for (at, found) in transposed(&values, size).iter().enumerate() {
                assert_eq!(*found, (at % size * size + at / size) as f32);
            }
        }
    }

    /// Inputs of which the quantised model only sees a mixture that can be undone.
    #[test]
    fn what_the_inputs_have_lost_is_made_up_for() {
        let mut random = Random::new(1);
        let (inputs, outputs, tokens) = (64, 40, 400);
        let original = random.normal(tokens * inputs);
        let lost: Vec<f32> = original
            .chunks_exact(inputs)
            .flat_map(|x| (0..inputs).map(|i| 0.8 * x[i] + 0.2 * x[(i + 1) % inputs]))
            .collect();
        let residual = random.normal(tokens * outputs);
        let shift: Vec<f32> = original.iter().zip(&lost).map(|(a, b)| a - b).collect();
        let mut hessian = HessianSum::new(inputs);
        hessian.add(&lost);
        let factor =
            Factor::new(&hessian.finish("x").unwrap(), &FactorOptions { damping: 1e-4 }).unwrap();
        let mut cross = CrossSum::new(inputs, inputs);
        cross.add(&lost, &shift);
        let mut lost_residual = CrossSum::new(inputs, outputs);
        lost_residual.add(&lost, &residual);
        let (cross, lost_residual) = (cross.finish(), lost_residual.finish());
        let weights =
            WeightMatrix::new("w", inputs, outputs, &random.normal(inputs * outputs)).unwrap();

        let output = |x: &[f32], matrix: &WeightMatrix, output: usize| -> f64 {
            let row = |k: usize| f64::from(matrix.values()[k * matrix.columns() + output]);
            x.iter().enumerate().map(|(k, x)| f64::from(*x) * row(k)).sum()
        };
        let error = |matrix: &WeightMatrix, with_residual: bool| -> f64 {
            let share = if with_residual { 1.0 } else { 0.0 };
            (0..tokens * outputs)
                .map(|at| {
                    let (token, out) = (at / outputs, at % outputs);
                    let tokens = token * inputs..(token + 1) * inputs;
                    let wanted = output(&original[tokens.clone()], &weights, out)
                        + share * f64::from(residual[at]);
                    (output(&lost[tokens], matrix, out) - wanted).powi(2)
                })
                .sum()
        };
        let shift = Shift { cross: &cross, residual: None };
        let target = shifted_target(&weights, &factor, &shift).unwrap();
        assert!(error(&target, false) < 1e-4 * error(&weights, false));
        let shift = Shift { cross: &cross, residual: Some(&lost_residual) };
        let both = shifted_target(&weights, &factor, &shift).unwrap();
        assert!(error(&both, true) < error(&target, true));
        assert!(both.values().chunks_exact(64).all(|row| row[outputs..] == [0.0; 24]));
    }

    #[test]
    fn sums_of_another_shape_are_refused_by_name() {
        let weights = WeightMatrix::new("layers.1.q_proj", 32, 32, &[0.5; 1024]).unwrap();
        let hessian = HessianSum::new(32).finish("x").unwrap();
        let factor = Factor::new(&hessian, &FactorOptions::default()).unwrap();
        for (cross, residual, factor) in [
            (1000, Some(1024), &factor),
            (1024, Some(1000), &factor),
            (1024, None, &Factor::order_only(&hessian)),
        ] {
            let (cross, residual) = (vec![0.0; cross], residual.map(|len| vec![0.0; len]));
            let shift = Shift { cross: &cross, residual: residual.as_deref() };
            let message = shifted_target(&weights, factor, &shift).unwrap_err().to_string();
            assert!(message.contains("layers.1.q_proj"), "{message}");
        }
        let cross = vec![f32::NAN; 1024];
        let shift = Shift { cross: &cross, residual: None };
        assert!(shifted_target(&weights, &factor, &shift).is_err());
    }
}
