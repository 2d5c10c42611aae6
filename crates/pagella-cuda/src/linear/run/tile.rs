//! Some rows: tiles of tokens, weights unpacked into the tensor cores' registers.

use pagella_backend::BackendError;

use super::stages::{Stages, TileShape};
use super::{Group, Input, Runner, prepare};
use crate::device::Launch;
use crate::linear::args::TileArgs;
use crate::scratch::Use;

/// Warps of a block, one strip each: few where memory limits, many where inputs are shared more.
const WARPS_FEW: u32 = 4;
const WARPS_MANY: [u32; 2] = [8, 7];

/// How a launch is cut.
struct Cut {
    /// Tokens of a tile.
    tokens: u32,
    token_tiles: u32,
    stages: Stages,
    /// Whether segments are spread over blocks.
    split: bool,
    column_tiles: u32,
}

fn cut(runner: &Runner<'_>, rows: u32, group: &Group<'_>) -> Result<Cut, BackendError> {
    let tokens = match rows {
        ..=8 => 8,
        9..=16 => 16,
        17..=32 => 32,
        _ => 64,
    };
    let token_tiles = rows.div_ceil(tokens);
    let tiles_of = |warps: u32| -> u32 {
        group.used().iter().map(|matrix| matrix.n_strips.div_ceil(warps)).sum()
    };
    // Narrow linears would leave multiprocessors idle: their segments go to different blocks.
    let sms = runner.device.limits.sms;
    let split = tiles_of(WARPS_FEW) * token_tiles * 4 < sms * 3;
    let waves = |warps: &u32| warps * (tiles_of(*warps) * token_tiles).div_ceil(sms);
    let many = WARPS_MANY.into_iter().min_by_key(waves).unwrap_or(WARPS_FEW);
    let warps = if split || tokens <= 32 { WARPS_FEW } else { many };
    let chunks = group.used().iter().map(|matrix| matrix.n_chunks).max().unwrap_or(0);
    let shape = TileShape { tokens, slot_bytes: group.slot_bytes(), chunks };
    let stages = shape.stages(&runner.device.limits, &[warps, WARPS_FEW, 2, 1])?;
    let column_tiles = tiles_of(stages.warps);
    Ok(Cut { tokens, token_tiles, stages, split, column_tiles })
}

pub(super) fn run(
    runner: &Runner<'_>,
    input: &Input,
    group: &Group<'_>,
) -> Result<(), BackendError> {
    let (x16, rows_padded) = prepare(runner, input, group)?;
    let cut = cut(runner, input.rows as u32, group)?;
    let segments = group.segments();
    let strips: u32 = group.used().iter().map(|matrix| matrix.n_strips).sum();
    let (mut workspace, mut counters) = (0, 0);
    if cut.split {
        let sums = (strips * cut.token_tiles) as usize;
        let bytes = sums * segments as usize * cut.tokens as usize * 128;
        workspace = runner.scratch.ensure(runner.device, Use::Partials, bytes)?;
        counters = runner.scratch.ensure(runner.device, Use::Counters, sums * 4)?;
    }
    let args = TileArgs {
        matrix: group.matrices,
        x16,
        workspace,
        counters,
        segment: group.segments,
        n_matrices: group.linears.len() as u32,
        rows: input.rows as u32,
        rows_padded: rows_padded as u32,
        token_tiles: cut.token_tiles,
        mode: group.mode,
        split: u32::from(cut.split),
        segments,
        slot_bytes: group.slot_bytes(),
    };
    let items = cut.column_tiles * cut.token_tiles * if cut.split { segments } else { 1 };
    let Stages { dense, warps, shared_bytes, .. } = cut.stages;
    let launch = Launch { grid: [items, 1, 1], threads: 32 * warps, shared_bytes };
    runner.device.launch(dense, launch, &args)
}
