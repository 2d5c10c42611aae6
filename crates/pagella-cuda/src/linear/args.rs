//! Arguments of the linear kernels, field by field as in `kernels/matrix.cuh`, `chunk.cuh`,
//! `norm.cuh`, `gemv.cuh`, `prep.cuh`, `tile.cuh` and `prefill.cuh`.
//!
//! Pointers are device addresses; zero stands for "none".

use crate::device::KernelArgs;
use crate::layout::Chunk;
use crate::layout::args::{
    DequantArgs, LargestArgs, RelayoutExl2Args, RelayoutGptqArgs, RelayoutPlainArgs,
};

/// Most linears of one launch.
pub(crate) const MATRICES_MAX: usize = 3;
/// Most partial sums of an output.
pub(crate) const SEGMENTS_MAX: usize = 8;
/// Chunks of a segment whose sizes stand in its start.
const START_CHUNKS: usize = 4;

/// `Matrix`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MatrixArgs {
    pub(crate) strips: u64,
    pub(crate) chunks: u64,
    pub(crate) perm: u64,
    pub(crate) bias: u64,
    pub(crate) out: u64,
    pub(crate) strip_bytes: u32,
    pub(crate) n_chunks: u32,
    pub(crate) n_strips: u32,
    pub(crate) n: u32,
    pub(crate) k_in: u32,
    pub(crate) k: u32,
    pub(crate) slot_bytes: u32,
    pub(crate) kind: u32,
    pub(crate) out_stride: u32,
    pub(crate) pad: u32,
    pub(crate) alpha: f32,
    pub(crate) scale: f32,
}

/// `SegmentStart`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentStart {
    offset16: u32,
    first: u16,
    count: u16,
    bytes16: [u16; START_CHUNKS],
    blocks: [u8; START_CHUNKS],
}

impl SegmentStart {
    /// The starts of all segments of a directory; absent ones count no chunks.
    pub(crate) fn of(chunks: &[Chunk]) -> [SegmentStart; SEGMENTS_MAX] {
        let mut starts = [SegmentStart::default(); SEGMENTS_MAX];
        for (index, chunk) in chunks.iter().enumerate() {
            let Some(start) = starts.get_mut(usize::from(chunk.segment)) else { continue };
            if start.count == 0 {
                start.offset16 = chunk.offset16;
                start.first = index as u16;
            }
            let at = usize::from(start.count);
            if at < START_CHUNKS {
                start.bytes16[at] = chunk.bytes16;
                start.blocks[at] = chunk.blocks;
            }
            start.count += 1;
        }
        starts
    }
}

/// `Norm`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NormArgs {
    pub(crate) weight: u64,
    pub(crate) bias: u64,
    pub(crate) eps: f32,
    /// 0: none, 1: root mean square, 2: layer norm.
    pub(crate) kind: u32,
}

impl NormArgs {
    pub(crate) fn is_none(&self) -> bool {
        self.kind == 0
    }
}

/// `GemvArgs`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GemvArgs {
    pub(crate) matrix: [MatrixArgs; MATRICES_MAX],
    pub(crate) x: u64,
    pub(crate) row_map: u64,
    pub(crate) norm: NormArgs,
    pub(crate) segment: [[SegmentStart; SEGMENTS_MAX]; MATRICES_MAX],
    pub(crate) first_chunk: [u32; MATRICES_MAX],
    pub(crate) n_matrices: u32,
    pub(crate) rows: u32,
    pub(crate) x_stride: u32,
    pub(crate) mode: u32,
    pub(crate) segments: u32,
    pub(crate) strips: u32,
    pub(crate) slot_bytes: u32,
    pub(crate) features_bytes: u32,
}

/// `PrepArgs`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PrepArgs {
    pub(crate) x: u64,
    pub(crate) row_map: u64,
    pub(crate) norm: NormArgs,
    pub(crate) perm: [u64; MATRICES_MAX],
    pub(crate) out: [u64; MATRICES_MAX],
    pub(crate) n_outputs: u32,
    pub(crate) rows: u32,
    pub(crate) rows_padded: u32,
    pub(crate) x_stride: u32,
    pub(crate) k_in: u32,
    pub(crate) k: u32,
}

/// `TileArgs`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TileArgs {
    pub(crate) matrix: [MatrixArgs; MATRICES_MAX],
    pub(crate) x16: [u64; MATRICES_MAX],
    pub(crate) workspace: u64,
    pub(crate) counters: u64,
    pub(crate) segment: [[SegmentStart; SEGMENTS_MAX]; MATRICES_MAX],
    pub(crate) n_matrices: u32,
    pub(crate) rows: u32,
    pub(crate) rows_padded: u32,
    pub(crate) token_tiles: u32,
    pub(crate) mode: u32,
    pub(crate) split: u32,
    pub(crate) segments: u32,
    pub(crate) slot_bytes: u32,
}

/// `PrefillArgs`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PrefillArgs {
    pub(crate) x16: u64,
    pub(crate) w16: [u64; MATRICES_MAX],
    pub(crate) matrix: [MatrixArgs; MATRICES_MAX],
    pub(crate) n_matrices: u32,
    pub(crate) rows: u32,
    pub(crate) rows_padded: u32,
    pub(crate) add: u32,
}

const _: () = assert!(size_of::<MatrixArgs>() == 88);
const _: () = assert!(size_of::<SegmentStart>() == 20);
const _: () = assert!(size_of::<NormArgs>() == 24);

macro_rules! kernel_args {
    ($($name:ident)*) => {$(
        // SAFETY: field for field the struct of the same name in `kernels/`.
        unsafe impl KernelArgs for $name {}
    )*};
}

kernel_args! {
    GemvArgs PrepArgs TileArgs PrefillArgs
    RelayoutExl2Args RelayoutGptqArgs RelayoutPlainArgs LargestArgs DequantArgs
}
