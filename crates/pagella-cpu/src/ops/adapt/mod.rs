//! Adapters: low-rank products that rows of a step add to the output of a linear.
//!
//! `groups` sorts rows by the adapters they have, so that rows with the same ones stream a matrix
//! together; `slots` is what a linear keeps; here is the product. Both halves are linears of one
//! head: every element of `A · x` and of `B · (…)` is one `fma` chain from 0, inputs ascending, the
//! second one going on from adapter to adapter in the order of the row. Then
//! `out = fma(scale, sum, out)`. So the company of a row never changes its bits.

mod groups;
mod slots;

pub(crate) use groups::AdapterGroups;
pub use slots::CpuSlots;

use std::ops::Range;

use pagella_backend::{BackendError, StepPlan};

use super::attention::product::{pass_rows, rows_max};
use super::attention::scratch::with_scratch;
use crate::linear::{Machine, RowSource};
use crate::memory::Aligned;
use crate::ops::lanes::{load_part, store_part};
use crate::simd::{Kernel, LANES, Simd};
use crate::threads::Shares;
use slots::Pair;

/// Outputs of a task of the second half.
const TASK_COLUMNS: usize = 512;

/// What the memory is for, in errors.
const WHAT: &str = "low-rank products";

/// One output row: row `input` of the activations, with the adapters of `token`, is added to row `out`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AdaptRow {
    pub(crate) token: u32,
    pub(crate) input: u32,
    pub(crate) out: u32,
}

/// One linear of [`adapt_all`].
pub(crate) struct AdaptTarget<'a> {
    pub(crate) slots: &'a CpuSlots,
    pub(crate) rows: Vec<AdaptRow>,
    /// `[…, out_features]`.
    pub(crate) out: &'a mut [f32],
    pub(crate) scale: f32,
}

/// The adapters of a step.
#[derive(Clone, Copy)]
pub(crate) struct StepAdapters<'a> {
    pub(crate) plan: &'a StepPlan,
    pub(crate) groups: &'a AdapterGroups,
}

impl StepAdapters<'_> {
    /// Every token that has adapters, in its own row.
    pub(crate) fn tokens(&self) -> Vec<AdaptRow> {
        let tokens = 0..self.plan.tokens() as u32;
        let with = tokens.filter(|token| self.groups.of_token(*token).is_some());
        with.map(|token| AdaptRow { token, input: token, out: token }).collect()
    }
}

/// A few rows with the same adapters, of which some have a pair for the linear.
struct Pass<'a> {
    target: usize,
    /// Of the target's rows.
    rows: Range<usize>,
    /// Pairs in the order of the row, each with its place there.
    pairs: Vec<(usize, &'a Pair)>,
    /// Where the first halves' products begin: for every pair `[rank][rows]`.
    start: usize,
}

impl Pass<'_> {
    fn count(&self) -> usize {
        self.rows.len()
    }

    /// Where the products of pair `index` begin.
    fn start_of(&self, index: usize) -> usize {
        let before: usize = self.pairs[..index].iter().map(|(_, pair)| pair.rank).sum();
        self.start + before * self.count()
    }

    fn len(&self) -> usize {
        self.start_of(self.pairs.len()) - self.start
    }
}

/// Adds what adapters add to linears that read rows of one set of activations; `source` writes one
/// row of it, normed if need be.
pub(crate) fn adapt_all(
    machine: &Machine<'_>,
    step: StepAdapters<'_>,
    source: &RowSource<'_>,
    targets: &mut [AdaptTarget<'_>],
    buffer: &mut Aligned<f32>,
) -> Result<(), BackendError> {
    let mut passes: Vec<Pass<'_>> = Vec::new();
    let mut total = 0;
    for (index, target) in targets.iter_mut().enumerate() {
        target.rows.sort_by_key(|row| step.groups.of_token(row.token));
        cut(machine, step, index, target, &mut passes, &mut total);
    }
    buffer.resize(total, WHAT)?;
    let passes = &passes[..];
    let outs: Vec<Out<'_>> = targets.iter_mut().map(Out::new).collect();
    let firsts: Vec<(usize, usize)> = (0..passes.len())
        .flat_map(|pass| (0..passes[pass].pairs.len()).map(move |pair| (pass, pair)))
        .collect();
    let products = Shares::new(buffer);
    machine.pool.run(firsts.len(), &|task| {
        let (pass, pair) = (&passes[firsts[task].0], firsts[task].1);
        let start = pass.start_of(pair);
        let len = pass.pairs[pair].1.rank * pass.count();
        // SAFETY: every pair of every pass has its own part.
        let products = unsafe { products.part(start..start + len) };
        let rows = &outs[pass.target].rows[pass.rows.clone()];
        first_half(machine, step, source, rows, &pass.pairs[pair], products);
    })?;
    let products: &[f32] = &buffer[..total];
    let seconds: Vec<(usize, usize)> = (0..passes.len())
        .flat_map(|pass| {
            let columns = outs[passes[pass].target].width;
            (0..columns).step_by(TASK_COLUMNS).map(move |column| (pass, column))
        })
        .collect();
    machine.pool.run(seconds.len(), &|task| {
        let (pass, column) = (&passes[seconds[task].0], seconds[task].1);
        let Out { rows, values, width, scale } = &outs[pass.target];
        let columns = column..(column + TASK_COLUMNS).min(*width);
        second_half(machine, pass, products, columns.clone(), &mut |row, sums| {
            let first = rows[pass.rows.start + row].out as usize * width;
            // SAFETY: every row is in one pass, and every column in one task of it.
            let out = unsafe { values.part(first + columns.start..first + columns.end) };
            machine.isa.run(Add { sums, scale: *scale, out });
        });
    })
}

/// A target that tasks write to.
struct Out<'a> {
    rows: &'a [AdaptRow],
    values: Shares<'a, f32>,
    /// Elements of a row.
    width: usize,
    scale: f32,
}

impl<'a> Out<'a> {
    fn new(target: &'a mut AdaptTarget<'_>) -> Self {
        let AdaptTarget { slots, rows, out, scale } = target;
        Out { rows, values: Shares::new(out), width: slots.out_features, scale: *scale }
    }
}

/// Cuts the rows of a target, which are sorted by group, into passes.
fn cut<'a>(
    machine: &Machine<'_>,
    step: StepAdapters<'_>,
    index: usize,
    target: &AdaptTarget<'a>,
    passes: &mut Vec<Pass<'a>>,
    total: &mut usize,
) {
    let rows_max = rows_max(machine.isa);
    let mut first = 0;
    while first < target.rows.len() {
        let group = step.groups.of_token(target.rows[first].token);
        let same = |row: &&AdaptRow| step.groups.of_token(row.token) == group;
        let left = target.rows[first..].iter().take_while(same).count();
        let count = pass_rows(left, rows_max);
        let rows = first..first + count;
        first += count;
        let used = group.map_or(&[][..], |group| step.groups.slots(group));
        let slots: &'a CpuSlots = target.slots;
        let pairs = used.iter().enumerate();
        let pairs: Vec<_> = pairs.filter_map(|(j, slot)| Some((j, slots.pair(*slot)?))).collect();
        if pairs.is_empty() {
            continue;
        }
        let pass = Pass { target: index, rows, pairs, start: *total };
        *total += pass.len();
        passes.push(pass);
    }
}

/// `A · x` of a few rows times their scales, as `[rank][rows]`.
fn first_half(
    machine: &Machine<'_>,
    step: StepAdapters<'_>,
    source: &RowSource<'_>,
    rows: &[AdaptRow],
    (place, pair): &(usize, &Pair),
    out: &mut [f32],
) {
    let (inputs, padded, count) = (pair.a.in_features(), pair.a.padded(), rows.len());
    with_scratch(count * (inputs + padded) + inputs, |scratch| {
        let (products, rest) = scratch.split_at_mut(count * padded);
        let (packed, line) = rest.split_at_mut(count * inputs);
        for (r, row) in rows.iter().enumerate() {
            source(row.input as usize, line);
            packed[r..].iter_mut().step_by(count).zip(&*line).for_each(|(to, x)| *to = *x);
        }
        pair.a.multiply(machine.isa, packed, count, 0..padded, false, products);
        for (r, row) in rows.iter().enumerate() {
            let used = step.plan.adapters(step.groups.row_of(row.token))[*place];
            let scale = used.scale * pair.scale;
            let sums = &products[r * padded..][..pair.rank];
            out[r..].iter_mut().step_by(count).zip(sums).for_each(|(to, sum)| *to = scale * sum);
        }
    });
}

/// `Σ B · product` of a few rows in some columns, row by row to `take`.
fn second_half(
    machine: &Machine<'_>,
    pass: &Pass<'_>,
    products: &[f32],
    columns: Range<usize>,
    take: &mut dyn FnMut(usize, &[f32]),
) {
    let (count, width) = (pass.count(), columns.len().next_multiple_of(LANES));
    with_scratch(count * width, |sums| {
        for (index, (_, pair)) in pass.pairs.iter().enumerate() {
            let packed = &products[pass.start_of(index)..][..pair.rank * count];
            let lanes = columns.start..columns.start + width;
            pair.b.multiply(machine.isa, packed, count, lanes, index > 0, sums);
        }
        for (row, sums) in sums.chunks_exact(width).enumerate() {
            take(row, &sums[..columns.len()]);
        }
    });
}

/// `out += scale · sums`; both equally long.
struct Add<'a> {
    sums: &'a [f32],
    scale: f32,
    out: &'a mut [f32],
}

impl Kernel for Add<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let len = self.out.len().min(self.sums.len());
        let (sums, out) = (self.sums.as_ptr(), self.out.as_mut_ptr());
        for start in (0..len).step_by(LANES) {
            let n = len - start;
            // SAFETY: `start + min(n, 16)` stays within both.
            unsafe {
                let (sum, old) = (
                    load_part::<S>(sums.add(start), n, 0.0),
                    load_part::<S>(out.add(start), n, 0.0),
                );
                store_part::<S>(out.add(start), n, S::fma(S::splat(self.scale), sum, old));
            }
        }
    }
}
