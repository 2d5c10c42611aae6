//! T32, the layout of linears in device memory: strips of 32 columns, cut into chunks of blocks of
//! 32 packed rows.
//!
//! [`plan`] decides everything about one linear that the host must know: its directory of chunks,
//! its row order, and where each block comes from in the uploaded tensors. The kernels of
//! `kernels/relayout.cu` then make the strips, `kernels/dequant.cu` turns them into tiles of f16.
//! Nothing here calls the device; the tests compare a scalar twin of the kernels with the
//! dequantisation of the formats crate, bit for bit.

pub mod args;
mod chunk;
mod gptq;
mod plain;
mod plan;

#[cfg(test)]
pub(crate) mod mirror;
#[cfg(test)]
mod tests;

pub use chunk::{Chunk, segment_rows};
pub use gptq::scales as gptq_scales;
pub use plain::{Element, PlainBytes, PlainSource, exponent, power_of_two};
pub use plan::{LayoutError, LayoutKind, NO_ROW, Source, T32Plan, plan};

/// Packed rows of a block.
pub const BLOCK_ROWS: usize = 32;

/// Columns of a strip.
pub const STRIP_COLUMNS: usize = 32;

/// Packed rows of a tile of dequantised weights.
pub const TILE_ROWS: usize = 64;
/// Columns of a tile of dequantised weights.
pub const TILE_COLUMNS: usize = 128;
/// Bytes of a tile of dequantised weights.
pub const TILE_BYTES: usize = TILE_ROWS * TILE_COLUMNS * 2;
