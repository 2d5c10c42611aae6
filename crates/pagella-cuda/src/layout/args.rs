//! Arguments of the re-layout and dequantisation kernels, field by field as in
//! `kernels/relayout.cuh` and `kernels/dequant.cuh`, and the grids they run on.
//!
//! Pointers are device addresses; zero stands for "none" where a kernel accepts that.

use super::{BLOCK_ROWS, STRIP_COLUMNS, TILE_COLUMNS, TILE_ROWS};

/// Warps of a thread block of the re-layout kernels, each with one strip or block.
const RELAYOUT_WARPS: usize = 8;

/// Threads of a thread block of the re-layout kernels and of `pg_largest_*`.
pub const RELAYOUT_THREADS: u32 = RELAYOUT_WARPS as u32 * 32;

/// Threads of a thread block of `pg_dequant`.
pub const DEQUANT_THREADS: u32 = (TILE_COLUMNS / STRIP_COLUMNS) as u32 * 32;

/// Tiles along the rows that a thread block of `pg_dequant` makes.
const DEQUANT_TILES: usize = 2;

/// Where the 32 packed rows of a block come from.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockSource {
    /// First of the block's word rows.
    pub word: u32,
    /// Row of the scales and zeros.
    pub group: u32,
}

/// Of `pg_relayout_exl2`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RelayoutExl2Args {
    /// `q_weight`, `[word rows][stored]`.
    pub words: u64,
    /// `q_scale`, `[groups][stored / 8]`.
    pub scales: u64,
    /// Smallest scale of every group, f16.
    pub steps: u64,
    /// Stored column of every output, or 0.
    pub columns: u64,
    /// A [`BlockSource`] per block.
    pub blocks: u64,
    /// The directory.
    pub chunks: u64,
    /// Receives the strips.
    pub strips: u64,
    /// Columns of the stored matrix.
    pub stored: u32,
    /// Outputs.
    pub n: u32,
    /// Strips of the matrix.
    pub n_strips: u32,
    /// First strip to make.
    pub first_strip: u32,
    /// Bytes of a strip.
    pub strip_bytes: u32,
    /// Not read.
    pub pad: u32,
}

/// Of `pg_relayout_gptq`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RelayoutGptqArgs {
    /// `qweight`, `[k / 8][stored]`.
    pub words: u64,
    /// `qzeros`, `[groups][stored / 8]`.
    pub zeros: u64,
    /// Scales, `[groups][stored]`, f16.
    pub scales: u64,
    /// Stored row of every packed row, or 0.
    pub rows: u64,
    /// Stored column of every output, or 0.
    pub columns: u64,
    /// A [`BlockSource`] per block.
    pub blocks: u64,
    /// The directory.
    pub chunks: u64,
    /// Receives the strips.
    pub strips: u64,
    /// Columns of the stored matrix.
    pub stored: u32,
    /// Outputs.
    pub n: u32,
    /// Strips of the matrix.
    pub n_strips: u32,
    /// First strip to make.
    pub first_strip: u32,
    /// Bytes of a strip.
    pub strip_bytes: u32,
    /// Added to a stored zero code.
    pub zero_offset: u32,
}

/// Of `pg_relayout_f16`, `pg_relayout_bf16` and `pg_relayout_f32`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RelayoutPlainArgs {
    /// Elements.
    pub weights: u64,
    /// Stored column of every output, or 0.
    pub columns: u64,
    /// Receives the strips.
    pub strips: u64,
    /// Elements between columns.
    pub column_stride: u64,
    /// Elements between rows.
    pub row_stride: u64,
    /// Outputs.
    pub n: u32,
    /// Strips of the matrix.
    pub n_strips: u32,
    /// First strip to make.
    pub first_strip: u32,
    /// Input features.
    pub k_in: u32,
    /// Packed rows.
    pub k: u32,
    /// Packed rows of the upper parts.
    pub k_upper: u32,
    /// Bytes of a strip.
    pub strip_bytes: u32,
    /// Power of two by which weights are multiplied.
    pub factor: f32,
}

/// Of `pg_largest_f16`, `pg_largest_bf16` and `pg_largest_f32`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LargestArgs {
    /// Elements.
    pub weights: u64,
    /// Stored column of every output, or 0.
    pub columns: u64,
    /// Receives the f32 bits of the largest magnitude; cleared before.
    pub largest: u64,
    /// Elements between columns.
    pub column_stride: u64,
    /// Elements between rows.
    pub row_stride: u64,
    /// Outputs.
    pub n: u32,
    /// Input features.
    pub k_in: u32,
}

/// Of `pg_dequant`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DequantArgs {
    /// The strips.
    pub strips: u64,
    /// The directory.
    pub chunks: u64,
    /// Receives the tiles, `[tiles][k / 64 rounded up][128][64]`.
    pub w16: u64,
    /// Bytes of a strip.
    pub strip_bytes: u32,
    /// Chunks of the directory.
    pub n_chunks: u32,
    /// Strips of the matrix.
    pub n_strips: u32,
    /// Packed rows.
    pub k: u32,
    /// What the strips hold, [`super::LayoutKind`].
    pub kind: u32,
    /// First column tile to make.
    pub first_tile: u32,
}

const _: () = assert!(size_of::<BlockSource>() == 8);
const _: () = assert!(size_of::<RelayoutExl2Args>() == 80);
const _: () = assert!(size_of::<RelayoutGptqArgs>() == 88);
const _: () = assert!(size_of::<RelayoutPlainArgs>() == 72);
const _: () = assert!(size_of::<LargestArgs>() == 48);
const _: () = assert!(size_of::<DequantArgs>() == 48);

/// Grid of `pg_relayout_exl2` and `pg_relayout_gptq` for some strips of a matrix.
pub fn quantised_grid(strips: usize, chunks: usize) -> (u32, u32) {
    (strips.div_ceil(RELAYOUT_WARPS) as u32, chunks as u32)
}

/// Grid of `pg_relayout_f16` and its siblings for some strips of a matrix with `k` packed rows.
pub fn plain_grid(strips: usize, k: usize) -> (u32, u32) {
    (k.div_ceil(BLOCK_ROWS * RELAYOUT_WARPS) as u32, strips as u32)
}

/// Grid of `pg_dequant` for some column tiles of a matrix with `k` packed rows.
pub fn dequant_grid(tiles: usize, k: usize) -> (u32, u32) {
    (k.div_ceil(TILE_ROWS * DEQUANT_TILES) as u32, tiles as u32)
}
