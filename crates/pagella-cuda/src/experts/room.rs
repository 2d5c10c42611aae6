//! Memory between router and sum: one block, shared by all layers, in parts.
//!
//! How many slots and tiles the rows of a step need depends on what the router chooses. Their
//! number at most does not, so that neither memory nor grids ever depend on it.

use pagella_backend::MoeOp;

use super::args::{SLOT_ALIGN, StackShape, TILE_BYTES};
use super::table::Table;
use crate::layout::BLOCK_ROWS;

/// Parts begin at multiples of this.
const PART_ALIGN: usize = 256;
/// Packed rows of a slice of tiled inputs.
const SLICE_ROWS: usize = 64;
/// Fewest tokens of a tile.
const TILE_TOKENS_MIN: usize = 8;

/// Where the parts lie, in bytes from the start of the block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Room {
    /// `[rows][experts]`.
    pub(super) logits: usize,
    /// Of each choice, `[rows][experts_per_token]`.
    pub(super) ids: usize,
    pub(super) weights: usize,
    pub(super) slots: usize,
    pub(super) tiles: usize,
    /// First tile of each expert, and the number of tiles: `[experts + 1]`.
    pub(super) first_tiles: usize,
    /// Inputs of gates and ups as f16 tiles in their row orders; later, in the first, those of
    /// downs.
    pub(super) inputs: [usize; 2],
    /// Gates and ups, `[slots][inner]`.
    pub(super) gate_up: [usize; 2],
    /// Outputs, `[slots][hidden]`, where gates and ups were.
    pub(super) out: usize,
    /// Slots there is room for.
    pub(super) x_rows: usize,
    pub(super) bytes: usize,
}

impl Room {
    pub(super) fn new(op: &MoeOp, table: &Table, rows: usize) -> Self {
        Self::of(op, [&table.gate_up, &table.down], table.orders, rows)
    }

    fn of(op: &MoeOp, [gate_up, down]: [&StackShape; 2], orders: usize, rows: usize) -> Self {
        let extent = (op.hidden, op.inner, op.experts, op.experts_per_token);
        Self::with(extent, [gate_up.k, down.k], orders, rows)
    }

    /// As [`Room::of`], from `(hidden, inner, experts, experts per token)` and packed heights.
    fn with(
        (hidden, inner, experts, per_token): (usize, usize, usize, usize),
        [gate_up_k, down_k]: [u32; 2],
        orders: usize,
        rows: usize,
    ) -> Self {
        let mut bytes = 0;
        let mut take = |part: usize| {
            let start = bytes;
            bytes += part.next_multiple_of(PART_ALIGN);
            start
        };
        let choices = rows * per_token;
        let x_rows = slots_max(choices, experts);
        let tiled = |k: u32| (k as usize).div_ceil(SLICE_ROWS) * SLICE_ROWS * x_rows * 2;
        let input = tiled(gate_up_k);
        let mut room = Room {
            logits: take(4 * rows * experts),
            ids: take(4 * choices),
            weights: take(4 * choices),
            slots: take(4 * choices),
            tiles: take(TILE_BYTES * tiles_max(choices, experts, TILE_TOKENS_MIN)),
            first_tiles: take(4 * (experts + 1)),
            x_rows,
            ..Room::default()
        };
        room.inputs[0] = take(input.max(tiled(down_k)));
        room.inputs[1] = if orders > 1 { take(input) } else { room.inputs[0] };
        let gates = (4 * x_rows * inner).next_multiple_of(PART_ALIGN);
        room.out = take((2 * gates).max(4 * x_rows * hidden));
        room.gate_up = [room.out, room.out + gates];
        room.bytes = bytes;
        room
    }
}

/// Bytes that so many rows need, before anything is loaded: gates and ups share their row order, as
/// they do in files.
pub(crate) fn room_bytes(
    hidden: usize,
    inner: usize,
    (experts, per_token): (usize, usize),
    rows: usize,
) -> usize {
    let packed = |inputs: usize| inputs.next_multiple_of(BLOCK_ROWS) as u32;
    let extent = (hidden, inner, experts, per_token);
    Room::with(extent, [packed(hidden), packed(inner)], 1, rows).bytes
}

/// Most slots that `choices` can take, when each expert's begin at a multiple of [`SLOT_ALIGN`].
pub(super) fn slots_max(choices: usize, experts: usize) -> usize {
    let most = choices + (SLOT_ALIGN - 1) * experts.min(choices);
    most.next_multiple_of(SLOT_ALIGN)
}

/// Most tiles that `choices` can make.
pub(super) fn tiles_max(choices: usize, experts: usize, tile_tokens: usize) -> usize {
    let chosen = experts.min(choices);
    chosen + (choices - chosen) / tile_tokens
}

#[cfg(test)]
mod tests {
    use pagella_arch::{Activation, RouterScore};
    use pagella_backend::Routing;

    use super::*;

    /// What `pg_moe_plan` makes of the number of choices that every expert has.
    fn slots_and_tiles(counts: &[usize], tile_tokens: usize) -> (usize, usize) {
        let slots = counts.iter().map(|n| n.next_multiple_of(SLOT_ALIGN)).sum();
        (slots, counts.iter().map(|n| n.div_ceil(tile_tokens)).sum())
    }

    #[test]
    fn no_choice_of_the_router_needs_more_than_there_is_room_for() {
        let mut state = 1_u64;
        let mut random = move |n: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % n
        };
        for experts in [1, 3, 8, 128] {
            for choices in [1, 2, 7, 8, 9, 64, 1000] {
                for narrowness in 1..=experts.min(9) {
                    // Few experts take nearly everything, others one choice.
                    let mut counts = vec![0; experts];
                    for _ in 0..choices {
                        counts[random(experts).min(random(narrowness * narrowness))] += 1;
                    }
                    for tile_tokens in [8, 16, 64] {
                        let (slots, tiles) = slots_and_tiles(&counts, tile_tokens);
                        assert!(slots <= slots_max(choices, experts), "{counts:?}");
                        assert!(tiles <= tiles_max(choices, experts, tile_tokens), "{counts:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_worst_choice_fills_the_room() {
        // One choice for each of 8 experts, and one that begins a second tile.
        assert_eq!(slots_and_tiles(&[9, 1, 1, 1, 1, 1, 1, 1], 8), (72, 9));
        assert_eq!((slots_max(16, 8), tiles_max(16, 8, 8)), (72, 9));
    }

    #[test]
    fn parts_do_not_overlap() {
        let op = MoeOp {
            hidden: 256,
            inner: 768,
            experts: 8,
            experts_per_token: 2,
            score: RouterScore::Softmax,
            renormalize: true,
            act: Activation::Silu,
            scale: 1.0,
            routing: Routing::default(),
        };
        let shape = |k: u32| StackShape { slot_bytes: 2112, chunks: 8, k, segments: 4 };
        let room = Room::of(&op, [&shape(256), &shape(768)], 2, 5);
        // 10 choices, 8 experts: up to 66 slots, rounded.
        assert_eq!(room.x_rows, 72);
        let starts = [
            (room.logits, 4 * 5 * 8),
            (room.ids, 40),
            (room.weights, 40),
            (room.slots, 40),
            (room.tiles, 32 * 8),
            (room.first_tiles, 4 * 9),
            (room.inputs[0], 768 * 72 * 2),
            (room.inputs[1], 256 * 72 * 2),
            (room.gate_up[0], 4 * 72 * 768),
            (room.gate_up[1], 4 * 72 * 768),
            (room.bytes, 0),
        ];
        for pair in starts.windows(2) {
            let [(start, bytes), (next, _)] = [pair[0], pair[1]];
            assert!(start % PART_ALIGN == 0 && start + bytes <= next, "{room:?}");
        }
        assert_eq!(room.out, room.gate_up[0]);
        assert!(Room::of(&op, [&shape(256), &shape(768)], 1, 5).bytes < room.bytes);
    }
}
