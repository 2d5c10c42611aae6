//! One row: it stays whole in shared memory, and weights stream past it once.

use pagella_backend::BackendError;

use super::{Group, Input, Runner};
use crate::device::Launch;
use crate::linear::args::GemvArgs;

/// Warps of a block, one per segment.
const WARPS: u32 = 8;
/// More features than this go to the kernels whose threads hold more of them.
const FEATURES_FEW: u32 = 4096;
/// Shared memory that the kernel declares for itself, at most.
const SHARED_STATIC: u32 = 2304;
/// The same with what the system keeps for every block.
const SHARED_RESERVED: u32 = SHARED_STATIC + 1024;

/// An instance of the kernel.
struct Kernel {
    name: &'static str,
    /// Chunks in flight per warp.
    depth: u32,
    /// Blocks that its registers allow on a multiprocessor.
    blocks_per_sm: u32,
}

const FEW: &[Kernel] = &[Kernel { name: "pg_gemv_1", depth: 3, blocks_per_sm: 2 }];
/// Faster first.
const WIDE: &[Kernel] = &[
    Kernel { name: "pg_gemv_1_wide", depth: 3, blocks_per_sm: 1 },
    Kernel { name: "pg_gemv_1_wide_2", depth: 2, blocks_per_sm: 1 },
];

/// The first instance that fits, with its shared memory.
fn kernel(runner: &Runner<'_>, group: &Group<'_>) -> Option<(&'static Kernel, u32)> {
    let is_wide = group.used().first().is_some_and(|matrix| matrix.k_in > FEATURES_FEW);
    let most = runner.device.limits.shared_bytes_max.saturating_sub(SHARED_STATIC);
    let ways = if is_wide { WIDE } else { FEW }.iter();
    ways.map(|kernel| (kernel, shared_bytes(group, kernel.depth)))
        .find(|(_, bytes)| *bytes <= u64::from(most))
        .map(|(kernel, bytes)| (kernel, bytes as u32))
}

fn shared_bytes(group: &Group<'_>, depth: u32) -> u64 {
    let Some(first) = group.used().first() else { return 0 };
    let chunks: u64 = group.used().iter().map(|matrix| u64::from(matrix.n_chunks)).sum();
    let rings = u64::from(WARPS * depth) * u64::from(group.slot_bytes());
    let x = 2 * u64::from(first.k) + 16;
    rings + x + u64::from(features_bytes(group)) + 16 * chunks
}

/// Room for the input in its own order, where some linear permutes it.
fn features_bytes(group: &Group<'_>) -> u32 {
    let permuted = group.used().iter().any(|matrix| matrix.perm != 0);
    let k_in = group.used().first().map_or(0, |matrix| matrix.k_in);
    if permuted { (2 * k_in).next_multiple_of(16) } else { 0 }
}

/// Whether this kernel can take the input.
pub(super) fn fits(runner: &Runner<'_>, input: &Input, group: &Group<'_>) -> bool {
    let whole_vectors = group.used().iter().all(|matrix| matrix.k_in % 4 == 0);
    input.rows == 1
        && whole_vectors
        && input.stride.is_multiple_of(4)
        && kernel(runner, group).is_some()
}

pub(super) fn run(
    runner: &Runner<'_>,
    input: &Input,
    group: &Group<'_>,
) -> Result<(), BackendError> {
    let mut first_chunk = [0; super::MATRICES_MAX];
    let mut chunks = 0;
    for (matrix, first) in group.used().iter().zip(&mut first_chunk) {
        *first = chunks;
        chunks += matrix.n_chunks;
    }
    let strips: u32 = group.used().iter().map(|matrix| matrix.n_strips).sum();
    let args = GemvArgs {
        matrix: group.matrices,
        x: input.x,
        row_map: input.row_map,
        norm: input.norm,
        segment: group.segments,
        first_chunk,
        n_matrices: group.linears.len() as u32,
        rows: input.rows as u32,
        x_stride: input.stride as u32,
        mode: group.mode,
        segments: group.segments(),
        strips,
        slot_bytes: group.slot_bytes(),
        features_bytes: features_bytes(group),
    };
    // As many blocks as run at once, two per multiprocessor where they fit; shares differ by one
    // strip at most.
    let Some((kernel, shared_bytes)) = kernel(runner, group) else { return Ok(()) };
    let fitting = runner.device.limits.shared_bytes_max / (shared_bytes + SHARED_RESERVED).max(1);
    let at_once = runner.device.limits.sms * fitting.clamp(1, kernel.blocks_per_sm);
    let launch = Launch { grid: [strips.min(at_once), 1, 1], threads: 32 * WARPS, shared_bytes };
    runner.device.launch(kernel.name, launch, &args)
}
