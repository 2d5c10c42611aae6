//! What a model will take of a device's memory, told without a device.
//!
//! Sizes follow from the same plans that loading and steps use. The context that the driver keeps for
//! every program is not among them, and free memory as [`crate::probe`] and [`crate::MemoryGauge`] tell it is
//! free beside that.

use pagella_backend::{ExpertExtent, StepExtent};
use pagella_formats::{Dtype, Linear};

use crate::arena::{ALIGN, OWN_BYTES_MIN};
use crate::experts::{DEQUANTISE_EXPERT_ROWS_MIN, room_bytes};
use crate::layout::{Chunk, LayoutError, TILE_COLUMNS, TILE_ROWS, plan};
use crate::linear::{DEQUANTISE_ROWS_MIN, SLICE_ROWS};
use crate::ops::attend::slot_bytes;
use crate::step::bucket_rows;
use crate::work::{HeadShape, SPAN_KEYS};

/// The driver hands out memory in pieces of this.
const PIECE_BYTES: usize = 2 << 20;
/// Smaller allocations share such pieces.
const SHARED_BELOW: usize = 1 << 20;
/// Their alignment.
const SHARED_ALIGN: usize = 512;
/// Kernels, plans of steps, rotary tables, sums of narrow linears, recorded steps. Measured.
const FIXED_BYTES: usize = 24 << 20;
/// Fewest slots of attention that steps make room for.
const SLOTS_MIN: usize = 256;

/// What an allocation of so many bytes takes.
pub fn allocation_bytes(bytes: usize) -> usize {
    let unit = if bytes < SHARED_BELOW { SHARED_ALIGN } else { PIECE_BYTES };
    bytes.saturating_add(unit - 1) / unit * unit
}

/// What weights of so many bytes take: small ones share slabs.
fn weight_bytes(bytes: usize) -> usize {
    if bytes < OWN_BYTES_MIN { bytes.next_multiple_of(ALIGN) } else { allocation_bytes(bytes) }
}

/// What a linear takes: strips, directory, row order and bias. Row orders that several linears share
/// are counted for each.
pub fn linear_bytes(linear: &Linear<'_>) -> Result<usize, LayoutError> {
    let plan = plan(linear)?;
    let order = plan.perm.as_ref().map_or(0, |perm| 4 * perm.len());
    let bias = linear.bias().map_or(0, |bias| 4 * bias.len());
    let parts = [plan.bytes(), plan.chunks.len() * size_of::<Chunk>(), order, bias];
    Ok(parts.into_iter().map(weight_bytes).sum())
}

/// What a linear takes that unfolds latent vectors: matrices of heads, two for each, in 16 bits, or
/// in twice as many where they have more digits.
pub fn unfolding_bytes(linear: &Linear<'_>) -> usize {
    let is_wide = linear.value_dtype() == Dtype::F32;
    let weights = linear.in_features() * linear.out_features();
    allocation_bytes(2 * weights * if is_wide { 2 } else { 1 })
}

/// Scratch memory of all steps, attention not counted. `dequantised_max` is how many weights are
/// dequantised at once, [`crate::CudaOptions::dequantised_max`]; `None` on chips that multiply them as
/// they are.
pub fn scratch_bytes(extent: &StepExtent, dequantised_max: Option<usize>) -> usize {
    let StepExtent { tokens, inputs, weights, experts, .. } = *extent;
    let rows = tokens.next_multiple_of(8);
    // At least one tile of columns, however small the bound.
    let tile = TILE_COLUMNS * inputs.next_multiple_of(TILE_ROWS);
    let dequantised = match dequantised_max {
        Some(most) if tokens >= DEQUANTISE_ROWS_MIN => 2 * weights.min(most.max(tile)),
        _ => 0,
    };
    let of_experts = match (&experts, dequantised_max) {
        (Some(experts), Some(most)) => dequantised_bytes(experts, tokens, most),
        _ => 0,
    };
    FIXED_BYTES
        + allocation_bytes(2 * rows * inputs.next_multiple_of(SLICE_ROWS))
        + allocation_bytes(dequantised.max(of_experts))
        + experts.map_or(0, |experts| allocation_bytes(expert_room_bytes(&experts, tokens)))
}

/// Scratch memory of attention over a cache of so many tokens.
pub fn attention_bytes(extent: &StepExtent, cache_tokens: usize) -> usize {
    let shape = HeadShape { heads: extent.heads, kv_heads: extent.kv_heads };
    let slots = (cache_tokens.div_ceil(SPAN_KEYS) + 1).next_power_of_two().max(SLOTS_MIN);
    let tiles = shape.group().div_ceil(shape.tile_rows());
    allocation_bytes(slots * tiles * slot_bytes(shape, extent.head_dim))
}

/// Memory between router and sum.
fn expert_room_bytes(extent: &ExpertExtent, tokens: usize) -> usize {
    let ExpertExtent { hidden, inner, experts, per_token } = *extent;
    room_bytes(hidden, inner, (experts, per_token), bucket_rows(tokens))
}

/// Weights of experts that are dequantised at once, where a step brings them enough rows.
fn dequantised_bytes(extent: &ExpertExtent, tokens: usize, dequantised_max: usize) -> usize {
    let ExpertExtent { hidden, inner, experts, per_token } = *extent;
    if experts == 0 || tokens * per_token / experts < DEQUANTISE_EXPERT_ROWS_MIN {
        return 0;
    }
    let of_one = |inputs: usize, outputs: usize, linears: usize| {
        let tiled = inputs.next_multiple_of(TILE_ROWS) * outputs.next_multiple_of(TILE_COLUMNS);
        let bytes = 2 * linears * tiled;
        bytes * (2 * dequantised_max / bytes.max(1)).clamp(1, experts)
    };
    let bytes = of_one(hidden, inner, 2).max(of_one(inner, hidden, 1));
    // Larger ones are multiplied as they are.
    if bytes <= 2 * dequantised_max { bytes } else { 0 }
}

#[cfg(test)]
mod tests {
    use pagella_formats::synthetic;

    use super::*;

    #[test]
    fn linears_take_what_their_plans_say_in_whole_pieces() {
        let mix = [(5, 0.1, 32), (4, 0.9, 128)];
        for (columns, rounding) in [(1024, ALIGN), (14336, PIECE_BYTES)] {
            let made = synthetic::exl2(4096, columns, &mix, 1);
            let linear = made.view();
            let strips = plan(&linear).unwrap().bytes();
            let bytes = linear_bytes(&linear).unwrap();
            let most = strips + rounding + (64 << 10);
            assert!(bytes >= strips && bytes < most, "{bytes} {strips}");
        }
        assert_eq!(allocation_bytes(1), 512);
        assert_eq!(allocation_bytes((1 << 20) - 1), 1 << 20);
        assert_eq!(allocation_bytes((2 << 20) + 1), 4 << 20);
    }

    #[test]
    fn scratch_obeys_the_bound_on_dequantised_weights() {
        let extent = StepExtent {
            tokens: 2048,
            inputs: 14336,
            weights: 4096 * 28672,
            heads: 32,
            kv_heads: 8,
            head_dim: 128,
            experts: None,
        };
        let inputs = 2 * 2048 * 14336;
        let whole = scratch_bytes(&extent, Some(512 << 20)) - FIXED_BYTES;
        assert!(
            whole >= inputs + 2 * 4096 * 28672 && whole < inputs + 2 * 4096 * 28672 + (4 << 20)
        );
        let bounded = scratch_bytes(&extent, Some(64 << 20));
        assert!(bounded - FIXED_BYTES < inputs + (128 << 20) + (4 << 20), "{bounded}");
        let never = scratch_bytes(&extent, None);
        assert!(never - FIXED_BYTES < inputs + (4 << 20), "{never}");
        // Few rows are never dequantised for.
        let few = StepExtent { tokens: 128, ..extent };
        assert!(scratch_bytes(&few, Some(512 << 20)) < FIXED_BYTES + (6 << 20));
        assert!(attention_bytes(&extent, 1 << 20) > attention_bytes(&extent, 1 << 10));
    }

    #[test]
    fn experts_add_their_room_and_may_need_more_dequantised_weights() {
        // Mixtral 8x7B: 512 rows for an expert, of which four are dequantised at once.
        let large = ExpertExtent { hidden: 4096, inner: 14336, experts: 8, per_token: 2 };
        let expert = 2 * 2 * 4096 * 14336;
        assert_eq!(dequantised_bytes(&large, 2048, 512 << 20), 4 * expert);
        assert_eq!(dequantised_bytes(&large, 256, 512 << 20), 0);
        assert_eq!(dequantised_bytes(&large, 2048, 16 << 20), 0);
        // 4096 choices in 4096 slots and up to 7 more for each expert: inputs, gates and ups.
        let slots = 4096 + 7 * 8;
        let room = 2 * slots * 14336 + 2 * 4 * slots * 14336;
        assert!((room..room + (1 << 20)).contains(&expert_room_bytes(&large, 2048)));
        let dense = StepExtent { tokens: 2048, inputs: 4096, ..StepExtent::default() };
        let mixed = scratch_bytes(&StepExtent { experts: Some(large), ..dense }, Some(512 << 20));
        assert!(mixed > scratch_bytes(&dense, None) + room + 4 * expert - (4 << 20));
    }
}
