//! Many rows on chips whose tensor cores take warpgroups: weights are dequantised into scratch
//! memory, slice by slice if they are large, and multiplied from there.

use pagella_backend::BackendError;

use super::{Group, Input, Runner, SLICE_ROWS, prepare};
use crate::device::{Device, Launch};
use crate::layout::args::{DEQUANT_THREADS, DequantArgs, dequant_grid};
use crate::layout::{TILE_BYTES, TILE_COLUMNS, TILE_ROWS};
use crate::linear::args::PrefillArgs;
use crate::scratch::Use;

/// Fewest rows for which dequantising pays.
pub(crate) const ROWS_MIN: usize = 129;

/// Whether this path is the faster one.
pub(super) fn pays(runner: &Runner<'_>, input: &Input) -> bool {
    runner.device.has_wgmma() && input.rows >= ROWS_MIN
}

/// Columns of one linear that are dequantised and multiplied together.
#[derive(Clone, Copy)]
struct Slice {
    matrix: usize,
    first_tile: usize,
    tiles: usize,
}

pub(super) fn run(
    runner: &Runner<'_>,
    input: &Input,
    group: &Group<'_>,
) -> Result<(), BackendError> {
    let (x16, rows_padded) = prepare(runner, input, group)?;
    let k = group.used().first().map_or(0, |matrix| matrix.k as usize);
    let tile_elements = TILE_COLUMNS * k.div_ceil(TILE_ROWS) * TILE_ROWS;
    let tiles_max = (runner.dequantised_max / tile_elements.max(1)).max(1);
    let mut pending: Vec<Slice> = Vec::new();
    for slice in slices(group, tiles_max) {
        let joins = |last: &Slice| {
            let tiles: usize = pending.iter().map(|slice| slice.tiles).sum();
            tiles + slice.tiles <= tiles_max && x16[last.matrix] == x16[slice.matrix]
        };
        if pending.last().is_some_and(|last| !joins(last)) {
            launch(runner, input, group, &pending, (x16, rows_padded))?;
            pending.clear();
        }
        pending.push(slice);
    }
    launch(runner, input, group, &pending, (x16, rows_padded))
}

/// All columns of all linears, in pieces of at most `tiles_max` column tiles.
fn slices(group: &Group<'_>, tiles_max: usize) -> Vec<Slice> {
    let mut slices = Vec::new();
    for (matrix, args) in group.used().iter().enumerate() {
        let tiles = (args.n as usize).div_ceil(TILE_COLUMNS);
        slices.extend((0..tiles).step_by(tiles_max).map(|first_tile| Slice {
            matrix,
            first_tile,
            tiles: tiles_max.min(tiles - first_tile),
        }));
    }
    slices
}

/// Dequantises some slices, at most three with the same inputs, and multiplies them.
fn launch(
    runner: &Runner<'_>,
    input: &Input,
    group: &Group<'_>,
    slices: &[Slice],
    (x16, rows_padded): ([u64; super::MATRICES_MAX], usize),
) -> Result<(), BackendError> {
    let Some(first) = slices.first() else { return Ok(()) };
    let k = group.matrices[first.matrix].k as usize;
    let tile_bytes = k.div_ceil(SLICE_ROWS) * TILE_BYTES;
    let tiles: usize = slices.iter().map(|slice| slice.tiles).sum();
    let w16 = runner.scratch.ensure(runner.device, Use::Weights, tiles * tile_bytes)?;
    let mut args = PrefillArgs {
        x16: x16[first.matrix],
        n_matrices: slices.len() as u32,
        rows: input.rows as u32,
        rows_padded: rows_padded as u32,
        add: group.mode,
        ..PrefillArgs::default()
    };
    let mut at = w16;
    for (i, slice) in slices.iter().enumerate() {
        let matrix = group.matrices[slice.matrix];
        let dequant = DequantArgs {
            strips: matrix.strips,
            chunks: matrix.chunks,
            w16: at,
            strip_bytes: matrix.strip_bytes,
            n_chunks: matrix.n_chunks,
            n_strips: matrix.n_strips,
            k: matrix.k,
            kind: matrix.kind,
            first_tile: slice.first_tile as u32,
        };
        let (x, y) = dequant_grid(slice.tiles, k);
        let grid = Launch { grid: [x, y, 1], threads: DEQUANT_THREADS, shared_bytes: 0 };
        runner.device.launch("pg_dequant", grid, &dequant)?;
        let first_column = (slice.first_tile * TILE_COLUMNS) as u64;
        args.w16[i] = at;
        args.matrix[i] = matrix;
        args.matrix[i].out += 4 * first_column;
        if matrix.bias != 0 {
            args.matrix[i].bias += 4 * first_column;
        }
        let columns = (slice.tiles * TILE_COLUMNS) as u32;
        args.matrix[i].n = columns.min(matrix.n - first_column as u32);
        at += (slice.tiles * tile_bytes) as u64;
    }
    multiply(runner, &args)
}

/// An instance of the kernel.
struct Width {
    name: &'static str,
    columns: u32,
    stages: u32,
    /// Time of a wave of clusters relative to other widths, as measured.
    cost: u32,
}

/// Widest first; `PrefillWidth` of `kernels/prefill.cuh`.
const WIDTHS: [Width; 3] = [
    Width { name: "pg_prefill_w128", columns: 128, stages: 5, cost: 18 },
    Width { name: "pg_prefill_w64", columns: 64, stages: 8, cost: 11 },
    Width { name: "pg_prefill_w32", columns: 32, stages: 10, cost: 8 },
];
/// Threads of a block.
const THREADS: u32 = 384;
/// Tokens of a tile.
const TOKENS: u32 = 128;
/// Blocks of a cluster.
const PAIR: u32 = 2;

impl Width {
    /// Clusters' worth of work.
    fn units(&self, args: &PrefillArgs) -> u32 {
        let used = &args.matrix[..args.n_matrices as usize];
        let tiles: u32 = used.iter().map(|matrix| matrix.n.div_ceil(self.columns)).sum();
        args.rows.div_ceil(TOKENS) * tiles.div_ceil(PAIR)
    }

    /// `PrefillShared` of `kernels/prefill.cuh`.
    fn shared_bytes(&self) -> u32 {
        const ROW_BYTES: u32 = 128;
        let stage = (TOKENS + self.columns) * ROW_BYTES;
        let results = TOKENS * self.columns * 4;
        let barriers = 16 * self.stages + 32;
        self.stages * stage + results + barriers
    }
}

/// How the widest instance is launched where there is work for every multiprocessor.
pub(crate) fn launch_widest(device: &Device) -> Launch {
    let [widest, ..] = &WIDTHS;
    let blocks = PAIR * (device.limits.sms / PAIR).max(1);
    Launch { grid: [blocks, 1, 1], threads: THREADS, shared_bytes: widest.shared_bytes() }
}

/// Multiplies with the width that takes the least time.
fn multiply(runner: &Runner<'_>, args: &PrefillArgs) -> Result<(), BackendError> {
    let clusters = (runner.device.limits.sms / PAIR).max(1);
    let time = |width: &Width| width.units(args).div_ceil(clusters) * width.cost;
    let Some(width) = WIDTHS.iter().min_by_key(|width| time(width)) else { return Ok(()) };
    let blocks = PAIR * clusters.min(width.units(args));
    let shared_bytes = width.shared_bytes();
    let launch = Launch { grid: [blocks, 1, 1], threads: THREADS, shared_bytes };
    runner.device.launch(width.name, launch, args)
}
