//! One linear, from weights to codes and from codes to what a reader decodes.

use half::f16;
use pagella_formats::exl2::pack::{Exl2Tensors, GroupCodes};
use pagella_formats::exl2::scale;
use rayon::prelude::*;

use crate::error::QuantError;
use crate::factor::Factor;
use crate::feedback::{self, Rounded, RoundedGroup};
use crate::hessian::Hessian;
use crate::layout::GroupLayout;
use crate::product::{self, Block, Sign};
use crate::scale::ScaleSearch;
use crate::weights::WeightMatrix;

/// How weights are rounded.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Recipe {
    /// How scales are found.
    pub scales: ScaleSearch,
}

/// A linear in codes.
#[derive(Clone, Debug, PartialEq)]
pub struct QuantizedLinear {
    name: String,
    outputs: usize,
    columns: usize,
    perm: Vec<u32>,
    groups: Vec<RoundedGroup>,
    block_losses: Vec<f64>,
}

/// Rounds a linear in the groups of `layout`, with what `factor` knows of its inputs.
pub fn quantize_linear(
    weights: &WeightMatrix,
    factor: &Factor,
    layout: &GroupLayout,
    recipe: &Recipe,
) -> Result<QuantizedLinear, QuantError> {
    check_inputs(weights, factor.inputs())?;
    if layout.inputs() != weights.inputs() {
        let fault = format!("`{}` has {} inputs", weights.name(), weights.inputs());
        return Err(QuantError::Params { params: layout.to_string(), fault });
    }
    let Rounded { groups, block_losses } = feedback::round(weights, factor, layout, recipe.scales);
    Ok(QuantizedLinear {
        name: weights.name().to_owned(),
        outputs: weights.outputs(),
        columns: weights.columns(),
        perm: factor.perm().to_vec(),
        groups,
        block_losses,
    })
}

fn check_inputs(weights: &WeightMatrix, expected: usize) -> Result<(), QuantError> {
    let found = weights.inputs();
    if found == expected {
        return Ok(());
    }
    Err(QuantError::InputsMismatch { linear: weights.name().to_owned(), expected, found })
}

impl QuantizedLinear {
    /// The name of the linear.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Per block of 32 packed rows, what rounding it adds to the squared error of the outputs of one row
    /// of calibration, once the rows after it have made up for what they can; before it was refined.
    pub fn block_losses(&self) -> &[f64] {
        &self.block_losses
    }

    /// The weights as every reader decodes them, bit for bit.
    pub fn dequantized(&self) -> WeightMatrix {
        let mut values = vec![0.0; self.perm.len() * self.columns];
        let mut inputs = self.perm.iter();
        for group in &self.groups {
            let step = scale::group_step(group.scales.ceiling, 1.0);
            let codes = group.scales.codes.iter();
            let scales: Vec<f16> = codes.map(|code| scale::column_scale(*code, step)).collect();
            for (codes, input) in group.codes.chunks_exact(self.columns).zip(&mut inputs) {
                let row = &mut values[*input as usize * self.columns..][..self.columns];
                for ((value, code), scale) in row.iter_mut().zip(codes).zip(&scales) {
                    *value = scale::weight(u32::from(*code), group.bits, *scale).to_f32();
                }
            }
        }
        WeightMatrix::decoded(&self.name, self.outputs, self.columns, values)
    }

    /// The order of its rows, and its groups to be changed.
    pub(crate) fn parts_mut(&mut self) -> (&[u32], &mut [RoundedGroup]) {
        (&self.perm, &mut self.groups)
    }

    /// That it can have been rounded from these weights.
    pub(crate) fn check_source(&self, weights: &WeightMatrix) -> Result<(), QuantError> {
        check_inputs(weights, self.perm.len())?;
        if weights.columns() == self.columns {
            return Ok(());
        }
        let reason = format!("{} outputs where {} were rounded", weights.outputs(), self.outputs);
        Err(QuantError::Weights { linear: self.name.clone(), reason })
    }

    /// The tensors of its file.
    pub fn tensors(&self) -> Result<Exl2Tensors, QuantError> {
        let groups: Vec<GroupCodes<'_>> = self
            .groups
            .iter()
            .map(|group| GroupCodes {
                bits: group.bits,
                codes: &group.codes,
                scale_codes: &group.scales.codes,
                scale_max: group.scales.ceiling,
            })
            .collect();
        Exl2Tensors::pack(self.columns, &groups, &self.perm)
            .map_err(|source| QuantError::Pack { linear: self.name.clone(), source })
    }
}

/// What rounding does to the outputs of a linear.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OutputError {
    /// `tr((W − Ŵ)ᵀ H (W − Ŵ))`: the squared error of the outputs of one row of calibration.
    pub absolute: f64,
    /// The same as a share of `tr(Wᵀ H W)`.
    pub relative: f64,
}

/// Compares `rounded` with `weights` on the inputs that `hessian` saw.
pub fn output_error(
    weights: &WeightMatrix,
    rounded: &WeightMatrix,
    hessian: &Hessian,
) -> Result<OutputError, QuantError> {
    check_inputs(weights, hessian.inputs())?;
    check_inputs(rounded, hessian.inputs())?;
    let pairs = weights.values().iter().zip(rounded.values());
    let difference: Vec<f32> = pairs.map(|(weight, rounded)| weight - rounded).collect();
    let absolute = energy(&difference, weights.columns(), hessian);
    let whole = energy(weights.values(), weights.columns(), hessian);
    let relative = if whole > 0.0 { absolute / whole } else { 0.0 };
    Ok(OutputError { absolute, relative })
}

/// `tr(AᵀHA)` of `[inputs, columns]` values.
fn energy(values: &[f32], columns: usize, hessian: &Hessian) -> f64 {
    /// Rows of one task.
    const ROWS: usize = 64;
    let inputs = hessian.inputs();
    let sums: Vec<f64> = values
        .par_chunks((ROWS * columns).max(1))
        .enumerate()
        .map(|(idx, rows)| {
            let first = idx * ROWS;
            let mut products = vec![0.0; rows.len()];
            let left = Block::new(hessian.values(), inputs, first, rows.len() / columns);
            let right = Block::new(values, columns, 0, columns);
            product::accumulate(&mut products, columns, Sign::Plus, inputs, left, right);
            let pairs = products.iter().zip(rows);
            pairs.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>()
        })
        .collect();
    sums.iter().sum()
}

#[cfg(test)]
mod tests;
