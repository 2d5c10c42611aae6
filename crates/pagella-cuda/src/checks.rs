//! What an op must fulfil before a kernel is launched for it.

use pagella_arch::QkNormOrder;
use pagella_backend::{AttentionOp, BackendError, KvValues};

use crate::kv::{CudaKv, LayerPages};
use crate::step::CudaStep;

/// Most elements of a head with an attention sink.
const SINK_HEAD_MAX: usize = 128;

/// Checks that heads are small enough for sinks: kernels of larger ones have no registers left.
pub(crate) fn expect_room_for_sinks(op: &AttentionOp) -> Result<(), BackendError> {
    if op.head_dim <= SINK_HEAD_MAX {
        return Ok(());
    }
    Err(BackendError::unsupported(
        "cuda",
        format!("attention sinks of heads with {} elements", op.head_dim),
        format!("at most {SINK_HEAD_MAX} are; use --device cpu"),
    ))
}

/// Checks that a norm over all heads is the first thing that happens to them.
pub(crate) fn expect_norm_first(op: &AttentionOp) -> Result<(), BackendError> {
    if op.clip_qkv.is_none() && op.qk_norm_order == QkNormOrder::BeforeRope {
        return Ok(());
    }
    Err(BackendError::unsupported(
        "cuda",
        "a norm over all heads after a clamp or a rotation",
        "no known model has it",
    ))
}

/// The pages of an op's layer; everything the step names lies inside.
pub(crate) fn checked_pages<'k>(
    step: &CudaStep,
    op: &AttentionOp,
    kv: &'k CudaKv,
) -> Result<&'k LayerPages, BackendError> {
    let pages = kv.layer(op)?;
    if op.kv_heads == 0 || !op.heads.is_multiple_of(op.kv_heads) {
        let (expected, found) = (op.kv_heads, op.heads);
        return Err(BackendError::Size { what: "query heads", expected, found });
    }
    kv.expect_pages(&step.plan)?;
    Ok(pages)
}

/// Checks that values lie beside the keys.
pub(crate) fn expect_stored_values(op: &AttentionOp) -> Result<(), BackendError> {
    if op.values == KvValues::Stored {
        return Ok(());
    }
    let (expected, found) = (op.head_dim, op.value_dim());
    Err(BackendError::Size { what: "values beside the keys", expected, found })
}

/// How many elements of the keys are values.
pub(crate) fn latent_rank(op: &AttentionOp) -> Result<usize, BackendError> {
    match op.values {
        KvValues::InKeys(rank) => Ok(rank),
        KvValues::Stored => {
            let (what, expected) = ("values in the keys", op.head_dim);
            Err(BackendError::Size { what, expected, found: 0 })
        }
    }
}
