//! A second look at what was rounded: codes and scales, one at a time, each to where the error of the
//! outputs is least while all others stay.
//!
//! Rounding row by row never goes back. Here every group is visited again, with the errors of all other
//! rows as they are now: first its scales, then the codes of its rows. No step makes the error, measured
//! with the damped Hessian, larger, but for the rounding of products to binary16.

use half::f16;
use pagella_formats::exl2::scale::{column_scale, group_step};
use rayon::prelude::*;

use crate::binary16;
use crate::error::QuantError;
use crate::factor::Factor;
use crate::feedback::{self, RoundedGroup, STRIPE};
use crate::hessian::Hessian;
use crate::linear::QuantizedLinear;
use crate::product::{self, Block, Sign};
use crate::scale;
use crate::weights::WeightMatrix;
use pagella_backend::isa::{self, Kernel};

/// Codes of a scale.
const CODES: usize = 16;

/// Ceilings that are tried: so many on each side of the present one, so far apart.
const CEILINGS_ASIDE: i32 = 6;
const CEILING_STEP: f32 = 0.01;

/// Visits all groups of `linear` `passes` times. `weights` and `factor` are what it was rounded from.
pub fn refine_linear(
    linear: &mut QuantizedLinear,
    weights: &WeightMatrix,
    factor: &Factor,
    hessian: &Hessian,
    passes: usize,
) -> Result<(), QuantError> {
    let inputs = hessian.inputs();
    if (weights.inputs(), factor.inputs()) != (inputs, inputs) {
        let linear = weights.name().to_owned();
        return Err(QuantError::InputsMismatch {
            linear,
            expected: inputs,
            found: weights.inputs(),
        });
    }
    linear.check_source(weights)?;
    let damping = factor.damping();
    let (perm, groups) = linear.parts_mut();
    let mut stripes = cut(weights, perm, groups);
    for _ in 0..passes {
        let mut first = 0;
        for group in groups.iter_mut() {
            let rows = group.codes.len() / weights.columns();
            let panel = Panel::gather(hessian, perm, first, rows, damping);
            refine_group(&mut stripes, group, &panel);
            first += rows;
        }
    }
    Ok(())
}

/// The columns of the damped Hessian that belong to the rows of a group, in packed order.
struct Panel {
    /// `[inputs, rows]`.
    values: Vec<f32>,
    inputs: usize,
    first: usize,
    rows: usize,
}

impl Panel {
    fn gather(hessian: &Hessian, perm: &[u32], first: usize, rows: usize, damping: f32) -> Self {
        let inputs = perm.len();
        let chosen = &perm[first..first + rows];
        let gather = |row: &u32| {
            let row = &hessian.values()[*row as usize * inputs..][..inputs];
            chosen.iter().map(|column| row[*column as usize]).collect::<Vec<f32>>()
        };
        let mut values: Vec<f32> = perm.par_iter().flat_map_iter(gather).collect();
        let diagonal = values[first * rows..].iter_mut().step_by(rows + 1);
        diagonal.take(rows).for_each(|value| *value += damping);
        Self { values, inputs, first, rows }
    }

    /// All rows.
    fn all(&self) -> Block<'_> {
        Block::new(&self.values, self.rows, 0, self.rows)
    }

    /// The rows of the group.
    fn own(&self) -> Block<'_> {
        Block::new(&self.values, self.rows, self.first * self.rows, self.rows)
    }
}

/// Some columns of all rows, in packed order.
struct Stripe {
    first: usize,
    columns: usize,
    /// What the weights are above what is decoded, `[inputs, columns]`.
    errors: Vec<f32>,
    /// Of the group that is being visited, `[rows, columns]`: the Hessian times the errors,
    gradient: Vec<f32>,
    /// and codes less their zero point.
    levels: Vec<f32>,
}

fn cut(weights: &WeightMatrix, perm: &[u32], groups: &[RoundedGroup]) -> Vec<Stripe> {
    let stride = weights.columns();
    let stripe = |first: usize| {
        let columns = STRIPE.min(stride - first);
        let mut errors = Vec::with_capacity(perm.len() * columns);
        let mut inputs = perm.iter();
        for group in groups {
            let scales = &scale::exact_scales(&group.scales)[first..first + columns];
            let zero = feedback::zero_point(group.bits);
            for (codes, input) in group.codes.chunks_exact(stride).zip(&mut inputs) {
                let weights = &weights.values()[*input as usize * stride + first..];
                let columns = weights.iter().zip(&codes[first..]).zip(scales);
                errors.extend(columns.map(|((weight, code), scale)| {
                    weight - binary16::nearest((f32::from(*code) - zero) * scale)
                }));
            }
        }
        Stripe { first, columns, errors, gradient: Vec::new(), levels: Vec::new() }
    };
    let firsts: Vec<usize> = (0..stride).step_by(STRIPE).collect();
    firsts.into_par_iter().map(stripe).collect()
}

fn refine_group(stripes: &mut [Stripe], group: &mut RoundedGroup, panel: &Panel) {
    let old = scale::exact_scales(&group.scales);
    let wanted: Vec<Vec<Wanted>> =
        stripes.par_iter_mut().map(|stripe| stripe.wanted(group, panel, &old)).collect();
    let wanted = wanted.concat();
    if let Some((step, codes)) = better_scales(group, &wanted, &old) {
        // Exact, and a reader divides by 256 again.
        group.scales.ceiling = f16::from_f32(step.to_f32() * 256.0);
        group.scales.codes = codes;
    }
    let new = scale::exact_scales(&group.scales);
    let bits = group.bits;
    stripes.par_iter_mut().for_each(|stripe| {
        let columns = stripe.first..stripe.first + stripe.columns;
        stripe.rescale(panel, &old[columns.clone()], &new[columns.clone()]);
        stripe.round(panel, &new[columns], bits);
    });
    let zero = feedback::zero_point(bits);
    let stride = old.len();
    for stripe in stripes.iter() {
        let rows = group.codes.chunks_exact_mut(stride);
        for (codes, levels) in rows.zip(stripe.levels.chunks_exact(stripe.columns)) {
            let codes = codes[stripe.first..].iter_mut();
            codes.zip(levels).for_each(|(code, level)| *code = (level + zero) as i32 as u8);
        }
    }
}

/// The scale that suits the codes of a column best, and what it costs to be off by one.
#[derive(Clone, Copy)]
struct Wanted {
    scale: f32,
    weight: f32,
}

/// Ceiling and codes that come closer to what the columns want, if there are any.
fn better_scales(group: &RoundedGroup, wanted: &[Wanted], old: &[f32]) -> Option<(f16, Vec<u8>)> {
    let cost = |wanted: &Wanted, scale: f32| {
        let off = f64::from(scale - wanted.scale);
        f64::from(wanted.weight) * off * off
    };
    let present: f64 = wanted.iter().zip(old).map(|(wanted, scale)| cost(wanted, *scale)).sum();
    let step = group_step(group.scales.ceiling, 1.0).to_f32();
    if step
        * 256.0
        * (1.0 + CEILING_STEP * CEILINGS_ASIDE as f32)
        * feedback::zero_point(group.bits)
        > binary16::MAX
    {
        // The largest products would not be binary16.
        return None;
    }
    let mut best: Option<(f64, f16, Vec<u8>)> = None;
    for aside in -CEILINGS_ASIDE..=CEILINGS_ASIDE {
        let step = scale::possible_step(step * (1.0 + CEILING_STEP * aside as f32));
        let table: [f32; CODES] =
            std::array::from_fn(|code| column_scale(code as u8, step).to_f32());
        let codes: Vec<u8> =
            wanted.iter().map(|wanted| nearest_code(&table, wanted.scale)).collect();
        let pairs = wanted.iter().zip(&codes);
        let sum: f64 = pairs.map(|(wanted, code)| cost(wanted, table[usize::from(*code)])).sum();
        if sum < best.as_ref().map_or(present, |best| best.0) {
            best = Some((sum, step, codes));
        }
    }
    best.map(|(_, step, codes)| (step, codes))
}

/// The first code of those whose scales are closest.
fn nearest_code(table: &[f32; CODES], scale: f32) -> u8 {
    let mut best = 0;
    for code in 1..CODES {
        if (table[code] - scale).abs() < (table[best] - scale).abs() {
            best = code;
        }
    }
    best as u8
}

impl Stripe {
    /// Prepares the visit of a group: its gradient, its levels, and the scales that suit them.
    fn wanted(&mut self, group: &RoundedGroup, panel: &Panel, scales: &[f32]) -> Vec<Wanted> {
        let (columns, rows) = (self.columns, panel.rows);
        let stride = scales.len();
        let zero = feedback::zero_point(group.bits);
        let errors = Block::new(&self.errors, columns, 0, columns);
        self.gradient.clear();
        self.gradient.resize(rows * columns, 0.0);
        let gradient = &mut self.gradient;
        product::accumulate(gradient, columns, Sign::Plus, panel.inputs, panel.all(), errors);
        self.levels.clear();
        for codes in group.codes.chunks_exact(stride) {
            let codes = &codes[self.first..self.first + columns];
            self.levels.extend(codes.iter().map(|code| f32::from(*code) - zero));
        }
        let mut products = vec![0.0; rows * columns];
        let levels = Block::new(&self.levels, columns, 0, columns);
        product::accumulate(&mut products, columns, Sign::Plus, rows, panel.own(), levels);
        let sums = |other: &[f32]| {
            let mut sums = vec![0.0f32; columns];
            let rows = self.levels.chunks_exact(columns).zip(other.chunks_exact(columns));
            for (levels, other) in rows {
                let pairs = levels.iter().zip(other);
                sums.iter_mut().zip(pairs).for_each(|(sum, (a, b))| *sum += a * b);
            }
            sums
        };
        let (slopes, weights) = (sums(&self.gradient), sums(&products));
        let scales = &scales[self.first..self.first + columns];
        let pairs = slopes.iter().zip(&weights).zip(scales);
        pairs
            .map(|((slope, weight), scale)| {
                // A column whose levels are all zero takes any scale.
                let shift = if *weight > 0.0 { slope / weight } else { 0.0 };
                Wanted { scale: scale + shift, weight: weight.max(0.0) }
            })
            .collect()
    }

    /// Takes over other scales.
    fn rescale(&mut self, panel: &Panel, old: &[f32], new: &[f32]) {
        if old == new {
            return;
        }
        let columns = self.columns;
        let mut changes = Vec::with_capacity(self.levels.len());
        for levels in self.levels.chunks_exact(columns) {
            let scales = old.iter().zip(new);
            changes.extend(levels.iter().zip(scales).map(|(level, (old, new))| {
                binary16::nearest(level * old) - binary16::nearest(level * new)
            }));
        }
        let errors = self.errors[panel.first * columns..].iter_mut();
        errors.zip(&changes).for_each(|(error, change)| *error += change);
        let changes = Block::new(&changes, columns, 0, columns);
        let gradient = &mut self.gradient;
        product::accumulate(gradient, columns, Sign::Plus, panel.rows, panel.own(), changes);
    }

    fn round(&mut self, panel: &Panel, scales: &[f32], bits: u8) {
        let rows = panel.first * self.columns..(panel.first + panel.rows) * self.columns;
        isa::run(VisitRows {
            errors: &mut self.errors[rows],
            gradient: &mut self.gradient,
            levels: &mut self.levels,
            scales,
            hessian: panel.own(),
            zero: feedback::zero_point(bits),
        });
    }
}

/// Chooses the codes of a group anew, row by row.
struct VisitRows<'a> {
    /// All of `[rows, scales.len()]`.
    errors: &'a mut [f32],
    gradient: &'a mut [f32],
    levels: &'a mut [f32],
    scales: &'a [f32],
    /// Between the rows of the group.
    hessian: Block<'a>,
    zero: f32,
}

impl Kernel for VisitRows<'_> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        let columns = self.scales.len();
        let limits = feedback::level_limits(self.scales);
        let mut changes = vec![0.0f32; columns];
        for row in 0..self.errors.len() / columns.max(1) {
            let factors = self.hessian.row(row);
            let pivot = factors[row];
            if pivot <= 0.0 {
                continue;
            }
            let (current, rest) = self.gradient[row * columns..].split_at_mut(columns);
            let levels = &mut self.levels[row * columns..][..columns];
            let errors = &mut self.errors[row * columns..][..columns];
            for (idx, change) in changes.iter_mut().enumerate() {
                let (scale, limit) = (self.scales[idx], limits[idx]);
                let old = binary16::nearest(levels[idx] * scale);
                let level = feedback::level(old + current[idx] / pivot, scale, self.zero);
                levels[idx] = level.max(-limit).min(limit);
                *change = old - binary16::nearest(levels[idx] * scale);
                errors[idx] += *change;
            }
            if changes.iter().all(|change| *change == 0.0) {
                continue;
            }
            for (later, factor) in rest.chunks_exact_mut(columns).zip(&factors[row + 1..]) {
                for (value, change) in later.iter_mut().zip(&changes) {
                    *value = factor.mul_add(*change, *value);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
