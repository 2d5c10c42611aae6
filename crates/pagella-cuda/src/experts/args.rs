//! Arguments of the experts' kernels, field by field as in `kernels/moe*.cuh`.
//!
//! Pointers are device addresses; zero stands for "none".

use crate::device::KernelArgs;
use crate::linear::args::{MatrixArgs, NormArgs, SEGMENTS_MAX, SegmentStart};

/// Most experts of a layer: `kExpertsMax`.
pub(super) const EXPERTS_MAX: usize = 512;
/// The slots of an expert begin at a multiple of this: `kSlotAlign`.
pub(super) const SLOT_ALIGN: usize = 8;
/// Most groups of experts: `kGroupsMax`.
pub(super) const GROUPS_MAX: usize = 32;
/// Bytes of a `MoeTile`.
pub(super) const TILE_BYTES: usize = 32;

/// `ExpertMatrix`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ExpertMatrixArgs {
    pub(super) matrix: MatrixArgs,
    pub(super) segment: [SegmentStart; SEGMENTS_MAX],
    pub(super) segments: u32,
    pub(super) pad: u32,
}

/// `MoeRoute`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct RouteArgs {
    pub(super) logits: u64,
    pub(super) cache_slots: u64,
    pub(super) bias: u64,
    pub(super) experts: u32,
    pub(super) experts_per_token: u32,
    /// 0: softmax, 1: sigmoid.
    pub(super) score: u32,
    pub(super) renormalize: u32,
    pub(super) groups: u32,
    pub(super) groups_taken: u32,
    pub(super) two_best: u32,
    pub(super) weight_scale: f32,
}

/// `MoePlanArgs`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct PlanArgs {
    pub(super) route: RouteArgs,
    pub(super) ids: u64,
    pub(super) weights: u64,
    pub(super) slots: u64,
    pub(super) tiles: u64,
    pub(super) first_tiles: u64,
    pub(super) rows: u32,
    pub(super) tile_tokens: u32,
    pub(super) routed: u32,
    pub(super) pad: u32,
}

/// `MoePrepArgs`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct MoePrepArgs {
    pub(super) x: u64,
    pub(super) norm: NormArgs,
    pub(super) table: u64,
    pub(super) ids: u64,
    pub(super) slots: u64,
    pub(super) out: [u64; 2],
    pub(super) n_outputs: u32,
    pub(super) experts: u32,
    pub(super) experts_per_token: u32,
    pub(super) width: u32,
    pub(super) x_rows: u32,
    pub(super) pad: u32,
}

/// `MoePrepActArgs`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct PrepActArgs {
    pub(super) gate: u64,
    pub(super) up: u64,
    pub(super) table: u64,
    pub(super) ids: u64,
    pub(super) slots: u64,
    pub(super) weights: u64,
    pub(super) out: u64,
    pub(super) act: u32,
    pub(super) limit: f32,
    pub(super) width: u32,
    pub(super) x_rows: u32,
}

/// `MoeTileArgs`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct MoeTileArgs {
    pub(super) table: u64,
    pub(super) tiles: u64,
    pub(super) n_tiles: u64,
    pub(super) x16: [u64; 2],
    pub(super) out: [u64; 2],
    pub(super) workspace: u64,
    pub(super) counters: u64,
    pub(super) experts: u32,
    pub(super) projections: u32,
    pub(super) column_tiles: u32,
    pub(super) n_strips: u32,
    pub(super) x_rows: u32,
    pub(super) split: u32,
    pub(super) segments: u32,
    pub(super) slot_bytes: u32,
}

/// `MoeWeights`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct WeightsArgs {
    pub(super) table: u64,
    pub(super) first_tiles: u64,
    pub(super) w16: u64,
    pub(super) w_bytes: u64,
    pub(super) experts: u32,
    pub(super) projections: u32,
    pub(super) first_expert: u32,
    pub(super) n_experts: u32,
}

/// `MoeDequantArgs`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct MoeDequantArgs {
    pub(super) weights: WeightsArgs,
}

/// `MoePrefillArgs`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct MoePrefillArgs {
    pub(super) weights: WeightsArgs,
    pub(super) tiles: u64,
    pub(super) x16: u64,
    pub(super) out: [u64; 2],
    pub(super) x_rows: u32,
    pub(super) k: u32,
    pub(super) n: u32,
    pub(super) pad: u32,
}

/// `MoeCombineArgs`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct CombineArgs {
    pub(super) y: u64,
    pub(super) ids: u64,
    pub(super) slots: u64,
    pub(super) weights: u64,
    pub(super) residual: u64,
    pub(super) experts_per_token: u32,
    pub(super) width: u32,
    pub(super) scale: f32,
    pub(super) pad: u32,
}

/// `StackShape`: the largest values of some linears.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StackShape {
    pub(super) slot_bytes: u32,
    pub(super) chunks: u32,
    pub(super) k: u32,
    pub(super) segments: u32,
}

/// `MoeGateUpArgs`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct GateUpArgs {
    pub(super) route: RouteArgs,
    pub(super) norm: NormArgs,
    pub(super) table: u64,
    pub(super) x: u64,
    pub(super) ids: u64,
    pub(super) weights: u64,
    pub(super) act: u64,
    pub(super) shape: StackShape,
    pub(super) hidden: u32,
    pub(super) inner: u32,
    pub(super) inputs: u32,
    pub(super) features_bytes: u32,
    pub(super) blocks_per_expert: u32,
    pub(super) strips: u32,
    pub(super) activation: u32,
    pub(super) limit: f32,
    pub(super) weigh_input: u32,
    pub(super) pad: u32,
}

/// `MoeDownArgs`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct DownArgs {
    pub(super) table: u64,
    pub(super) ids: u64,
    pub(super) weights: u64,
    pub(super) act: u64,
    pub(super) residual: u64,
    pub(super) shape: StackShape,
    pub(super) experts_per_token: u32,
    pub(super) hidden: u32,
    pub(super) inner: u32,
    pub(super) staged: u32,
    pub(super) features_bytes: u32,
    pub(super) strips: u32,
    pub(super) scale: f32,
    pub(super) pad: u32,
}

const _: () = assert!(size_of::<ExpertMatrixArgs>() == 96 + 20 * SEGMENTS_MAX);
const _: () = assert!(size_of::<ExpertMatrixArgs>().is_multiple_of(16));
const _: () = assert!(size_of::<RouteArgs>() == 56);
const _: () = assert!(size_of::<PlanArgs>() == 112);
const _: () = assert!(size_of::<MoePrepArgs>() == 96);
const _: () = assert!(size_of::<PrepActArgs>() == 72);
const _: () = assert!(size_of::<MoeTileArgs>() == 104);
const _: () = assert!(size_of::<MoeDequantArgs>() == 48);
const _: () = assert!(size_of::<MoePrefillArgs>() == 96);
const _: () = assert!(size_of::<CombineArgs>() == 56);
const _: () = assert!(size_of::<GateUpArgs>() == 176);
const _: () = assert!(size_of::<DownArgs>() == 88);

macro_rules! kernel_args {
    ($($name:ident)*) => {$(
        // SAFETY: field for field the struct of the kernel's header.
        unsafe impl KernelArgs for $name {}
    )*};
}

kernel_args! {
    PlanArgs MoePrepArgs PrepActArgs MoeTileArgs MoeDequantArgs MoePrefillArgs CombineArgs GateUpArgs DownArgs
}
