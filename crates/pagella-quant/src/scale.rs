//! Scales of one group: a 4-bit code per column, and one ceiling for all columns.
//!
//! Two ways to find them; what they find is stored the same way, and rounding goes by the scales that a
//! reader will compute from what is stored.

mod power;
mod weighted;

use half::f16;
use pagella_formats::exl2::scale;

/// Columns that are worked on side by side.
pub(crate) const LANES: usize = 16;

/// How scales are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScaleSearch {
    /// Ceiling and codes together, by what rounding does to the outputs.
    #[default]
    Weighted,
    /// As ExLlamaV2 does: codes from the largest weights, then the ceiling by the weights' own errors.
    ExLlamaV2,
}

/// The scales of one group as they are stored.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GroupScales {
    /// The largest scale that a code can mean.
    pub ceiling: f16,
    /// Per column, 0 to 15.
    pub codes: Vec<u8>,
}

/// Some columns of a group.
#[derive(Clone, Copy)]
pub(crate) struct Columns<'a> {
    /// `[rows, count]`.
    pub weights: &'a [f32],
    /// A multiple of [`LANES`].
    pub count: usize,
}

/// Finds the scales of a group that is given in parts. `importance` says per row how much the square of
/// an error matters. Sums are added up part by part, whoever computes them.
pub(crate) fn search(
    how: ScaleSearch,
    parts: &[Columns<'_>],
    importance: &[f32],
    bits: u8,
) -> GroupScales {
    match how {
        ScaleSearch::Weighted => weighted::search(parts, importance, bits),
        ScaleSearch::ExLlamaV2 => power::search(parts, bits),
    }
}

/// The scales that a reader will compute, `[columns]`.
pub(crate) fn exact_scales(scales: &GroupScales) -> Vec<f32> {
    let step = scale::group_step(scales.ceiling, 1.0);
    scales.codes.iter().map(|code| scale::column_scale(*code, step).to_f32()).collect()
}

/// The smallest scale of a group, which is what its ceiling is stored for: never zero, so that the
/// smallest weights are not lost together, and 256 of it are finite.
pub(crate) fn possible_step(step: f32) -> f16 {
    f16::from_f32(step).clamp(f16::from_bits(1), f16::from_f32(255.0))
}

/// Nearest integer, ties to even, of a number within ±2²².
#[inline(always)]
pub(crate) fn nearest(value: f32) -> f32 {
    const SHIFT: f32 = 12_582_912.0; // 1.5 · 2²³
    (value + SHIFT) - SHIFT
}

/// The largest magnitude of each column.
fn largest(columns: &Columns<'_>) -> Vec<f32> {
    let mut largest = vec![0.0f32; columns.count];
    for row in columns.weights.chunks_exact(columns.count.max(1)) {
        largest.iter_mut().zip(row).for_each(|(max, value)| *max = max.max(value.abs()));
    }
    largest
}

/// Columns `first..first + LANES` of a part, row by row.
#[inline(always)]
fn lanes(into: &mut Vec<[f32; LANES]>, columns: &Columns<'_>, first: usize) {
    into.clear();
    for row in columns.weights.chunks_exact(columns.count) {
        into.extend(row[first..].first_chunk::<LANES>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_to_nearest_even() {
        for (value, expected) in
            [(0.5, 0.0), (1.5, 2.0), (-0.5, 0.0), (-2.5, -2.0), (127.49, 127.0)]
        {
            assert_eq!(nearest(value), expected);
        }
    }
}
