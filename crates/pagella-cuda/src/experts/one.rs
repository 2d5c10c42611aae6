//! A single row: two launches that read the weights of its experts, and no others.

use pagella_backend::BackendError;

use super::args::{DownArgs, ExpertMatrixArgs, GateUpArgs, StackShape};
use super::run::Mix;
use crate::device::Launch;

/// Warps of a block: `kStackWarps`.
const WARPS: u32 = 8;
/// Chunks in flight per warp: `kStackDepth`.
const DEPTH: u32 = 4;
/// Columns of a strip.
const STRIP_COLUMNS: u32 = 32;
/// Blocks that the kernels' registers allow on a multiprocessor.
const BLOCKS_PER_SM: u32 = 2;
/// Shared memory that a kernel declares for itself, at most.
const SHARED_STATIC: u32 = 2560;
/// The same with what the system keeps for every block.
const SHARED_RESERVED: u32 = SHARED_STATIC + 1024;

/// Bytes of `StackMemory` in `kernels/moe_stack.cuh`.
fn stack_bytes(shape: &StackShape, n: u32, inputs: u32, features_bytes: u32) -> u64 {
    let rings = u64::from(WARPS * DEPTH) * u64::from(shape.slot_bytes);
    let x = u64::from(inputs) * 2 * u64::from(shape.k);
    let sums = 4 * u64::from(STRIP_COLUMNS) * u64::from(shape.segments + 1);
    let of_matrix = size_of::<ExpertMatrixArgs>() as u64 + 16 * u64::from(shape.chunks) + sums;
    rings + x + u64::from(features_bytes) + u64::from(n) * of_matrix
}

/// Shared memory of the two kernels, if they can be launched.
struct Plan {
    gate_up_bytes: u32,
    gate_up_features: u32,
    down_bytes: u32,
    down_features: u32,
    /// Rows of activated gates that a block of the second kernel holds besides the packed ones.
    staged: u32,
}

fn plan(mix: &Mix<'_>) -> Option<Plan> {
    let op = &mix.layer.op;
    let most = u64::from(mix.runner.device.shared_bytes_max.saturating_sub(SHARED_STATIC));
    let fitting = |bytes: u64| u32::try_from(bytes).ok().filter(|_| bytes <= most);
    let (hidden, inner) = (op.hidden as u32, op.inner as u32);
    let k = op.experts_per_token as u32;
    let gate_up_features = (2 * hidden).next_multiple_of(16);
    let inputs = mix.table.orders as u32;
    let gate_up = stack_bytes(&mix.table.gate_up, 2, inputs, gate_up_features);
    let down = |staged: u32| stack_bytes(&mix.table.down, k, k, 2 * inner * staged);
    let staged = [k, 1].into_iter().find(|staged| fitting(down(*staged)).is_some())?;
    Some(Plan {
        gate_up_bytes: fitting(gate_up)?,
        gate_up_features,
        down_bytes: fitting(down(staged))?,
        down_features: 2 * inner * staged,
        staged,
    })
}

/// Whether these kernels can take the step.
pub(super) fn fits(mix: &Mix<'_>) -> bool {
    let op = &mix.layer.op;
    let whole_vectors = op.hidden.is_multiple_of(4) && op.inner.is_multiple_of(8);
    mix.rows == 1 && whole_vectors && plan(mix).is_some()
}

pub(super) fn run(mix: &Mix<'_>) -> Result<(), BackendError> {
    let Some(plan) = plan(mix) else { return Ok(()) };
    let (op, table, room, device) = (&mix.layer.op, mix.table, &mix.room, mix.runner.device);
    let k = mix.route.experts_per_token;
    let at_once = |shared_bytes: u32| {
        let fitting = device.shared_bytes_max / (shared_bytes + SHARED_RESERVED);
        device.sms * fitting.clamp(1, BLOCKS_PER_SM)
    };
    let blocks_per_expert = (at_once(plan.gate_up_bytes) / k).clamp(1, table.inner_strips);
    let args = GateUpArgs {
        route: mix.route,
        norm: mix.norm,
        table: table.gates(),
        x: mix.residual,
        ids: mix.at(room.ids),
        weights: mix.at(room.weights),
        act: mix.at(room.out),
        shape: table.gate_up,
        hidden: op.hidden as u32,
        inner: op.inner as u32,
        inputs: table.orders as u32,
        features_bytes: plan.gate_up_features,
        blocks_per_expert,
        strips: table.inner_strips,
        activation: mix.act(),
        pad: 0,
    };
    let threads = 32 * WARPS;
    let launch =
        |blocks: u32, shared_bytes: u32| Launch { grid: [blocks, 1, 1], threads, shared_bytes };
    let gate_up = launch(k * blocks_per_expert, plan.gate_up_bytes);
    device.launch("pg_moe_gate_up_1", gate_up, &args)?;
    let args = DownArgs {
        table: table.downs(),
        ids: mix.at(room.ids),
        weights: mix.at(room.weights),
        act: mix.at(room.out),
        residual: mix.residual,
        shape: table.down,
        experts_per_token: k,
        hidden: op.hidden as u32,
        inner: op.inner as u32,
        staged: plan.staged,
        features_bytes: plan.down_features,
        strips: table.hidden_strips,
        scale: op.scale,
        pad: 0,
    };
    let blocks = table.hidden_strips.min(at_once(plan.down_bytes));
    device.launch("pg_moe_down_1", launch(blocks, plan.down_bytes), &args)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_stack_is_what_the_kernel_lays_out() {
        let shape = StackShape { slot_bytes: 2112, chunks: 16, k: 2048, segments: 8 };
        let entry = size_of::<ExpertMatrixArgs>() as u64;
        let expected = 8 * 4 * 2112 + 2 * 4096 + 4096 + 2 * (entry + 256 + 8 * 128 + 128);
        assert_eq!(stack_bytes(&shape, 2, 2, 4096), expected);
    }
}
