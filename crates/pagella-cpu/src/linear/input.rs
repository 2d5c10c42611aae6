//! Preparing activations: norm, packed order, scales, and the interleaving the kernels read.
//!
//! A prepared input is cut into tiles of up to `rows_per_tile` token rows. Inside a tile the
//! elements of all its rows for one packed row (or pair of rows) are neighbours, so a kernel
//! broadcasts them one after another. Missing rows of the last tile are zeros.

use pagella_backend::BackendError;

use super::blocks::{BLOCK_ROWS, InputLayout, RowBlock};
use crate::memory::Aligned;
use crate::simd::{Isa, Kernel, LANES, Simd};
use crate::threads::{Pool, Shares};

/// Largest integer of a wide activation; 127·256 + 127, so that it also splits into two bytes.
const WIDE_MAX: f32 = 32639.0;
/// Blocks whose largest magnitude is below this count as zero.
const WIDE_TINY: f32 = 1e-34;
/// What the memory is for, in errors.
const WHAT: &str = "activations";

/// A packed input in f32: `[tile][packed row][rows_per_tile]`.
pub(crate) struct ExactInput {
    pub(crate) values: Aligned<f32>,
    pub(crate) shape: Shape,
}

/// A packed input as 15-bit integers with one scale per row block.
pub(crate) struct WideInput {
    /// Pairs of rows as two i16 in a word: `[tile][packed row pair][rows_per_tile]`. The pairs of
    /// quad `q` are (row 0, row 2) and (row 1, row 3).
    pub(crate) pairs: Aligned<i32>,
    /// `[tile][row block][rows_per_tile]`.
    pub(crate) scales: Aligned<f32>,
    /// Sum of the integers of a block, same shape.
    pub(crate) sums: Aligned<i32>,
    pub(crate) shape: Shape,
}

/// Buffers of earlier inputs, ready for the next ones.
#[derive(Default)]
pub(crate) struct InputBuffers {
    floats: Vec<Aligned<f32>>,
    integers: Vec<Aligned<i32>>,
}

/// Geometry of a prepared input.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    /// Token rows.
    pub(crate) m: usize,
    pub(crate) rows_per_tile: usize,
}

impl Shape {
    /// Tiles of token rows.
    pub(crate) fn tiles(self) -> usize {
        self.m.div_ceil(self.rows_per_tile)
    }
}

/// Writes one normed (or plain) row of the input to a buffer.
pub(crate) type RowSource<'a> = dyn Fn(usize, &mut [f32]) + Sync + 'a;

/// Takes row `m` of `source` in packed order.
fn packed_row(layout: &InputLayout, source: &RowSource<'_>, m: usize, scratch: &mut Scratch) {
    scratch.natural.resize(layout.rows, 0.0);
    scratch.packed.resize(layout.rows, 0.0);
    if layout.perm.is_empty() {
        source(m, &mut scratch.packed);
        return;
    }
    source(m, &mut scratch.natural);
    for (out, &from) in scratch.packed.iter_mut().zip(&layout.perm) {
        *out = scratch.natural[from as usize];
    }
}

#[derive(Default)]
struct Scratch {
    natural: Vec<f32>,
    packed: Vec<f32>,
}

thread_local! {
    static SCRATCH: std::cell::RefCell<Scratch> = std::cell::RefCell::default();
}

fn with_scratch(body: impl FnOnce(&mut Scratch)) {
    SCRATCH.with(|cell| match cell.try_borrow_mut() {
        Ok(mut scratch) => body(&mut scratch),
        Err(_) => body(&mut Scratch::default()),
    });
}

impl ExactInput {
    /// Prepares `shape.m` rows.
    pub(crate) fn prepare(
        pool: &Pool,
        buffers: &mut InputBuffers,
        layout: &InputLayout,
        shape: Shape,
        source: &RowSource<'_>,
    ) -> Result<Self, BackendError> {
        let width = shape.rows_per_tile;
        let tile_len = layout.rows * width;
        let len = shape.tiles() * tile_len;
        let mut values = Aligned::recycled(&mut buffers.floats, len, WHAT)?;
        let shares = Shares::new(&mut values);
        pool.run(shape.tiles(), &|tile| {
            // SAFETY: every tile is handed out once and owns its own range.
            let out = unsafe { shares.part(tile * tile_len..(tile + 1) * tile_len) };
            for lane in 0..width.min(shape.m - tile * width) {
                with_scratch(|scratch| {
                    packed_row(layout, source, tile * width + lane, scratch);
                    let column = out.iter_mut().skip(lane).step_by(width);
                    column.zip(&scratch.packed).for_each(|(out, &x)| *out = x);
                });
            }
        })?;
        Ok(ExactInput { values, shape })
    }

    /// Gives the memory back for later inputs.
    pub(crate) fn recycle(self, buffers: &mut InputBuffers) {
        buffers.floats.push(self.values);
    }
}

impl WideInput {
    /// Prepares and quantises `shape.m` rows.
    pub(crate) fn prepare(
        isa: Isa,
        pool: &Pool,
        buffers: &mut InputBuffers,
        layout: &InputLayout,
        shape: Shape,
        source: &RowSource<'_>,
    ) -> Result<Self, BackendError> {
        let (width, blocks) = (shape.rows_per_tile, layout.blocks.len());
        let pair_len = layout.rows / 2 * width;
        let block_len = blocks * width;
        let tiles = shape.tiles();
        let mut pairs = Aligned::recycled(&mut buffers.integers, tiles * pair_len, WHAT)?;
        let mut sums = Aligned::recycled(&mut buffers.integers, tiles * block_len, WHAT)?;
        let mut scales = Aligned::recycled(&mut buffers.floats, tiles * block_len, WHAT)?;
        let shares = (Shares::new(&mut pairs), Shares::new(&mut scales), Shares::new(&mut sums));
        pool.run(shape.tiles(), &|tile| {
            // SAFETY: every tile is handed out once and owns its own ranges.
            let (pairs, scales, sums) = unsafe {
                (
                    shares.0.part(tile * pair_len..(tile + 1) * pair_len),
                    shares.1.part(tile * block_len..(tile + 1) * block_len),
                    shares.2.part(tile * block_len..(tile + 1) * block_len),
                )
            };
            for lane in 0..width.min(shape.m - tile * width) {
                with_scratch(|scratch| {
                    packed_row(layout, source, tile * width + lane, scratch);
                    let x = &scratch.packed[..];
                    let blocks = &layout.blocks;
                    isa.run(Quantize { x, blocks, width, lane, pairs, scales, sums });
                });
            }
        })?;
        Ok(WideInput { pairs, scales, sums, shape })
    }

    /// Gives the memory back for later inputs.
    pub(crate) fn recycle(self, buffers: &mut InputBuffers) {
        buffers.floats.push(self.scales);
        buffers.integers.extend([self.sums, self.pairs]);
    }
}

/// Quantises one packed row into its lane of a tile.
struct Quantize<'a> {
    x: &'a [f32],
    blocks: &'a [RowBlock],
    width: usize,
    lane: usize,
    pairs: &'a mut [i32],
    scales: &'a mut [f32],
    sums: &'a mut [i32],
}

impl Kernel for Quantize<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        for (index, block) in self.blocks.iter().enumerate() {
            let x = &self.x[block.first_row..block.first_row + block.rows];
            // SAFETY: packed blocks hold whole multiples of 32 rows; vectors stay inside `x`.
            let (largest, finite) = unsafe { magnitude::<S>(x) };
            let at = index * self.width + self.lane;
            if !finite {
                // Poisons every output of the row: a NaN must never be hidden.
                self.scales[at] = f32::NAN;
                continue;
            }
            if largest < WIDE_TINY {
                continue;
            }
            let factor = WIDE_MAX / largest;
            let mut sum = 0;
            for (b, rows) in x.chunks_exact(BLOCK_ROWS).enumerate() {
                let mut q = [0i32; BLOCK_ROWS];
                // SAFETY: 32 readable floats and 32 writable integers.
                unsafe {
                    for half in [0, LANES] {
                        let v = S::mul(S::load(rows.as_ptr().add(half)), S::splat(factor));
                        S::store_i(q.as_mut_ptr().add(half), S::round_i(v));
                    }
                }
                sum += q.iter().sum::<i32>();
                let first = (block.first_row + b * BLOCK_ROWS) / 2 * self.width + self.lane;
                for (i, quad) in q.chunks_exact(4).enumerate() {
                    let even = first + 2 * i * self.width;
                    self.pairs[even] = (quad[0] & 0xFFFF) | quad[2] << 16;
                    self.pairs[even + self.width] = (quad[1] & 0xFFFF) | quad[3] << 16;
                }
            }
            self.scales[at] = largest / WIDE_MAX;
            self.sums[at] = sum;
        }
    }
}

/// Largest magnitude, and whether all elements are finite.
///
/// # Safety
/// As for [`Simd`]; the length is a multiple of 16.
#[inline(always)]
unsafe fn magnitude<S: Simd>(x: &[f32]) -> (f32, bool) {
    // SAFETY: whole vectors inside `x`.
    unsafe {
        let mut largest = S::splat(0.0);
        let mut poison = S::splat(0.0);
        for at in (0..x.len()).step_by(LANES) {
            let v = S::load(x.as_ptr().add(at));
            largest = S::max(S::abs(v), largest);
            poison = S::fma(v, S::splat(0.0), poison);
        }
        (S::max_lane(largest), !S::sum(poison).is_nan())
    }
}
