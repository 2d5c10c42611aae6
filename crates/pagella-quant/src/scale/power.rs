//! Scales as ExLlamaV2 finds them.
//!
//! The codes follow from the largest weight of each column. Then the ceiling is stretched by the factor
//! for which rounding does least harm, harm being the sum of |error|^3.5 over the whole group.

use half::f16;
use rayon::prelude::*;

use super::{Columns, GroupScales, LANES, lanes, largest, nearest};
use pagella_backend::isa::{self, Kernel};

/// Factors that are tried for the ceiling.
const FACTORS: usize = 97;

/// The smallest and the largest factor.
const FACTOR_MIN: f32 = 0.70;
const FACTOR_MAX: f32 = 1.20;

/// What keeps the scale of a column of zeros from being zero.
const LARGEST_MIN: f32 = 1e-12;

/// See [`super::search`].
pub(super) fn search(parts: &[Columns<'_>], bits: u8) -> GroupScales {
    let largest: Vec<Vec<f32>> = parts.par_iter().map(largest).collect();
    let codes = ScaleCodes::new(&largest.concat(), bits);
    let firsts = parts.iter().scan(0, |next, part| {
        let first = *next;
        *next += part.count;
        Some(first)
    });
    let firsts: Vec<usize> = firsts.collect();
    let sums: Vec<[f64; FACTORS]> = parts
        .par_iter()
        .zip(&firsts)
        .map(|(part, first)| {
            let columns = *first..first + part.count;
            let scales: Vec<f32> = columns.map(|column| codes.scale(column)).collect();
            isa::run(Harm { columns: *part, scales: &scales, bits })
        })
        .collect();
    let mut total = [0.0; FACTORS];
    for sums in &sums {
        total.iter_mut().zip(sums).for_each(|(total, sum)| *total += sum);
    }
    let ceiling = stored_ceiling(codes.ceiling * factor(least(&total)));
    GroupScales { ceiling, codes: codes.codes }
}

/// The factor of index `idx`.
fn factor(idx: usize) -> f32 {
    let share = idx as f32 / (FACTORS - 1) as f32;
    FACTOR_MIN * (1.0 - share) + FACTOR_MAX * share
}

/// Codes of a group's columns before its ceiling is stretched.
#[derive(Clone, Debug, PartialEq)]
struct ScaleCodes {
    /// The ceiling that fits the largest weight of all.
    pub ceiling: f32,
    /// Per column, 0 to 15.
    pub codes: Vec<u8>,
}

impl ScaleCodes {
    /// From the largest magnitude of each column.
    pub fn new(largest: &[f32], bits: u8) -> Self {
        let half_range = ((1u32 << bits) - 1) as f32 / 2.0;
        let scales = || largest.iter().map(|largest| (largest + LARGEST_MIN) / half_range);
        let ceiling = scales().fold(0.0, f32::max);
        let code = |scale: f32| ((scale / ceiling).sqrt() * 16.0).round_ties_even();
        let codes = scales().map(|scale| code(scale).clamp(1.0, 16.0) as u8 - 1).collect();
        Self { ceiling, codes }
    }

    /// The unrounded scale of a column at factor 1.
    pub fn scale(&self, column: usize) -> f32 {
        let root = (f32::from(self.codes[column]) + 1.0) / 16.0;
        root * root * self.ceiling
    }
}

/// The ceiling as it is stored. Beyond binary16 it would be infinite, which no reader takes; no finite
/// weight needs that much.
fn stored_ceiling(ceiling: f32) -> f16 {
    f16::from_f32(ceiling.min(f16::MAX.to_f32()))
}

/// Harm of every factor on some columns of a group.
struct Harm<'a> {
    columns: Columns<'a>,
    /// Unrounded scales of the columns.
    scales: &'a [f32],
    bits: u8,
}

impl Kernel for Harm<'_> {
    type Out = [f64; FACTORS];

    #[inline(always)]
    fn run(self) -> [f64; FACTORS] {
        let zero = (1u32 << (self.bits - 1)) as f32;
        let mut sums = [0.0; FACTORS];
        let mut rows = Vec::new();
        for (idx, scales) in self.scales.as_chunks::<LANES>().0.iter().enumerate() {
            lanes(&mut rows, &self.columns, idx * LANES);
            for (idx, sum) in sums.iter_mut().enumerate() {
                let factor = factor(idx);
                let lanes = powers(&rows, scales.map(|scale| scale * factor), zero);
                *sum += lanes.iter().map(|lane| f64::from(*lane)).sum::<f64>();
            }
        }
        sums
    }
}

/// Σ |rounded − weight|^3.5 of sixteen columns.
#[inline(always)]
fn powers(rows: &[[f32; LANES]], scales: [f32; LANES], zero: f32) -> [f32; LANES] {
    let mut sums = [0.0f32; LANES];
    for row in rows {
        for lane in 0..LANES {
            let (weight, scale) = (row[lane], scales[lane]);
            let rounded = nearest((weight / scale).max(-zero).min(zero - 1.0)) * scale;
            let error = (rounded - weight).abs();
            sums[lane] += error * error * error * error.sqrt();
        }
    }
    sums
}

/// The index of the least sum, the first of equal ones.
fn least(sums: &[f64; FACTORS]) -> usize {
    let mut best = 0;
    for (idx, sum) in sums.iter().enumerate() {
        if *sum < sums[best] {
            best = idx;
        }
    }
    best
}

#[cfg(test)]
mod tests;
