//! Exact arithmetic: every weight is the format's own value, products are chained in f32.
//!
//! `(code − zero)·scale` is formed in registers, and for EXL2 rounded to binary16 by two fused
//! multiply-adds (see [`Rounding`]); then `acc = fma(x, W, acc)`, packed rows ascending. Plain weights
//! and small floats are converted and chained the same way.

use super::blocks::{BLOCK_ROWS, RowBlock};
use super::gemv::{GemvBlock, Kind, LINE_BYTES, fetch_ahead};
use super::input::ExactInput;
use super::quad::{Rounding, quad};
use super::weights::{CpuLinear, Packed, Plain, Weights};
use super::wide::end_segment;
use crate::simd::{Kernel, LANES, Simd};

/// Exact arithmetic of a few token rows (`M`) with codes.
pub(crate) struct ExactGemv<'a, const M: usize> {
    pub(crate) packed: &'a Packed,
    /// Packed rows.
    pub(crate) rows: usize,
    pub(crate) input: &'a ExactInput<'a>,
}

impl<const M: usize> GemvBlock<M> for ExactGemv<'_, M> {
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
            let x = self.input.values.as_ptr().add(token_tile * self.rows * M);
            self.packed_block::<S, T>(self.packed, tile, x, block, acc);
        }
    }
}

impl<const M: usize> ExactGemv<'_, M> {
    /// # Safety
    /// As for [`GemvBlock::add`]; `x` is the start of a token tile.
    #[inline(always)]
    unsafe fn packed_block<S: Simd, const T: usize>(
        &self,
        packed: &Packed,
        tile: usize,
        x: *const f32,
        block: &RowBlock,
        acc: &mut [[S::F; T]; M],
    ) {
        // SAFETY: forwarded.
        unsafe {
            match block.bits {
                2 => self.packed_block_of::<S, T, 2>(packed, tile, x, block, acc),
                3 => self.packed_block_of::<S, T, 3>(packed, tile, x, block, acc),
                4 => self.packed_block_of::<S, T, 4>(packed, tile, x, block, acc),
                5 => self.packed_block_of::<S, T, 5>(packed, tile, x, block, acc),
                6 => self.packed_block_of::<S, T, 6>(packed, tile, x, block, acc),
                _ => self.packed_block_of::<S, T, 8>(packed, tile, x, block, acc),
            }
        }
    }

    /// # Safety
    /// As for [`ExactGemv::packed_block`]; `B` is the width of the block.
    #[inline(always)]
    unsafe fn packed_block_of<S: Simd, const T: usize, const B: u8>(
        &self,
        packed: &Packed,
        tile: usize,
        x: *const f32,
        block: &RowBlock,
        acc: &mut [[S::F; T]; M],
    ) {
        // SAFETY: the block's lines and activations exist.
        unsafe {
            let stride = packed.tile_words;
            let mut scale = [S::splat(0.0); T];
            let mut offset = [S::splat(0.0); T];
            let scales = packed.scales.view();
            let rounding = Rounding::<S>::new(scales.rounding());
            for t in 0..T {
                let (s, zero) = scales.load::<S>(tile + t, block.group, packed.groups, B);
                scale[t] = s;
                offset[t] = S::mul(S::sub(S::splat(0.0), S::to_f(zero)), s);
            }
            let tiles = packed.words.as_ptr().add(tile * stride);
            let mut line = block.first_line * LANES;
            let mut x = x.add(block.first_row * M);
            for _ in 0..block.rows / BLOCK_ROWS {
                fetch_ahead::<S, T>(tiles.cast(), 4 * stride, 4 * line, usize::from(B));
                let lines = tiles.add(line);
                macro_rules! step {
                    ($($q:literal)*) => {$(
                        let mut codes = [S::splat_i(0); T];
                        for t in 0..T {
                            for sums in acc.iter_mut() {
                                sums[t] = S::settle(sums[t]);
                            }
                            codes[t] = S::settle_i(quad::<S, B>(lines.add(t * stride), $q));
                        }
                        let rows = x.add(4 * $q * M);
                        chain_row::<S, T, M, B, 0>(&codes, &scale, &offset, rounding, rows, acc);
                        chain_row::<S, T, M, B, 1>(&codes, &scale, &offset, rounding, rows, acc);
                        chain_row::<S, T, M, B, 2>(&codes, &scale, &offset, rounding, rows, acc);
                        chain_row::<S, T, M, B, 3>(&codes, &scale, &offset, rounding, rows, acc);
                    )*};
                }
                step!(0 1 2 3 4 5 6 7);
                line += usize::from(B) * LANES;
                x = x.add(BLOCK_ROWS * M);
            }
        }
    }
}

/// A few token rows (`M`) with plain weights.
pub(crate) struct PlainGemv<'a, const M: usize> {
    pub(crate) plain: &'a Plain,
    /// Packed rows.
    pub(crate) rows: usize,
    pub(crate) input: &'a ExactInput<'a>,
}

impl<const M: usize> GemvBlock<M> for PlainGemv<'_, M> {
    const KIND: Kind = Kind::Plain;

    #[inline(always)]
    unsafe fn add<S: Simd, const T: usize>(
        &self,
        token_tile: usize,
        tile: usize,
        _index: usize,
        block: &RowBlock,
        acc: &mut [[S::F; T]; M],
    ) {
        // SAFETY: `[tile][row][16]` elements exist for every tile and row, and `M` activations for every
        // row of a token tile.
        unsafe {
            let rows = self.rows;
            let x = self.input.values.as_ptr().add(token_tile * rows * M);
            macro_rules! chain {
                ($data:ident, $load:expr) => {
                    let tiles = $data.as_ptr().add(tile * rows * LANES);
                    let row_bytes = LANES * size_of_val(&*tiles);
                    for row in block.first_row..block.first_row + block.rows {
                        if (row * row_bytes).is_multiple_of(LINE_BYTES) {
                            fetch_ahead::<S, T>(tiles.cast(), rows * row_bytes, row * row_bytes, 1);
                        }
                        for t in 0..T {
                            let w = $load(tiles.add((t * rows + row) * LANES));
                            for m in 0..M {
                                acc[m][t] = S::fma(S::splat(*x.add(row * M + m)), w, acc[m][t]);
                            }
                        }
                    }
                };
            }
            match self.plain {
                Plain::F16(data) => {
                    chain!(data, S::load_f16);
                }
                Plain::Bf16(data) => {
                    chain!(data, S::load_bf16);
                }
                Plain::F32(data) => {
                    chain!(data, S::load);
                }
            }
        }
    }
}

/// The binary16 weights of byte `I` of a quad.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
unsafe fn weight<S: Simd, const B: u8, const I: usize>(
    codes: S::I,
    scale: S::F,
    offset: S::F,
    rounding: Rounding<S>,
) -> S::F {
    // SAFETY: register operations only.
    unsafe {
        let code = S::byte::<I>(codes);
        let product = S::fma(S::to_f(code), scale, offset);
        // Products of 2-bit codes are exact already.
        if B == 2 { product } else { rounding.apply(product) }
    }
}

/// Chains row `I` of a quad onto the sums of `M` token rows and `T` tiles.
///
/// # Safety
/// As for [`Simd`]; `x` points to the activations of the quad's four rows.
#[inline(always)]
unsafe fn chain_row<S: Simd, const T: usize, const M: usize, const B: u8, const I: usize>(
    codes: &[S::I; T],
    scale: &[S::F; T],
    offset: &[S::F; T],
    rounding: Rounding<S>,
    x: *const f32,
    acc: &mut [[S::F; T]; M],
) {
    // SAFETY: promised by the caller.
    unsafe {
        for t in 0..T {
            let w = weight::<S, B, I>(codes[t], scale[t], offset[t], rounding);
            for (m, sums) in acc.iter_mut().enumerate() {
                sums[t] = S::fma(S::splat(*x.add(I * M + m)), w, sums[t]);
            }
        }
    }
}

/// Expands row blocks of one tile to f32 weights: `[row][16]`.
pub(crate) struct ExactPanel<'a> {
    pub(crate) linear: &'a CpuLinear,
    pub(crate) tile: usize,
    pub(crate) blocks: &'a [RowBlock],
    pub(crate) panel: &'a mut [f32],
}

impl Kernel for ExactPanel<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let mut out = self.panel.as_mut_ptr();
        for block in self.blocks {
            // SAFETY: the tile's weights exist; the panel was sized for these blocks.
            unsafe {
                match &self.linear.weights {
                    Weights::Packed(packed) => match block.bits {
                        2 => expand::<S, 2>(packed, self.tile, block, out),
                        3 => expand::<S, 3>(packed, self.tile, block, out),
                        4 => expand::<S, 4>(packed, self.tile, block, out),
                        5 => expand::<S, 5>(packed, self.tile, block, out),
                        6 => expand::<S, 6>(packed, self.tile, block, out),
                        _ => expand::<S, 8>(packed, self.tile, block, out),
                    },
                    Weights::Plain(plain) => {
                        widen::<S>(plain, self.tile * self.linear.input.rows, block, out)
                    }
                    Weights::SmallFloat(codes) => codes.expand::<S>(self.tile, block, out),
                    Weights::Own(_) => unreachable!("these weights have kernels of their own"),
                }
                out = out.add(block.rows * LANES);
            }
        }
    }
}

/// # Safety
/// As for [`Simd`]; the tile and block exist and `out` holds the block's rows.
#[inline(always)]
unsafe fn expand<S: Simd, const B: u8>(
    packed: &Packed,
    tile: usize,
    block: &RowBlock,
    mut out: *mut f32,
) {
    // SAFETY: promised by the caller.
    unsafe {
        let scales = packed.scales.view();
        let rounding = Rounding::<S>::new(scales.rounding());
        let (scale, zero) = scales.load::<S>(tile, block.group, packed.groups, B);
        let offset = S::mul(S::sub(S::splat(0.0), S::to_f(zero)), scale);
        let mut lines =
            packed.words.as_ptr().add(tile * packed.tile_words + block.first_line * LANES);
        for _ in 0..block.rows / BLOCK_ROWS {
            macro_rules! step {
                ($($q:literal)*) => {$(
                    let codes = quad::<S, B>(lines, $q);
                    let rows = out.add(4 * $q * LANES);
                    S::store(rows, weight::<S, B, 0>(codes, scale, offset, rounding));
                    S::store(rows.add(LANES), weight::<S, B, 1>(codes, scale, offset, rounding));
                    S::store(rows.add(2 * LANES), weight::<S, B, 2>(codes, scale, offset, rounding));
                    S::store(rows.add(3 * LANES), weight::<S, B, 3>(codes, scale, offset, rounding));
                )*};
            }
            step!(0 1 2 3 4 5 6 7);
            lines = lines.add(usize::from(B) * LANES);
            out = out.add(BLOCK_ROWS * LANES);
        }
    }
}

/// # Safety
/// As for [`Simd`]; `first_row` is the tile's first row in the data, and `out` holds the block.
#[inline(always)]
unsafe fn widen<S: Simd>(plain: &Plain, first_row: usize, block: &RowBlock, out: *mut f32) {
    for row in 0..block.rows {
        let at = (first_row + block.first_row + row) * LANES;
        // SAFETY: promised by the caller.
        unsafe {
            let w = match plain {
                Plain::F16(data) => S::load_f16(data.as_ptr().add(at)),
                Plain::Bf16(data) => S::load_bf16(data.as_ptr().add(at)),
                Plain::F32(data) => S::load(data.as_ptr().add(at)),
            };
            S::store(out.add(row * LANES), w);
        }
    }
}

/// One tile of token rows (`MR`) times one expanded tile of columns, over some row blocks.
pub(crate) struct ExactTile<'a, const MR: usize> {
    /// Expanded weights of the blocks, `[row][16]`.
    pub(crate) panel: &'a [f32],
    pub(crate) blocks: &'a [RowBlock],
    /// Activations of the token tile, from packed row 0.
    pub(crate) values: &'a [f32],
    /// Chain of the current segment and finished segments, `[MR][16]` each.
    pub(crate) acc: &'a mut [f32],
    pub(crate) total: &'a mut [f32],
}

impl<const MR: usize> Kernel for ExactTile<'_, MR> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // A constant, so that nothing is compiled that is never asked for, see `TileRows`.
        if const { MR > S::GEMM_ROWS } {
            return;
        }
        // SAFETY: the caller sized every slice for these blocks and `MR` rows.
        unsafe {
            let mut b = self.panel.as_ptr();
            for block in self.blocks {
                let mut acc = [S::splat(0.0); MR];
                for (m, chain) in acc.iter_mut().enumerate() {
                    *chain = S::load(self.acc.as_ptr().add(m * LANES));
                }
                let mut x = self.values.as_ptr().add(block.first_row * MR);
                for _ in 0..block.rows {
                    let w = S::load(b);
                    for (m, chain) in acc.iter_mut().enumerate() {
                        *chain = S::fma(S::splat(*x.add(m)), w, *chain);
                    }
                    b = b.add(LANES);
                    x = x.add(MR);
                }
                for (m, chain) in acc.into_iter().enumerate() {
                    S::store(self.acc.as_mut_ptr().add(m * LANES), chain);
                }
                if block.ends_segment {
                    end_segment::<S, MR>(self.acc.as_mut_ptr(), self.total.as_mut_ptr());
                }
            }
        }
    }
}
