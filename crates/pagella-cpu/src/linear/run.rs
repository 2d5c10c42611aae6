//! Running linears: how the work is cut into tasks and which kernel takes them.
//!
//! A few token rows multiply while they unpack (GEMV), in tiles of one, two or four rows. More rows
//! unpack a panel of 64 columns per cut of `K` and multiply it with all token rows (GEMM). The
//! choice never changes a bit.

use std::cell::RefCell;
use std::ops::Range;

use pagella_backend::BackendError;

use super::blocks::RowBlock;
use super::exact::{ExactGemv, ExactPanel, ExactTile, PlainGemv};
use super::gemv::Gemv;
use super::input::{ExactInput, Prepared, Shape, WideInput};
use super::output::Output;
use super::own::OwnTask;
use super::small_float::SmallFloatGemv;
use super::weights::{CpuLinear, Packed, Weights};
use super::wide::{WideGemv, WidePanel, WideTile};
use crate::simd::{Isa, Kernel, LANES, Simd};
use crate::threads::Pool;

/// Most token rows that take the GEMV path in exact arithmetic, whose weights are dear to make twice.
const GEMV_ROWS_MAX: usize = 2;
/// The same in wide arithmetic.
const WIDE_GEMV_ROWS_MAX: usize = 16;
/// Token rows of a GEMV tile from three rows on: all sums stay in registers. Unpacking again for the
/// next four rows costs less than a panel, which is written and read once more.
const GEMV_TILE_ROWS: usize = 4;
/// Column tiles of a panel.
const PANEL_TILES: usize = 4;
/// Packed rows of a panel: 64 columns of it stay in the second-level cache.
const PANEL_ROWS: usize = 256;
/// Token rows of one GEMM task: its sums stay in the second-level cache.
const TASK_ROWS: usize = 192;
/// Tasks per thread: enough to even out cores that run at different speeds, and none so long that
/// others wait for it when its core is taken away.
const TASKS_PER_THREAD: usize = 8;
/// Weights that are worth a task of their own: reading them takes some microseconds, several times
/// what it takes to hand a task over.
const TASK_BYTES_MIN: usize = 128 << 10;

/// One linear to run.
pub(crate) struct Job<'a> {
    pub(crate) linear: &'a CpuLinear,
    pub(crate) input: &'a Prepared<'a>,
    pub(crate) output: Output<'a>,
}

impl Job<'_> {
    fn is_gemv(&self) -> bool {
        self.input.shape().direct
    }
}

/// A share of a job: some column tiles, some token tiles.
struct Task {
    job: usize,
    tiles: Range<usize>,
    token_tiles: Range<usize>,
}

/// How `m` token rows are cut on this machine.
pub(crate) fn shape(isa: Isa, m: usize, wide: bool) -> Shape {
    if m <= if wide { WIDE_GEMV_ROWS_MAX } else { GEMV_ROWS_MAX } {
        let rows_per_tile = if m <= 2 { m.max(1) } else { GEMV_TILE_ROWS };
        return Shape { m, rows_per_tile, direct: true };
    }
    // The fewest padded rows win; among equals the largest tile, which reuses a load most.
    let padded = |rows: &usize| (m.div_ceil(*rows) * rows, usize::MAX - rows);
    let rows_per_tile = isa.run(TileRows).iter().copied().min_by_key(padded).unwrap_or(1);
    Shape { m, rows_per_tile, direct: false }
}

/// Token rows a micro-kernel may have on this level; all are instantiated by [`with_rows`].
struct TileRows;

impl Kernel for TileRows {
    type Out = &'static [usize];

    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> &'static [usize] {
        match S::GEMM_ROWS {
            12.. => &[4, 8, 12],
            6.. => &[4, 6],
            _ => &[4],
        }
    }
}

/// Runs all jobs; they may share inputs, and need not have equally many rows.
pub(crate) fn run(isa: Isa, pool: &Pool, jobs: &[Job<'_>]) -> Result<(), BackendError> {
    let total: usize = jobs.iter().map(|j| j.linear.bytes()).sum();
    let share = (total / (pool.threads() * TASKS_PER_THREAD)).max(TASK_BYTES_MIN);
    let mut tasks = Vec::new();
    for (index, job) in jobs.iter().enumerate() {
        let gemv = job.is_gemv();
        let tiles = job.linear.tiles();
        let wanted = share.div_ceil(job.linear.tile_bytes().max(1));
        let panel = match &job.linear.weights {
            Weights::Own(own) => own.tile_step(),
            _ => PANEL_TILES,
        };
        let step = if gemv { wanted.next_multiple_of(panel).max(panel) } else { panel };
        let token_tiles = job.input.shape().tiles();
        let token_step = (TASK_ROWS / job.input.shape().rows_per_tile).max(1);
        for first in (0..tiles).step_by(step) {
            for token_first in (0..token_tiles).step_by(token_step) {
                tasks.push(Task {
                    job: index,
                    tiles: first..tiles.min(first + step),
                    token_tiles: token_first..token_tiles.min(token_first + token_step),
                });
            }
        }
    }
    pool.run(tasks.len(), &|i| {
        let task = &tasks[i];
        let job = &jobs[task.job];
        if let (Weights::Own(own), Prepared::Exact(input)) = (&job.linear.weights, job.input) {
            let (tiles, token_tiles) = (task.tiles.clone(), task.token_tiles.clone());
            return own.run(isa, &OwnTask { input, tiles, token_tiles, output: &job.output });
        }
        if job.is_gemv() {
            gemv(isa, job, task.tiles.clone());
        } else {
            gemm(isa, job, task);
        }
    })
}

fn gemv(isa: Isa, job: &Job<'_>, tiles: Range<usize>) {
    let (linear, output, blocks) = (job.linear, &job.output, &job.linear.input.blocks[..]);
    let (shape, rows) = (job.input.shape(), linear.input.rows);
    macro_rules! run {
        ($arithmetic:expr) => {
            isa.run(Gemv { arithmetic: $arithmetic, blocks, tiles, shape, output })
        };
    }
    match (job.input, &linear.weights, shape.rows_per_tile) {
        (Prepared::Wide(input), Weights::Packed(packed), 1) => {
            run!(WideGemv::<1> { packed, input })
        }
        (Prepared::Wide(input), Weights::Packed(packed), 2) => {
            run!(WideGemv::<2> { packed, input })
        }
        (Prepared::Wide(input), Weights::Packed(packed), 4) => {
            run!(WideGemv::<4> { packed, input })
        }
        (Prepared::Exact(input), Weights::Packed(packed), 1) => {
            run!(ExactGemv::<1> { packed, rows, input })
        }
        (Prepared::Exact(input), Weights::Packed(packed), 2) => {
            run!(ExactGemv::<2> { packed, rows, input })
        }
        (Prepared::Exact(input), Weights::Plain(plain), 1) => {
            run!(PlainGemv::<1> { plain, rows, input })
        }
        (Prepared::Exact(input), Weights::Plain(plain), 2) => {
            run!(PlainGemv::<2> { plain, rows, input })
        }
        (Prepared::Exact(input), Weights::SmallFloat(codes), 1) => {
            run!(SmallFloatGemv::<1> { codes, input })
        }
        (Prepared::Exact(input), Weights::SmallFloat(codes), 2) => {
            run!(SmallFloatGemv::<2> { codes, input })
        }
        _ => unreachable!("tiles of such rows; plain weights take exact inputs"),
    }
}

/// Calls a kernel with the token rows of a tile as a constant.
macro_rules! with_rows {
    ($rows:expr, $mr:ident => $body:expr) => {
        match $rows {
            4 => {
                const $mr: usize = 4;
                $body
            }
            6 => {
                const $mr: usize = 6;
                $body
            }
            8 => {
                const $mr: usize = 8;
                $body
            }
            12 => {
                const $mr: usize = 12;
                $body
            }
            _ => unreachable!("rows_per_tile gives no other number"),
        }
    };
}

pub(super) use with_rows;

#[derive(Default)]
struct Scratch {
    exact_panel: Vec<f32>,
    wide_panel: Vec<i32>,
    acc: Vec<f32>,
    total: Vec<f32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// One task: columns of four tiles, some token tiles, all of `K`.
fn gemm(isa: Isa, job: &Job<'_>, task: &Task) {
    SCRATCH.with(|cell| {
        let scratch = &mut *cell.borrow_mut();
        let sums = task.token_tiles.len() * PANEL_TILES * job.input.shape().rows_per_tile * LANES;
        for buffer in [&mut scratch.acc, &mut scratch.total] {
            buffer.clear();
            buffer.resize(sums, 0.0);
        }
        match (job.input, &job.linear.weights) {
            (Prepared::Exact(input), _) => exact_gemm(isa, job.linear, input, task, scratch),
            (Prepared::Wide(input), Weights::Packed(packed)) => {
                wide_gemm(isa, job.linear, packed, input, task, scratch)
            }
            _ => unreachable!("plain weights take exact inputs"),
        }
        isa.run(Finish { job, task, total: &scratch.total });
    });
}

/// Cuts row blocks into runs of at most [`PANEL_ROWS`] rows: `(first block, blocks)`.
fn panels(blocks: &[RowBlock]) -> impl Iterator<Item = (usize, &[RowBlock])> {
    let mut first = 0;
    std::iter::from_fn(move || {
        let start_row = blocks.get(first)?.first_row;
        let rest = &blocks[first..];
        let fits = |b: &&RowBlock| b.first_row + b.rows <= start_row + PANEL_ROWS;
        let count = rest.iter().take_while(fits).count().max(1);
        let run = (first, &rest[..count]);
        first += count;
        Some(run)
    })
}

fn exact_gemm(
    isa: Isa,
    linear: &CpuLinear,
    input: &ExactInput<'_>,
    task: &Task,
    scratch: &mut Scratch,
) {
    let mr = input.shape.rows_per_tile;
    let tile_len = linear.input.rows * mr;
    scratch.exact_panel.resize(PANEL_TILES * PANEL_ROWS * LANES, 0.0);
    for (_, blocks) in panels(&linear.input.blocks) {
        for (slot, tile) in task.tiles.clone().enumerate() {
            let panel = panel_slot(&mut scratch.exact_panel, slot, LANES * PANEL_ROWS);
            isa.run(ExactPanel { linear, tile, blocks, panel });
        }
        for (index, token_tile) in task.token_tiles.clone().enumerate() {
            let values = &input.values[token_tile * tile_len..(token_tile + 1) * tile_len];
            for slot in 0..task.tiles.len() {
                let panel = &scratch.exact_panel[slot * LANES * PANEL_ROWS..];
                let sums = (index * PANEL_TILES + slot) * mr * LANES;
                let acc = &mut scratch.acc[sums..sums + mr * LANES];
                let total = &mut scratch.total[sums..sums + mr * LANES];
                with_rows!(mr, MR => isa.run(ExactTile::<MR> { panel, blocks, values, acc, total }));
            }
        }
    }
}

fn wide_gemm(
    isa: Isa,
    linear: &CpuLinear,
    packed: &Packed,
    input: &WideInput<'_>,
    task: &Task,
    scratch: &mut Scratch,
) {
    let mr = input.shape.rows_per_tile;
    let pair_len = linear.input.rows / 2 * mr;
    let block_len = linear.input.blocks.len() * mr;
    let slot_len = PANEL_ROWS / 2 * LANES;
    scratch.wide_panel.resize(PANEL_TILES * slot_len, 0);
    let (scales, groups) = (packed.scales.view(), packed.groups);
    for (first_block, blocks) in panels(&linear.input.blocks) {
        for (slot, tile) in task.tiles.clone().enumerate() {
            let panel = panel_slot(&mut scratch.wide_panel, slot, slot_len);
            isa.run(WidePanel { packed, tile, blocks, panel });
        }
        for (index, token_tile) in task.token_tiles.clone().enumerate() {
            let pairs = &input.pairs[token_tile * pair_len..(token_tile + 1) * pair_len];
            let span = token_tile * block_len..(token_tile + 1) * block_len;
            let (x_scales, x_sums) = (&input.scales[span.clone()], &input.sums[span]);
            for (slot, column_tile) in task.tiles.clone().enumerate() {
                let panel = &scratch.wide_panel[slot * slot_len..];
                let sums = (index * PANEL_TILES + slot) * mr * LANES;
                let acc = &mut scratch.acc[sums..sums + mr * LANES];
                let total = &mut scratch.total[sums..sums + mr * LANES];
                with_rows!(mr, MR => isa.run(WideTile::<MR> {
                    panel, blocks, first_block, scales, groups, column_tile,
                    pairs, x_scales, x_sums, acc, total,
                }));
            }
        }
    }
}

fn panel_slot<T>(panel: &mut [T], slot: usize, len: usize) -> &mut [T] {
    &mut panel[slot * len..(slot + 1) * len]
}

/// Hands the finished sums of a task to the output.
struct Finish<'a> {
    job: &'a Job<'a>,
    task: &'a Task,
    total: &'a [f32],
}

impl Kernel for Finish<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let shape = self.job.input.shape();
        let mr = shape.rows_per_tile;
        for (index, token_tile) in self.task.token_tiles.clone().enumerate() {
            for (slot, tile) in self.task.tiles.clone().enumerate() {
                for row in 0..mr.min(shape.m - token_tile * mr) {
                    let at = ((index * PANEL_TILES + slot) * mr + row) * LANES;
                    // SAFETY: 16 sums per row; the columns and rows are this task's own.
                    unsafe {
                        let sum = S::load(self.total[at..at + LANES].as_ptr());
                        self.job.output.put::<S>(token_tile * mr + row, tile, sum);
                    }
                }
            }
        }
    }
}
