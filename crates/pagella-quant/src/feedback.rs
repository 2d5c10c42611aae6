//! Rounding with error feedback: what rounding one row does to the outputs, the rows after it make up
//! for as far as they can.
//!
//! A linear is worked on in stripes of columns, which know nothing of each other but the scales of a
//! group. Rows that are done hold their errors, rows to come their weights; before a group is rounded,
//! the errors of all rows before it are brought in at once.

use pagella_backend::isa::{self, Kernel};
use rayon::prelude::*;

use crate::binary16;
use crate::factor::Factor;
use crate::layout::GroupLayout;
use crate::mixture::BLOCK_ROWS;
use crate::product::{self, Block, Sign};
use crate::scale::{self, Columns, GroupScales, ScaleSearch};
use crate::weights::WeightMatrix;

/// Columns of a stripe, a multiple of [`scale::LANES`].
pub(crate) const STRIPE: usize = 64;

/// The codes and scales of one group.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RoundedGroup {
    pub bits: u8,
    pub scales: GroupScales,
    /// `[rows, columns]`, offset binary.
    pub codes: Vec<u8>,
}

/// A linear in codes, and what it lost.
pub(crate) struct Rounded {
    pub groups: Vec<RoundedGroup>,
    /// Per block of rows, the squares of errors by what they do to the outputs.
    pub block_losses: Vec<f64>,
}

/// Some columns of all rows, in packed order.
struct Stripe {
    columns: usize,
    /// `[inputs, columns]`: errors of rows that are done, weights of the others.
    values: Vec<f32>,
    /// Codes of the rows that are done, `[rows, columns]`.
    codes: Vec<u8>,
}

/// Rounds all rows, group by group.
pub(crate) fn round(
    weights: &WeightMatrix,
    factor: &Factor,
    layout: &GroupLayout,
    search: ScaleSearch,
) -> Rounded {
    let mut stripes = cut(weights, factor.perm());
    let mut first = 0;
    let mut groups = Vec::with_capacity(layout.groups().len());
    for shape in layout.groups() {
        let rows = first..first + shape.rows;
        groups.push(round_group(&mut stripes, factor, rows, shape.bits, search));
        first += shape.rows;
    }
    Rounded { groups, block_losses: block_losses(&stripes, factor) }
}

/// What is left in the stripes once everything is rounded, squared. Errors that were fed back are
/// measured in outputs already, others are by the importance of their rows.
fn block_losses(stripes: &[Stripe], factor: &Factor) -> Vec<f64> {
    let weight = |row: usize| match factor.triangle() {
        Some(_) => 1.0,
        None => f64::from(factor.importance()[row]),
    };
    let of_stripe = |stripe: &Stripe| {
        let rows = stripe.values.chunks_exact(stripe.columns).enumerate();
        let losses = rows.map(|(row, errors)| {
            let squares = errors.iter().map(|error| f64::from(*error) * f64::from(*error));
            weight(row) * squares.sum::<f64>()
        });
        losses.collect::<Vec<f64>>().chunks(BLOCK_ROWS).map(|rows| rows.iter().sum()).collect()
    };
    let parts: Vec<Vec<f64>> = stripes.par_iter().map(of_stripe).collect();
    let mut total = vec![0.0; factor.inputs().div_ceil(BLOCK_ROWS)];
    for losses in &parts {
        total.iter_mut().zip(losses).for_each(|(total, loss)| *total += loss);
    }
    total
}

fn cut(weights: &WeightMatrix, perm: &[u32]) -> Vec<Stripe> {
    let stride = weights.columns();
    let firsts: Vec<usize> = (0..stride).step_by(STRIPE).collect();
    let stripe = |first: &usize| {
        let columns = STRIPE.min(stride - first);
        let row = |row: &u32| &weights.values()[*row as usize * stride + first..][..columns];
        let values = perm.iter().flat_map(row).copied().collect();
        Stripe { columns, values, codes: Vec::with_capacity(perm.len() * columns) }
    };
    firsts.par_iter().map(stripe).collect()
}

fn round_group(
    stripes: &mut [Stripe],
    factor: &Factor,
    rows: std::ops::Range<usize>,
    bits: u8,
    search: ScaleSearch,
) -> RoundedGroup {
    let inputs = factor.inputs();
    let triangle = factor.triangle().map(|triangle| Triangle { values: triangle, inputs });
    if let Some(triangle) = &triangle {
        stripes.par_iter_mut().for_each(|stripe| stripe.bring_errors(triangle, rows.clone()));
    }
    let parts: Vec<Columns<'_>> = stripes.iter().map(|stripe| stripe.rows(&rows)).collect();
    let scales = scale::search(search, &parts, &factor.importance()[rows.clone()], bits);
    let exact = scale::exact_scales(&scales);
    stripes.par_iter_mut().zip(exact.par_chunks(STRIPE)).for_each(|(stripe, scales)| {
        stripe.round(triangle.as_ref(), rows.clone(), scales, bits);
    });
    let mut codes = Vec::new();
    for row in rows {
        for stripe in stripes.iter() {
            codes.extend_from_slice(&stripe.codes[row * stripe.columns..][..stripe.columns]);
        }
    }
    RoundedGroup { bits, scales, codes }
}

/// U of a factor.
struct Triangle<'a> {
    values: &'a [f32],
    inputs: usize,
}

impl Stripe {
    /// Makes up, in `rows`, for the errors of all rows before them.
    fn bring_errors(&mut self, triangle: &Triangle<'_>, rows: std::ops::Range<usize>) {
        let columns = self.columns;
        let (done, rest) = self.values.split_at_mut(rows.start * columns);
        let left = Block::new(triangle.values, triangle.inputs, rows.start, rows.len());
        let right = Block::new(done, columns, 0, columns);
        product::accumulate(rest, columns, Sign::Minus, rows.start, left, right);
    }

    /// What `rows` hold.
    fn rows(&self, rows: &std::ops::Range<usize>) -> Columns<'_> {
        let weights = &self.values[rows.start * self.columns..rows.end * self.columns];
        Columns { weights, count: self.columns }
    }

    /// Rounds `rows` by the scales of the columns and leaves their errors behind.
    fn round(
        &mut self,
        triangle: Option<&Triangle<'_>>,
        rows: std::ops::Range<usize>,
        scales: &[f32],
        bits: u8,
    ) {
        let columns = self.columns;
        self.codes.resize(rows.end * columns, 0);
        isa::run(RoundRows {
            values: &mut self.values[rows.start * columns..rows.end * columns],
            codes: &mut self.codes[rows.start * columns..],
            scales,
            bits,
            triangle: triangle.map(|triangle| {
                let corner = rows.start * triangle.inputs + rows.start;
                Block::new(triangle.values, triangle.inputs, corner, rows.len())
            }),
        });
    }
}

/// One group of one stripe.
struct RoundRows<'a> {
    /// `[rows, scales.len()]`: weights, to be replaced by errors.
    values: &'a mut [f32],
    codes: &'a mut [u8],
    scales: &'a [f32],
    bits: u8,
    /// The part of U between the rows; without it errors stay where they are.
    triangle: Option<Block<'a>>,
}

impl Kernel for RoundRows<'_> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        let columns = self.scales.len();
        let zero = zero_point(self.bits);
        let limits = level_limits(self.scales);
        let rows = self.values.len() / columns.max(1);
        for row in 0..rows {
            let (current, rest) = self.values[row * columns..].split_at_mut(columns);
            let codes = &mut self.codes[row * columns..][..columns];
            for (((value, code), scale), limit) in
                current.iter_mut().zip(codes).zip(self.scales).zip(&limits)
            {
                let level = level(*value, *scale, zero).max(-limit).min(*limit);
                *code = (level + zero) as i32 as u8;
                *value -= binary16::nearest(level * scale);
            }
            let Some(triangle) = self.triangle else { continue };
            let factors = triangle.row(row);
            current.iter_mut().for_each(|error| *error /= factors[row]);
            for (row, factor) in rest.chunks_exact_mut(columns).zip(&factors[row + 1..]) {
                for (value, error) in row.iter_mut().zip(current.iter()) {
                    *value = (-factor).mul_add(*error, *value);
                }
            }
        }
    }
}

/// The code that means zero.
pub(crate) fn zero_point(bits: u8) -> f32 {
    (1u32 << (bits - 1)) as f32
}

/// The largest levels whose products with the scales are finite in binary16.
#[inline(always)]
pub(crate) fn level_limits(scales: &[f32]) -> Vec<f32> {
    scales.iter().map(|scale| (binary16::MAX / scale).floor()).collect()
}

/// The signed code nearest to a weight. A scale that binary16 has lost makes every code the zero point.
#[inline(always)]
pub(crate) fn level(value: f32, scale: f32, zero: f32) -> f32 {
    let quotient = if scale > 0.0 { value / scale } else { 0.0 };
    scale::nearest(quotient.max(-zero).min(zero - 1.0))
}

#[cfg(test)]
mod tests;
