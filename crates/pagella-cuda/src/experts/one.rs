//! A single row: two launches that read the weights of its experts, and no others.

use pagella_backend::BackendError;

use super::args::{DownArgs, ExpertMatrixArgs, GateUpArgs, StackShape};
use super::run::Mix;
use crate::device::Launch;

/// An instance of a kernel: `Stack`.
struct Kernel {
    name: &'static str,
    /// Warps of a block.
    warps: u32,
    /// Chunks in flight per warp.
    depth: u32,
    /// Blocks that its registers allow on a multiprocessor.
    blocks_per_sm: u32,
}

const GATE_UP: Kernel = Kernel { name: "pg_moe_gate_up_1", warps: 8, depth: 4, blocks_per_sm: 2 };
/// Faster first.
const DOWN: [Kernel; 2] = [
    Kernel { name: "pg_moe_down_1", warps: 16, depth: 3, blocks_per_sm: 1 },
    Kernel { name: "pg_moe_down_1_small", warps: 8, depth: 2, blocks_per_sm: 2 },
];
/// Columns of a strip.
const STRIP_COLUMNS: u32 = 32;
/// Shared memory that a kernel declares for itself, at most.
const SHARED_STATIC: u32 = 2560;
/// The same with what the system keeps for every block.
const SHARED_RESERVED: u32 = SHARED_STATIC + 1024;

/// Bytes of `StackMemory` in `kernels/moe_stack.cuh`.
fn stack_bytes(
    kernel: &Kernel,
    shape: &StackShape,
    n: u32,
    inputs: u32,
    features_bytes: u32,
) -> u64 {
    let rings = u64::from(kernel.warps * kernel.depth) * u64::from(shape.slot_bytes);
    let x = u64::from(inputs) * 2 * u64::from(shape.k);
    let sums = 4 * u64::from(STRIP_COLUMNS) * u64::from(shape.segments + 1);
    let of_matrix = size_of::<ExpertMatrixArgs>() as u64 + 16 * u64::from(shape.chunks) + sums;
    rings + x + u64::from(features_bytes) + u64::from(n) * of_matrix
}

/// Shared memory of the two kernels, if they can be launched.
struct Plan {
    gate_up_bytes: u32,
    gate_up_features: u32,
    down: &'static Kernel,
    down_bytes: u32,
    down_features: u32,
    /// Rows of activated gates that a block of the second kernel holds besides the packed ones.
    staged: u32,
}

fn plan(mix: &Mix<'_>) -> Option<Plan> {
    let op = &mix.layer.op;
    let most = u64::from(mix.runner.device.limits.shared_bytes_max.saturating_sub(SHARED_STATIC));
    let fitting = |bytes: u64| u32::try_from(bytes).ok().filter(|_| bytes <= most);
    let (hidden, inner) = (op.hidden as u32, op.inner as u32);
    let k = op.experts_per_token as u32;
    let gate_up_features = (2 * hidden).next_multiple_of(16);
    let inputs = mix.table.orders as u32;
    let gate_up = stack_bytes(&GATE_UP, &mix.table.gate_up, 2, inputs, gate_up_features);
    let mut ways = DOWN.iter().flat_map(|kernel| [(kernel, k), (kernel, 1)]);
    let (down, staged, down_bytes) = ways.find_map(|(kernel, staged)| {
        let bytes = stack_bytes(kernel, &mix.table.down, k, k, 2 * inner * staged);
        Some((kernel, staged, fitting(bytes)?))
    })?;
    Some(Plan {
        gate_up_bytes: fitting(gate_up)?,
        gate_up_features,
        down,
        down_bytes,
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
    let at_once = |kernel: &Kernel, shared_bytes: u32| {
        let fitting = device.limits.shared_bytes_max / (shared_bytes + SHARED_RESERVED);
        device.limits.sms * fitting.clamp(1, kernel.blocks_per_sm)
    };
    let launch = |kernel: &Kernel, blocks: u32, shared_bytes: u32| Launch {
        grid: [blocks, 1, 1],
        threads: 32 * kernel.warps,
        shared_bytes,
    };
    let blocks_per_expert = at_once(&GATE_UP, plan.gate_up_bytes) / k;
    let blocks_per_expert = blocks_per_expert.clamp(1, table.inner_strips);
    let (activation, limit) = mix.act();
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
        activation,
        limit,
        weigh_input: u32::from(mix.weighs_inputs()),
        pad: 0,
    };
    // One block more writes the choices for the next kernel.
    let gate_up = launch(&GATE_UP, k * blocks_per_expert + 1, plan.gate_up_bytes);
    device.launch(GATE_UP.name, gate_up, &args)?;
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
    let blocks = table.hidden_strips.min(at_once(plan.down, plan.down_bytes));
    device.launch(plan.down.name, launch(plan.down, blocks, plan.down_bytes), &args)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_stack_is_what_the_kernel_lays_out() {
        let shape = StackShape { slot_bytes: 2112, chunks: 16, k: 2048, segments: 8 };
        let entry = size_of::<ExpertMatrixArgs>() as u64;
        let expected = 8 * 4 * 2112 + 2 * 4096 + 4096 + 2 * (entry + 256 + 8 * 128 + 128);
        assert_eq!(stack_bytes(&GATE_UP, &shape, 2, 2, 4096), expected);
    }
}
