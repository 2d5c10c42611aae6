//! New tokens on their way into the cache: clip, norm, rotation, growth, encoding.

use pagella_arch::{QkNormOrder, RopeStyle};
use pagella_backend::{AttentionOp, BackendError};

use super::norm::CudaNorm;
use crate::device::{Device, KernelArgs, Launch};
use crate::kv::{KvCode, LayerPages};
use crate::linear::args::NormArgs;
use crate::step::CudaStep;

/// Warps of a block; each takes one head of one token, or two that are coded together.
const WARPS: usize = 4;
/// Heads of a multiple of this are coded alone.
const ROTATION: usize = 64;

/// `kernels/append.cuh`.
#[repr(C)]
#[derive(Clone, Copy)]
struct AppendArgs {
    q: u64,
    k: u64,
    v: u64,
    rope_rows: u64,
    slots: u64,
    positions: u64,
    rope: u64,
    q_weight: u64,
    q_bias: u64,
    k_weight: u64,
    k_bias: u64,
    keys: u64,
    values: u64,
    key_scales: u64,
    value_scales: u64,
    heads: u32,
    kv_heads: u32,
    head_dim: u32,
    rotary_dim: u32,
    rope_style: u32,
    q_norm: u32,
    k_norm: u32,
    q_weight_step: u32,
    k_weight_step: u32,
    key_code: u32,
    value_code: u32,
    q_eps: f32,
    k_eps: f32,
    clip: f32,
    norm_last: u32,
    grow_length: u32,
    grow_offset: u32,
    grow_weight: f32,
}

// SAFETY: field for field the struct of the same name in `kernels/append.cuh`.
unsafe impl KernelArgs for AppendArgs {}

/// Queries, keys and values of the new tokens, as addresses.
pub(crate) struct Heads {
    pub(crate) q: u64,
    pub(crate) k: u64,
    pub(crate) v: u64,
}

/// Rows of a rotary table for the tokens of a step.
pub(crate) struct Rotation {
    pub(crate) rows: u64,
    pub(crate) dim: usize,
    pub(crate) style: RopeStyle,
}

/// Checks a per-head norm and says how far apart the weights of two heads are.
fn head_step(norm: &CudaNorm, heads: usize, head_dim: usize) -> Result<u32, BackendError> {
    match norm.elements {
        n if n == head_dim => Ok(0),
        n if n == heads * head_dim => Ok(head_dim as u32),
        found => Err(BackendError::Size { what: "norm of heads", expected: head_dim, found }),
    }
}

/// Prepares queries in place, and puts keys and values into their pages.
pub(crate) fn append(
    device: &Device,
    step: &CudaStep,
    op: &AttentionOp,
    norms: Option<(&CudaNorm, &CudaNorm)>,
    rotation: Option<Rotation>,
    heads: &Heads,
    pages: &LayerPages,
) -> Result<(), BackendError> {
    let (mut q_norm, mut k_norm) = (NormArgs::default(), NormArgs::default());
    let (mut q_step, mut k_step) = (0, 0);
    if let Some((q, k)) = norms {
        (q_norm, k_norm) = (q.args(), k.args());
        q_step = head_step(q, op.heads, op.head_dim)?;
        k_step = head_step(k, op.kv_heads, op.head_dim)?;
    }
    let growth = op.query_growth.as_ref();
    // Positions and what is added to them stay below 2^31.
    let positions = |n: usize| n.min(i32::MAX as usize) as u32;
    let [keys, values, key_scales, value_scales] = pages.pointers();
    let args = AppendArgs {
        q: heads.q,
        k: heads.k,
        v: heads.v,
        rope_rows: 0,
        slots: step.pointers.slots,
        positions: step.pointers.positions,
        rope: rotation.as_ref().map_or(0, |rotation| rotation.rows),
        q_weight: q_norm.weight,
        q_bias: q_norm.bias,
        k_weight: k_norm.weight,
        k_bias: k_norm.bias,
        keys,
        values,
        key_scales,
        value_scales,
        heads: op.heads as u32,
        kv_heads: op.kv_heads as u32,
        head_dim: op.head_dim as u32,
        rotary_dim: rotation.as_ref().map_or(0, |rotation| rotation.dim as u32),
        rope_style: match rotation.map(|rotation| rotation.style) {
            None | Some(RopeStyle::Neox) => 0,
            Some(RopeStyle::GptJ) => 1,
        },
        q_norm: q_norm.kind,
        k_norm: k_norm.kind,
        q_weight_step: q_step,
        k_weight_step: k_step,
        key_code: pages.key_code as u32,
        value_code: pages.value_code as u32,
        q_eps: q_norm.eps,
        k_eps: k_norm.eps,
        clip: op.clip_qkv.unwrap_or(0.0),
        norm_last: u32::from(op.qk_norm_order == QkNormOrder::AfterRope),
        grow_length: growth.map_or(0, |growth| positions(growth.length.max(1))),
        grow_offset: growth.map_or(0, |growth| positions(growth.offset)),
        grow_weight: growth.map_or(0.0, |growth| growth.weight),
    };
    let paired =
        matches!(pages.key_code, KvCode::Q8 | KvCode::Q4) && !op.head_dim.is_multiple_of(ROTATION);
    let together = if paired { 2 } else { 1 };
    let tasks = op.heads + 2 * (op.kv_heads / together);
    let grid = [step.tokens as u32, tasks.div_ceil(WARPS) as u32, 1];
    let launch = Launch { grid, threads: 32 * WARPS as u32, shared_bytes: 0 };
    device.launch("pg_append", launch, &args)
}
