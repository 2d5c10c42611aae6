//! Ceiling and codes of a group together, by what rounding does to the outputs.
//!
//! For every column the error of rounding is tabulated over a grid of scales. Then each of many ceilings
//! is judged by the best code that every column finds in its table, between two points of the grid on
//! the line between them. The codes of the best ceiling are settled with the exact scales that a reader
//! computes.

use half::f16;
use pagella_formats::exl2::scale::column_scale;
use rayon::prelude::*;

use super::{Columns, GroupScales, LANES, lanes, largest, nearest, possible_step};
use pagella_backend::isa::{self, Kernel};

/// Points of a column's table.
const POINTS: usize = 40;

/// Ceilings that are tried, between these multiples of the one that fits the largest weight.
const CEILINGS: usize = 56;
const CEILING_MIN: f64 = 0.45;
const CEILING_MAX: f64 = 1.55;

/// Ceilings that are tried with exact scales: tables are smoother than what they stand for.
const SETTLED: usize = 4;

/// Codes of a scale.
const CODES: usize = 16;

/// The largest weight of a column of zeros.
const LARGEST_MIN: f32 = 1e-12;

/// See [`super::search`].
pub(super) fn search(parts: &[Columns<'_>], importance: &[f32], bits: u8) -> GroupScales {
    let grid = Grid::new(bits);
    let tables: Vec<Vec<Table>> = parts
        .par_iter()
        .map(|columns| isa::run(Tabulate { columns: *columns, importance, bits, grid: &grid }))
        .collect();
    let highest = tables.iter().flatten().map(|table| table.log_base).fold(f64::MIN, f64::max);
    let ceilings = Ceilings::new(highest);
    let sums: Vec<[f64; CEILINGS]> =
        tables.par_iter().map(|tables| ceilings.sums(&grid, tables)).collect();
    let mut total = [0.0; CEILINGS];
    for sums in &sums {
        total.iter_mut().zip(sums).for_each(|(total, sum)| *total += sum);
    }
    let steps = best(&total).map(|at| possible_step((ceilings.logs[at].exp() / 256.0) as f32));
    let settled = steps.map(|step| settle(parts, &tables, importance, bits, &grid, step));
    let least = settled.into_iter().min_by(|a, b| a.2.total_cmp(&b.2));
    let (step, codes, _) = least.unwrap_or_default();
    // Exact, and the reader divides by 256 again.
    let ceiling = f16::from_f32(step.to_f32() * 256.0);
    GroupScales { ceiling, codes }
}

/// The codes of all columns for a ceiling, settled with exact scales, and their error.
fn settle(
    parts: &[Columns<'_>],
    tables: &[Vec<Table>],
    importance: &[f32],
    bits: u8,
    grid: &Grid,
    step: f16,
) -> (f16, Vec<u8>, f64) {
    let settled: Vec<(Vec<u8>, f64)> = parts
        .par_iter()
        .zip(tables)
        .map(|(columns, tables)| {
            let codes = first_codes(step, grid, tables);
            isa::run(Settle { columns: *columns, importance, bits, step, codes })
        })
        .collect();
    let error = settled.iter().map(|(_, error)| error).sum();
    (step, settled.into_iter().flat_map(|(codes, _)| codes).collect(), error)
}

/// Scales of the tables, as multiples of the scale that fits the largest weight of the column.
struct Grid {
    multiples: [f32; POINTS],
    log_first: f64,
    /// Points per unit of the logarithm.
    density: f64,
    /// Largest weight over this is the base of a column.
    range: f32,
}

impl Grid {
    fn new(bits: u8) -> Self {
        // One level less is above zero than below it, which the largest weight may need.
        let (low, high) = match bits {
            2 => (0.35, 1.55),
            3 => (0.45, 1.36),
            4 => (0.55, 1.17),
            5 => (0.65, 1.12),
            6 => (0.75, 1.12),
            _ => (0.85, 1.12),
        };
        let log_first = f64::ln(low);
        let density = (POINTS - 1) as f64 / (f64::ln(high) - log_first);
        let multiples = std::array::from_fn(|at| (log_first + at as f64 / density).exp() as f32);
        // Two bits have one level above zero and two below it: a largest weight in the middle.
        let range = if bits == 2 { 1.5 } else { (1u32 << (bits - 1)) as f32 };
        Self { multiples, log_first, density, range }
    }
}

/// The error of one column over the grid.
struct Table {
    errors: [f32; POINTS],
    /// What is lost with all weights.
    all: f32,
    /// Logarithm of the column's base.
    log_base: f64,
}

impl Table {
    /// The error at a scale, given as a place on the grid.
    #[inline]
    fn error(&self, grid: &Grid, place: f64) -> f32 {
        let last = (POINTS - 1) as f64;
        if place <= 0.0 {
            return self.errors[0] - (place / grid.density) as f32 * self.all;
        }
        if place >= last {
            return self.errors[POINTS - 1] * (2.0 * (place - last) / grid.density).exp() as f32;
        }
        let at = (place as usize).min(POINTS - 2);
        let (low, high) = (self.errors[at], self.errors[at + 1]);
        low + (high - low) * (place - at as f64) as f32
    }

    /// The best code for a ceiling, the smallest of equal ones, and its error.
    fn best(&self, grid: &Grid, log_ceiling: f64, code_logs: &[f64; CODES]) -> (u8, f32) {
        let first = log_ceiling - self.log_base - grid.log_first;
        let mut best = (0, f32::INFINITY);
        for (code, log) in code_logs.iter().enumerate() {
            let error = self.error(grid, (first + log) * grid.density);
            if error < best.1 {
                best = (code as u8, error);
            }
        }
        best
    }
}

/// Logarithms of what a code multiplies the ceiling with.
fn code_logs() -> [f64; CODES] {
    std::array::from_fn(|code| 2.0 * ((code + 1) as f64 / CODES as f64).ln())
}

struct Ceilings {
    logs: [f64; CEILINGS],
}

impl Ceilings {
    /// Around the logarithm of the largest base.
    fn new(highest: f64) -> Self {
        let (low, high) = (CEILING_MIN.ln(), CEILING_MAX.ln());
        let share = |at: usize| at as f64 / (CEILINGS - 1) as f64;
        Self { logs: std::array::from_fn(|at| highest + low + (high - low) * share(at)) }
    }

    /// The error of some columns at every ceiling.
    fn sums(&self, grid: &Grid, tables: &[Table]) -> [f64; CEILINGS] {
        let code_logs = code_logs();
        let mut sums = [0.0; CEILINGS];
        for table in tables {
            for (sum, log) in sums.iter_mut().zip(&self.logs) {
                *sum += f64::from(table.best(grid, *log, &code_logs).1);
            }
        }
        sums
    }
}

/// The codes that the tables prefer with the ceiling that is stored.
fn first_codes(step: f16, grid: &Grid, tables: &[Table]) -> Vec<u8> {
    let log_ceiling = (f64::from(step.to_f32()) * 256.0).ln();
    let code_logs = code_logs();
    tables.iter().map(|table| table.best(grid, log_ceiling, &code_logs).0).collect()
}

/// The ceilings of the least sums, best first.
fn best(sums: &[f64; CEILINGS]) -> [usize; SETTLED] {
    let mut order: [usize; CEILINGS] = std::array::from_fn(|at| at);
    // Stable: of equal sums the first.
    order.sort_by(|a, b| sums[*a].total_cmp(&sums[*b]));
    std::array::from_fn(|at| order[at])
}

/// Makes the tables of some columns.
struct Tabulate<'a> {
    columns: Columns<'a>,
    importance: &'a [f32],
    bits: u8,
    grid: &'a Grid,
}

impl Kernel for Tabulate<'_> {
    type Out = Vec<Table>;

    #[inline(always)]
    fn run(self) -> Vec<Table> {
        let largest = largest(&self.columns);
        let mut tables = Vec::with_capacity(self.columns.count);
        let mut rows = Vec::new();
        for (idx, largest) in largest.as_chunks::<LANES>().0.iter().enumerate() {
            lanes(&mut rows, &self.columns, idx * LANES);
            let bases = largest.map(|largest| largest.max(LARGEST_MIN) / self.grid.range);
            let mut all = [0.0f32; LANES];
            for (row, importance) in rows.iter().zip(self.importance) {
                all.iter_mut().zip(row).for_each(|(all, x)| *all += x * x * importance);
            }
            // A loop: what a closure calls is not compiled for the vectors that were entered.
            let mut at_points = [[0.0f32; LANES]; POINTS];
            for (errors_here, multiple) in at_points.iter_mut().zip(&self.grid.multiples) {
                let scales = bases.map(|base| base * multiple);
                *errors_here = errors(&rows, self.importance, scales, self.bits);
            }
            tables.extend((0..LANES).map(|lane| Table {
                errors: at_points.map(|errors| errors[lane]),
                all: all[lane],
                log_base: f64::from(bases[lane]).ln(),
            }));
        }
        tables
    }
}

/// Chooses among each code and its neighbours by the exact scales.
struct Settle<'a> {
    columns: Columns<'a>,
    importance: &'a [f32],
    bits: u8,
    step: f16,
    codes: Vec<u8>,
}

impl Kernel for Settle<'_> {
    type Out = (Vec<u8>, f64);

    #[inline(always)]
    fn run(self) -> (Vec<u8>, f64) {
        let mut error = 0.0;
        let scales: [f32; CODES] =
            std::array::from_fn(|code| column_scale(code as u8, self.step).to_f32());
        let mut settled = self.codes.clone();
        let mut rows = Vec::new();
        let chunks = self.codes.as_chunks::<LANES>().0.iter();
        for (idx, (codes, settled)) in chunks.zip(settled.as_chunks_mut::<LANES>().0).enumerate() {
            lanes(&mut rows, &self.columns, idx * LANES);
            let mut least = [f32::INFINITY; LANES];
            for offset in [-1, 0, 1] {
                let tried = codes.map(|code| (i32::from(code) + offset).clamp(0, 15) as u8);
                let scales = tried.map(|code| scales[usize::from(code & 15)]);
                let errors = errors(&rows, self.importance, scales, self.bits);
                for lane in 0..LANES {
                    if errors[lane] < least[lane] {
                        (least[lane], settled[lane]) = (errors[lane], tried[lane]);
                    }
                }
            }
            error += least.iter().map(|least| f64::from(*least)).sum::<f64>();
        }
        (settled, error)
    }
}

/// Σ importance · (rounded − weight)² of sixteen columns; scales are not zero.
#[inline(always)]
fn errors(
    rows: &[[f32; LANES]],
    importance: &[f32],
    scales: [f32; LANES],
    bits: u8,
) -> [f32; LANES] {
    let zero = (1u32 << (bits - 1)) as f32;
    let inverses = scales.map(|scale| 1.0 / scale);
    let mut sums = [0.0f32; LANES];
    for (row, importance) in rows.iter().zip(importance) {
        for lane in 0..LANES {
            let level = nearest((row[lane] * inverses[lane]).max(-zero).min(zero - 1.0));
            let error = level.mul_add(scales[lane], -row[lane]);
            sums[lane] = (error * error).mul_add(*importance, sums[lane]);
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::scale::{exact_scales, power};

    /// Σ importance · error² with the exact scales, in f64.
    fn total(weights: &[f32], scales: &GroupScales, importance: &[f32], bits: u8) -> f64 {
        let exact = exact_scales(scales);
        let zero = f64::from(1u32 << (bits - 1));
        let error = |(at, weight): (usize, &f32)| {
            let scale = f64::from(exact[at % exact.len()]);
            let level = (f64::from(*weight) / scale).round().clamp(-zero, zero - 1.0);
            f64::from(importance[at / exact.len()]) * (level * scale - f64::from(*weight)).powi(2)
        };
        weights.iter().enumerate().map(error).sum()
    }

    #[test]
    fn it_is_better_than_exllamav2_and_close_to_every_ceiling_tried_exactly() {
        let mut random = Random::new(1);
        for bits in [2, 3, 4, 5, 6, 8] {
            let (rows, count) = (64, 48);
            let sizes: Vec<f32> = random.normal(count).iter().map(|x| 0.02 * x.exp()).collect();
            let mut weights = random.normal(rows * count);
            weights.iter_mut().enumerate().for_each(|(at, x)| *x *= sizes[at % count]);
            let importance: Vec<f32> = random.normal(rows).iter().map(|x| x.exp()).collect();
            let parts = [Columns { weights: &weights, count }];
            let found = search(&parts, &importance, bits);
            let error = total(&weights, &found, &importance, bits);
            let other = total(&weights, &power::search(&parts, bits), &importance, bits);
            // With many levels both are as good as chance.
            let margin = if bits < 5 { 0.95 } else { 1.02 };
            assert!(error < margin * other, "{bits} bits: {error} {other}");

            // Every ceiling near it, with the best code of each column.
            let near = (-60..=60).map(|percent: i32| {
                let bits_of = found.ceiling.to_f32() * (1.0 + percent as f32 / 200.0) / 256.0;
                let ceiling = f16::from_f32(f16::from_f32(bits_of).to_f32() * 256.0);
                (0..count)
                    .map(|column| {
                        let one: Vec<f32> =
                            weights.iter().skip(column).step_by(count).copied().collect();
                        let codes = (0..16).map(|code| {
                            let scales = GroupScales { ceiling, codes: vec![code] };
                            total(&one, &scales, &importance, bits)
                        });
                        codes.fold(f64::INFINITY, f64::min)
                    })
                    .sum::<f64>()
            });
            let near: Vec<f64> = near.collect();
            let best = near.into_iter().fold(f64::INFINITY, f64::min);
            assert!(error < 1.03 * best, "{bits} bits: {error} {best}");
        }
    }

    #[test]
    fn zeros_and_the_smallest_weights_have_finite_scales() {
        for size in [0.0f32, 6e-8, 1e-6, 6e4, 1e6] {
            let mut weights = vec![0.0; 32 * 16];
            weights.iter_mut().step_by(5).for_each(|x| *x = size);
            let parts = [Columns { weights: &weights, count: 16 }];
            for bits in [2, 4, 8] {
                let found = search(&parts, &[1.0; 32], bits);
                assert!(found.ceiling.is_finite() && found.ceiling > f16::ZERO, "{size}");
                assert!(found.codes.iter().all(|code| *code < 16));
            }
        }
    }
}
