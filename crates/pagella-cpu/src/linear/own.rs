//! Weights with kernels of their own: the seam for formats that are not codes in tiles of 16 columns.
//!
//! Such a format is one file or folder here. It takes exact inputs, keeps the canonical order that
//! its header states for any number of rows, and finishes its sums through [`Output`].

use std::ops::Range;

use super::input::ExactInput;
use super::output::Output;
use crate::simd::Isa;

/// Weights of one format, laid out.
pub(crate) trait OwnKernel: Send + Sync {
    /// Tiles of 16 columns that a task takes together.
    fn tile_step(&self) -> usize;

    /// Bytes held.
    fn bytes(&self) -> usize;

    /// Runs one task.
    fn run(&self, isa: Isa, task: &OwnTask<'_>);
}

/// Some tiles of columns times some tiles of token rows, over all inputs.
pub(crate) struct OwnTask<'a> {
    pub(crate) input: &'a ExactInput<'a>,
    /// Starts at a multiple of [`OwnKernel::tile_step`].
    pub(crate) tiles: Range<usize>,
    pub(crate) token_tiles: Range<usize>,
    pub(crate) output: &'a Output<'a>,
}
