//! Experts with many rows each, on chips whose tensor cores take warpgroups: the weights of some
//! experts at a time are dequantised into scratch memory and multiplied from there.

use pagella_backend::BackendError;

use super::args::{MoeDequantArgs, MoePrefillArgs, StackShape, WeightsArgs};
use super::many::Projections;
use super::run::Mix;
use super::table::Table;
use crate::device::Launch;
use crate::layout::args::{DEQUANT_THREADS, dequant_grid};
use crate::layout::{TILE_BYTES, TILE_COLUMNS, TILE_ROWS};
use crate::linear::prefill_w128;
use crate::scratch::Use;

/// Tokens of a tile.
pub(super) const TILE_TOKENS: u32 = 128;
/// Fewest rows of an expert, on average, for which dequantising pays.
pub(crate) const ROWS_MIN: usize = 160;

/// Whether this path is the faster one, and possible.
pub(super) fn pays(mix: &Mix<'_>) -> bool {
    let (op, table) = (&mix.layer.op, mix.table);
    let rows = mix.rows * op.experts_per_token / op.experts;
    let fits = |shape: &StackShape, columns: usize, matrices: usize| {
        matrices * matrix_bytes(shape, columns) <= 2 * mix.runner.dequantised_max
    };
    mix.runner.device.has_wgmma()
        && rows >= ROWS_MIN
        && table.is_even
        && fits(&table.gate_up, op.inner, projections_at_once(table))
        && fits(&table.down, op.hidden, 1)
}

/// Gates and ups are multiplied together where they share their inputs.
fn projections_at_once(table: &Table) -> usize {
    if table.orders == 1 { 2 } else { 1 }
}

/// Bytes of a dequantised linear.
fn matrix_bytes(shape: &StackShape, columns: usize) -> usize {
    columns.div_ceil(TILE_COLUMNS) * (shape.k as usize).div_ceil(TILE_ROWS) * TILE_BYTES
}

pub(super) fn multiply(mix: &Mix<'_>, which: Projections) -> Result<(), BackendError> {
    let (op, table, room) = (&mix.layer.op, mix.table, &mix.room);
    let [gate, up] = room.gate_up.map(|part| mix.at(part));
    let [first, second] = room.inputs.map(|part| mix.at(part));
    match which {
        Projections::GateUp if table.orders == 1 => {
            let outs = [gate, up];
            Product { table: table.gates(), n: 2, x16: first, outs, columns: op.inner }
                .run(mix, &table.gate_up)
        }
        Projections::GateUp => {
            for (table_at, x16, out) in [(table.gates(), first, gate), (table.ups(), second, up)] {
                let outs = [out, 0];
                Product { table: table_at, n: 1, x16, outs, columns: op.inner }
                    .run(mix, &table.gate_up)?;
            }
            Ok(())
        }
        Projections::Down => {
            let outs = [mix.at(room.out), 0];
            Product { table: table.downs(), n: 1, x16: first, outs, columns: op.hidden }
                .run(mix, &table.down)
        }
    }
}

/// One or two linears of every expert, on the same inputs.
struct Product {
    table: u64,
    /// How many linears.
    n: u32,
    x16: u64,
    outs: [u64; 2],
    /// Outputs of each.
    columns: usize,
}

impl Product {
    fn run(&self, mix: &Mix<'_>, shape: &StackShape) -> Result<(), BackendError> {
        let Mix { runner, room, .. } = mix;
        let experts = mix.route.experts;
        let matrix = matrix_bytes(shape, self.columns);
        let expert = self.n as usize * matrix;
        let at_once = (2 * runner.dequantised_max / expert).clamp(1, experts as usize);
        let w16 = runner.scratch.ensure(runner.device, Use::Weights, at_once * expert)?;
        let (x, y) = dequant_grid(self.columns.div_ceil(TILE_COLUMNS), shape.k as usize);
        for first_expert in (0..experts).step_by(at_once) {
            let n_experts = (at_once as u32).min(experts - first_expert);
            let weights = WeightsArgs {
                table: self.table,
                first_tiles: mix.at(room.first_tiles),
                w16,
                w_bytes: matrix as u64,
                experts,
                projections: self.n,
                first_expert,
                n_experts,
            };
            let grid = [x, y, n_experts * self.n];
            let launch = Launch { grid, threads: DEQUANT_THREADS, shared_bytes: 0 };
            runner.device.launch("pg_moe_dequant", launch, &MoeDequantArgs { weights })?;
            let args = MoePrefillArgs {
                weights,
                tiles: mix.at(room.tiles),
                x16: self.x16,
                out: self.outs,
                x_rows: room.x_rows as u32,
                k: shape.k,
                n: self.columns as u32,
                pad: 0,
            };
            runner.device.launch("pg_moe_prefill", prefill_w128(runner.device), &args)?;
        }
        Ok(())
    }
}
