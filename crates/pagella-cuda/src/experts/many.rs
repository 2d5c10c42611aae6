//! Several rows: choices are dealt to experts on the device, and every expert's rows run in tiles.

use pagella_backend::BackendError;

use super::args::{CombineArgs, MoePrepArgs, MoeTileArgs, PlanArgs, PrepActArgs, StackShape};
use super::prefill;
use super::room::tiles_max;
use super::run::Mix;
use crate::device::{Device, Launch};
use crate::linear::{Stages, TileShape};
use crate::scratch::Use;

/// Threads of a block that prepares or combines a row.
const ROW_THREADS: u32 = 256;
/// Threads of a block that plans an expert.
const PLAN_THREADS: u32 = 512;
/// Most rows whose choices every block of the plan makes for itself; more get a launch of their own.
const ROWS_PLANNED_AT_ONCE: usize = 64;
/// Rows of a block of `pg_moe_route`.
const ROUTE_ROWS: usize = 8;
/// Columns of a block of `pg_moe_combine`.
const COMBINE_COLUMNS: u32 = 1024;
/// Warps of a block to try, by whether a tile has many tokens: few where memory limits, many where
/// inputs are shared more.
const WARPS: [&[u32]; 2] = [&[4, 2, 1], &[8, 4, 2, 1]];

/// Tokens of a tile: about as many as an expert has, some more to spare most experts a second one.
fn tile_tokens(rows: usize, experts: usize, experts_per_token: usize) -> u32 {
    let expected = (rows * experts_per_token).div_ceil(experts);
    match rows.min(expected + expected / 2) {
        ..=8 => 8,
        9..=16 => 16,
        17..=32 => 32,
        _ => 64,
    }
}

/// How the linears of one projection, or of two, are launched.
struct Cut {
    stages: Stages,
    column_tiles: u32,
    /// Whether segments are spread over blocks.
    split: bool,
}

fn cut(
    device: &Device,
    tokens: u32,
    shape: &StackShape,
    strips: u32,
    tiles: u32,
) -> Result<Cut, BackendError> {
    let StackShape { slot_bytes, chunks, .. } = *shape;
    let room = TileShape { tokens, slot_bytes, chunks };
    let stages = room.stages(&device.limits, WARPS[usize::from(tokens > 32)])?;
    let column_tiles = strips.div_ceil(stages.warps);
    // Too few blocks would leave multiprocessors idle: their segments go to different ones.
    let split = tiles * column_tiles * 4 < device.limits.sms * 3;
    Ok(Cut { stages, column_tiles, split })
}

pub(super) fn run(mix: &Mix<'_>) -> Result<(), BackendError> {
    let (op, device) = (&mix.layer.op, mix.runner.device);
    let choices = mix.rows * op.experts_per_token;
    let prefill_pays = prefill::pays(mix);
    let few = tile_tokens(mix.rows, op.experts, op.experts_per_token);
    let tokens = if prefill_pays { prefill::TILE_TOKENS } else { few };
    let tiles = tiles_max(choices, op.experts, tokens as usize) as u32;
    let linears = |which| match prefill_pays {
        true => prefill::multiply(mix, which),
        false => multiply(mix, tokens, tiles, which),
    };
    make_plan(mix, tokens)?;
    prepare(mix, choices)?;
    linears(Projections::GateUp)?;
    activate(mix, choices)?;
    linears(Projections::Down)?;
    let args = CombineArgs {
        y: mix.at(mix.room.out),
        ids: mix.at(mix.room.ids),
        slots: mix.at(mix.room.slots),
        weights: if mix.weighs_inputs() { 0 } else { mix.at(mix.room.weights) },
        residual: mix.residual,
        experts_per_token: mix.route.experts_per_token,
        width: op.hidden as u32,
        scale: op.scale,
        pad: 0,
    };
    let grid = [mix.rows as u32, (op.hidden as u32).div_ceil(COMBINE_COLUMNS), 1];
    let launch = Launch { grid, threads: ROW_THREADS, shared_bytes: 0 };
    device.launch("pg_moe_combine", launch, &args)
}

/// Choices, slots and tiles.
fn make_plan(mix: &Mix<'_>, tokens: u32) -> Result<(), BackendError> {
    let (room, device) = (&mix.room, mix.runner.device);
    let routed = mix.rows > ROWS_PLANNED_AT_ONCE;
    let args = PlanArgs {
        route: mix.route,
        ids: mix.at(room.ids),
        weights: mix.at(room.weights),
        slots: mix.at(room.slots),
        tiles: mix.at(room.tiles),
        first_tiles: mix.at(room.first_tiles),
        rows: mix.rows as u32,
        tile_tokens: tokens,
        routed: u32::from(routed),
        pad: 0,
    };
    if routed {
        let blocks = mix.rows.div_ceil(ROUTE_ROWS) as u32;
        device.launch("pg_moe_route", Launch::linear(blocks, ROW_THREADS), &args)?;
    }
    let shared_bytes = if routed { 0 } else { 4 * args.rows * mix.route.experts_per_token };
    let grid = [mix.route.experts, 1, 1];
    device.launch("pg_moe_plan", Launch { grid, threads: PLAN_THREADS, shared_bytes }, &args)
}

/// A block for each choice, with a row of `width` in shared memory.
fn per_choice(choices: usize, width: usize) -> Launch {
    let shared_bytes = (2 * width as u32).next_multiple_of(16);
    Launch { grid: [choices as u32, 1, 1], threads: ROW_THREADS, shared_bytes }
}

/// Inputs of gates and ups.
fn prepare(mix: &Mix<'_>, choices: usize) -> Result<(), BackendError> {
    let (op, room) = (&mix.layer.op, &mix.room);
    let args = MoePrepArgs {
        x: mix.residual,
        norm: mix.norm,
        table: mix.table.gates(),
        ids: mix.at(room.ids),
        slots: mix.at(room.slots),
        out: room.inputs.map(|part| mix.at(part)),
        n_outputs: mix.table.orders as u32,
        experts: mix.route.experts,
        experts_per_token: mix.route.experts_per_token,
        width: op.hidden as u32,
        x_rows: room.x_rows as u32,
        pad: 0,
    };
    mix.runner.device.launch("pg_moe_prep", per_choice(choices, op.hidden), &args)
}

/// Inputs of downs.
fn activate(mix: &Mix<'_>, choices: usize) -> Result<(), BackendError> {
    let (op, room) = (&mix.layer.op, &mix.room);
    let (act, limit) = mix.act();
    let args = PrepActArgs {
        gate: mix.at(room.gate_up[0]),
        up: mix.at(room.gate_up[1]),
        table: mix.table.downs(),
        ids: mix.at(room.ids),
        slots: mix.at(room.slots),
        weights: if mix.weighs_inputs() { mix.at(room.weights) } else { 0 },
        out: mix.at(room.inputs[0]),
        act,
        limit,
        width: op.inner as u32,
        x_rows: room.x_rows as u32,
    };
    mix.runner.device.launch("pg_moe_prep_act", per_choice(choices, op.inner), &args)
}

/// Linears that share a launch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Projections {
    GateUp,
    Down,
}

fn multiply(
    mix: &Mix<'_>,
    tokens: u32,
    tiles: u32,
    which: Projections,
) -> Result<(), BackendError> {
    let (table, room, device) = (mix.table, &mix.room, mix.runner.device);
    let (n, shape, strips, address) = match which {
        Projections::GateUp => (2, &table.gate_up, table.inner_strips, table.gates()),
        Projections::Down => (1, &table.down, table.hidden_strips, table.downs()),
    };
    let out = match which {
        Projections::GateUp => room.gate_up.map(|part| mix.at(part)),
        Projections::Down => [mix.at(room.out), 0],
    };
    let cut = cut(device, tokens, shape, strips, n * tiles)?;
    let (mut workspace, mut counters) = (0, 0);
    if cut.split {
        let sums = (tiles * n * strips) as usize;
        let bytes = sums * shape.segments as usize * tokens as usize * 128;
        workspace = mix.runner.scratch.ensure(device, Use::Partials, bytes)?;
        counters = mix.runner.scratch.ensure(device, Use::Counters, sums * 4)?;
    }
    let args = MoeTileArgs {
        table: address,
        tiles: mix.at(room.tiles),
        n_tiles: mix.at(room.first_tiles) + 4 * u64::from(mix.route.experts),
        x16: room.inputs.map(|part| mix.at(part)),
        out,
        workspace,
        counters,
        experts: mix.route.experts,
        projections: n,
        column_tiles: cut.column_tiles,
        n_strips: strips,
        x_rows: room.x_rows as u32,
        split: u32::from(cut.split),
        segments: shape.segments,
        slot_bytes: shape.slot_bytes,
    };
    let parts = if cut.split { shape.segments } else { 1 };
    let grid = [tiles * n * cut.column_tiles * parts, 1, 1];
    let Stages { experts, warps, shared_bytes, .. } = cut.stages;
    device.launch(experts, Launch { grid, threads: 32 * warps, shared_bytes }, &args)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_are_about_as_large_as_what_an_expert_gets() {
        assert_eq!(tile_tokens(2, 8, 2), 8);
        assert_eq!(tile_tokens(32, 128, 8), 8);
        assert_eq!(tile_tokens(128, 128, 8), 16);
        assert_eq!(tile_tokens(300, 128, 8), 32);
        assert_eq!(tile_tokens(2048, 128, 8), 64);
        assert_eq!(tile_tokens(12, 3, 3), 16, "an expert has at most as many as there are rows");
    }
}
