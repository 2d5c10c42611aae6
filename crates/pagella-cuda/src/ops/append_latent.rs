//! Entries of latent attention on their way into the cache: norm, rotation, encoding.

use pagella_arch::RopeStyle;
use pagella_backend::{AttentionOp, BackendError};

use super::append::Rotation;
use crate::device::{Device, KernelArgs, Launch};
use crate::kv::LayerPages;
use crate::linear::args::NormArgs;
use crate::step::CudaStep;

/// Threads of a block, and query heads that one rotates.
const THREADS: u32 = 256;
const HEADS_PER_BLOCK: usize = 8;

/// `kernels/append_latent.cuh`.
#[repr(C)]
#[derive(Clone, Copy)]
struct AppendLatentArgs {
    q: u64,
    entry: u64,
    slots: u64,
    rope: u64,
    keys: u64,
    key_scales: u64,
    norm: NormArgs,
    heads: u32,
    head_dim: u32,
    rank: u32,
    rope_style: u32,
    key_code: u32,
    pad: u32,
}

// SAFETY: field for field the struct of the same name in `kernels/append_latent.cuh`.
unsafe impl KernelArgs for AppendLatentArgs {}

/// Rotates queries in place, and puts entries into their pages. `q` and `entry` are addresses.
pub(crate) fn append_latent(
    device: &Device,
    step: &CudaStep,
    op: &AttentionOp,
    norm: NormArgs,
    rotation: Rotation,
    (q, entry): (u64, u64),
    pages: &LayerPages,
) -> Result<(), BackendError> {
    let [keys, _, key_scales, _] = pages.pointers();
    let args = AppendLatentArgs {
        q,
        entry,
        slots: step.pointers.slots,
        rope: rotation.rows,
        keys,
        key_scales,
        norm,
        heads: op.heads as u32,
        head_dim: op.head_dim as u32,
        rank: op.value_dim() as u32,
        rope_style: match rotation.style {
            RopeStyle::Neox => 0,
            RopeStyle::GptJ => 1,
        },
        key_code: pages.key_code as u32,
        pad: 0,
    };
    let blocks = 1 + op.heads.div_ceil(HEADS_PER_BLOCK);
    let grid = [step.tokens as u32, blocks as u32, 1];
    device.launch("pg_append_latent", Launch { grid, threads: THREADS, shared_bytes: 0 }, &args)
}
