//! Codes of small floats in groups with scales: MXFP4, NVFP4, FP8, bitsandbytes of 4 bits.
//!
//! One walk decodes them all. A code of 4 bits is looked up in a table of 16 values, one of 8 bits is
//! the upper part of a binary16; then one product with the scale of its group, which is the format's own
//! weight. What happens to it is the caller's: products with token rows, or a panel. The order of sums is that of
//! `blocks`.

mod lay_out;

use super::blocks::RowBlock;
use super::gemv::{GemvBlock, Kind};
use super::input::ExactInput;
use crate::memory::Aligned;
use crate::simd::{LANES, Simd};
pub(crate) use lay_out::laid_bytes;
pub(super) use lay_out::lay_out;
use pagella_formats::small_float::TensorScale;

/// Rows whose codes of 4 bits one word holds.
const WORD_ROWS: usize = 8;
/// E4M3 read as the upper part of a binary16 is too small by this.
const E4M3_FACTOR: f32 = 256.0;

/// A matrix of small floats.
pub(crate) struct SmallFloat {
    codes: Codes,
    scales: Scales,
    /// Packed rows.
    rows: usize,
    /// Groups of rows.
    groups: usize,
}

enum Codes {
    /// `[tile][row / 8][16]`: eight codes of a column, the first one lowest.
    Four { words: Aligned<u32>, table: [f32; 16] },
    /// `[tile][row][16]`.
    E4m3(Aligned<u8>),
    /// `[tile][row][16]`.
    E5m2(Aligned<u8>),
}

/// `[tile][group][16]`; those of E4M3 codes are larger by [`E4M3_FACTOR`].
enum Scales {
    F32(Aligned<f32>),
    /// Exponents of an f32.
    Exponents(Aligned<u8>),
    /// E4M3, under one scale of the matrix.
    E4m3(Aligned<u8>, TensorScale),
}

/// What happens to decoded weights. A trait, because a closure need not be inlined and would then be
/// compiled without the vectors of its level.
trait Take<S: Simd, const T: usize> {
    /// Takes row `row` of the block in `T` tiles.
    ///
    /// # Safety
    /// As for [`Simd`]; the row exists.
    unsafe fn take(&mut self, row: usize, weights: [S::F; T]);
}

/// A few token rows (`M`) with small floats.
pub(super) struct SmallFloatGemv<'a, const M: usize> {
    pub(super) codes: &'a SmallFloat,
    pub(super) input: &'a ExactInput<'a>,
}

impl<const M: usize> GemvBlock<M> for SmallFloatGemv<'_, M> {
    const KIND: Kind = Kind::Exact;

    #[inline(always)]
    unsafe fn add<S: Simd, const T: usize>(
        &self,
        token_tile: usize,
        tile: usize,
        _index: usize,
        block: &RowBlock,
        acc: &mut [[S::F; T]; M],
    ) {
        // SAFETY: passed on to the caller; a token tile has `M` activations for every row.
        unsafe {
            let first = token_tile * self.codes.rows + block.first_row;
            let x = self.input.values.as_ptr().add(first * M);
            self.codes.decode::<S, T>(tile, block, &mut Chains::<S, T, M> { x, acc });
        }
    }
}

impl SmallFloat {
    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        let codes = match &self.codes {
            Codes::Four { words, .. } => words.bytes(),
            Codes::E4m3(bytes) | Codes::E5m2(bytes) => bytes.bytes(),
        };
        codes
            + match &self.scales {
                Scales::F32(scales) => scales.bytes(),
                Scales::Exponents(scales) | Scales::E4m3(scales, _) => scales.bytes(),
            }
    }

    /// Writes the weights of a block as `[row][16]`.
    ///
    /// # Safety
    /// As for [`Simd`]; the tile and the block exist, `out` holds the block's rows.
    #[inline(always)]
    pub(super) unsafe fn expand<S: Simd>(&self, tile: usize, block: &RowBlock, out: *mut f32) {
        // SAFETY: promised by the caller.
        unsafe { self.decode::<S, 1>(tile, block, &mut Panel(out)) }
    }

    /// # Safety
    /// As for [`Simd`]; tiles `tile..tile + T` and the block exist.
    #[inline(always)]
    unsafe fn decode<S: Simd, const T: usize>(
        &self,
        tile: usize,
        block: &RowBlock,
        to: &mut impl Take<S, T>,
    ) {
        // SAFETY: promised by the caller.
        unsafe {
            let mut scales = [S::splat(0.0); T];
            for (t, scale) in scales.iter_mut().enumerate() {
                *scale = self.scales.load::<S>(((tile + t) * self.groups + block.group) * LANES);
            }
            match &self.codes {
                Codes::Four { words, table } => {
                    let stride = self.rows.div_ceil(WORD_ROWS) * LANES;
                    let first = tile * stride + block.first_row / WORD_ROWS * LANES;
                    let table = S::table(table.as_ptr());
                    four::<S, T>(words.as_ptr().add(first), stride, table, scales, block.rows, to);
                }
                Codes::E4m3(bytes) => {
                    let (first, stride) = self.first_byte(tile, block);
                    eight::<S, T, 3>(bytes.as_ptr().add(first), stride, scales, block.rows, to);
                }
                Codes::E5m2(bytes) => {
                    let (first, stride) = self.first_byte(tile, block);
                    eight::<S, T, 2>(bytes.as_ptr().add(first), stride, scales, block.rows, to);
                }
            }
        }
    }

    /// Of a block of codes of 8 bits, and the bytes of a tile.
    fn first_byte(&self, tile: usize, block: &RowBlock) -> (usize, usize) {
        ((tile * self.rows + block.first_row) * LANES, self.rows * LANES)
    }
}

impl Scales {
    /// Scales of 16 columns.
    ///
    /// # Safety
    /// As for [`Simd`]; 16 scales follow `at`.
    #[inline(always)]
    unsafe fn load<S: Simd>(&self, at: usize) -> S::F {
        // SAFETY: promised by the caller.
        unsafe {
            match self {
                Scales::F32(scales) => S::load(scales.as_ptr().add(at)),
                Scales::Exponents(scales) => {
                    S::bits_f(S::shl::<23>(S::load_u8(scales.as_ptr().add(at))))
                }
                Scales::E4m3(scales, over) => {
                    let small = S::load_f8::<3>(scales.as_ptr().add(at));
                    let scale = S::mul(small, S::splat(E4M3_FACTOR));
                    match *over {
                        TensorScale::Multiply(factor) => S::mul(scale, S::splat(factor)),
                        TensorScale::Divide(divisor) => S::div(scale, S::splat(divisor)),
                    }
                }
            }
        }
    }
}

/// Decodes codes of 4 bits; the words of neighbouring tiles are `stride` apart.
///
/// # Safety
/// As for [`Simd`]; words for `rows` follow in every tile.
#[inline(always)]
unsafe fn four<S: Simd, const T: usize>(
    mut words: *const u32,
    stride: usize,
    table: S::Table,
    scales: [S::F; T],
    rows: usize,
    to: &mut impl Take<S, T>,
) {
    // SAFETY: promised by the caller; shifts are below 32.
    unsafe {
        macro_rules! row {
            ($row:expr, $codes:ident, $i:expr) => {
                let mut weights = scales;
                for (weight, codes) in weights.iter_mut().zip($codes) {
                    *weight = S::mul(S::lookup(table, S::shr_by(codes, 4 * $i)), *weight);
                }
                to.take($row + $i as usize, weights);
            };
        }
        macro_rules! unrolled {
            ($row:expr, $codes:ident: $($i:literal)*) => {$(row!($row, $codes, $i);)*};
        }
        let mut row = 0;
        while row < rows {
            let mut codes = [S::splat_i(0); T];
            for (t, codes) in codes.iter_mut().enumerate() {
                *codes = S::load_i(words.add(t * stride));
            }
            if row + WORD_ROWS <= rows {
                unrolled!(row, codes: 0 1 2 3 4 5 6 7);
            } else {
                for i in 0..(rows - row) as u32 {
                    row!(row, codes, i);
                }
            }
            row += WORD_ROWS;
            words = words.add(LANES);
        }
    }
}

/// Decodes codes of 8 bits; the bytes of neighbouring tiles are `stride` apart.
///
/// # Safety
/// As for [`Simd`]; lines for `rows` follow in every tile.
#[inline(always)]
unsafe fn eight<S: Simd, const T: usize, const DIGITS: u32>(
    bytes: *const u8,
    stride: usize,
    scales: [S::F; T],
    rows: usize,
    to: &mut impl Take<S, T>,
) {
    // SAFETY: promised by the caller.
    unsafe {
        for row in 0..rows {
            let mut weights = scales;
            for (t, weight) in weights.iter_mut().enumerate() {
                let code = S::load_f8::<DIGITS>(bytes.add(t * stride + row * LANES));
                *weight = S::mul(code, *weight);
            }
            to.take(row, weights);
        }
    }
}

/// The sums of `M` token rows, whose inputs lie side by side from `x` on.
struct Chains<'a, S: Simd, const T: usize, const M: usize> {
    x: *const f32,
    acc: &'a mut [[S::F; T]; M],
}

impl<S: Simd, const T: usize, const M: usize> Take<S, T> for Chains<'_, S, T, M> {
    #[inline(always)]
    unsafe fn take(&mut self, row: usize, weights: [S::F; T]) {
        // SAFETY: every row of the block has `M` inputs.
        unsafe {
            for (m, sums) in self.acc.iter_mut().enumerate() {
                let x = S::splat(*self.x.add(row * M + m));
                for (sum, weight) in sums.iter_mut().zip(weights) {
                    *sum = S::fma(x, weight, *sum);
                }
            }
        }
    }
}

/// Rows of a panel.
struct Panel(*mut f32);

impl<S: Simd> Take<S, 1> for Panel {
    #[inline(always)]
    unsafe fn take(&mut self, row: usize, [weights]: [S::F; 1]) {
        // SAFETY: the panel holds every row of the block.
        unsafe { S::store(self.0.add(row * LANES), weights) }
    }
}

#[cfg(test)]
mod tests;
