//! Wide arithmetic: integer codes times 15-bit activations, exact integer sums per row block.
//!
//! GEMV: tiles in lockstep, each a sequential stream; 32 rows of 16 columns are 16 pair products
//! per activation row. Per row block: `acc = fma(f32(isum − zero·xsum), scale·xs, acc)`.
//! GEMM: a panel of 64 columns is unpacked once to pairs and multiplied with all token rows.
//! Both follow the canonical order, so a token row has the same bits either way.

use super::blocks::{BLOCK_ROWS, RowBlock};
use super::gemv::GemvBlock;
use super::input::WideInput;
use super::quad::{ScaleView, quad};
use super::weights::Packed;
use crate::simd::{Kernel, LANES, Simd};

/// How far ahead of the reading position lines are fetched, in bytes.
const PREFETCH_BYTES: usize = 4096;
/// Pair products per 32 rows.
const PAIRS: usize = BLOCK_ROWS / 2;

/// Wide arithmetic of a few token rows (`M`).
pub(crate) struct WideGemv<'a, const M: usize> {
    pub(crate) packed: &'a Packed,
    pub(crate) input: &'a WideInput<'a>,
}

impl<const M: usize> GemvBlock<M> for WideGemv<'_, M> {
    #[inline(always)]
    unsafe fn add<S: Simd, const T: usize>(
        &self,
        tile: usize,
        index: usize,
        block: &RowBlock,
        acc: &mut [[S::F; T]; M],
    ) {
        // SAFETY: the tiles and the block exist, so every pointer below stays inside.
        unsafe {
            let base = self.packed.words.as_ptr().add(tile * self.packed.tile_words);
            let isum = self.block_sum::<S, T>(base, block);
            let scales = self.packed.scales.view();
            for t in 0..T {
                let (scale, zero) =
                    scales.load::<S>(tile + t, block.group, self.packed.groups, block.bits);
                for m in 0..M {
                    let at = index * M + m;
                    let xs = *self.input.scales.as_ptr().add(at);
                    let xsum = *self.input.sums.as_ptr().add(at);
                    let v = S::sub_i(isum[m][t], S::mul_i(zero, S::splat_i(xsum)));
                    acc[m][t] = S::fma(S::to_f(v), S::mul(scale, S::splat(xs)), acc[m][t]);
                }
            }
        }
    }
}

impl<const M: usize> WideGemv<'_, M> {
    /// # Safety
    /// As for [`Simd`]; `base` is the start of tile 0 of `T` tiles.
    #[inline(always)]
    unsafe fn block_sum<S: Simd, const T: usize>(
        &self,
        base: *const u32,
        block: &RowBlock,
    ) -> [[S::I; T]; M] {
        // SAFETY: forwarded.
        unsafe {
            match block.bits {
                2 => self.block_sum_of::<S, T, 2>(base, block),
                3 => self.block_sum_of::<S, T, 3>(base, block),
                4 => self.block_sum_of::<S, T, 4>(base, block),
                5 => self.block_sum_of::<S, T, 5>(base, block),
                6 => self.block_sum_of::<S, T, 6>(base, block),
                _ => self.block_sum_of::<S, T, 8>(base, block),
            }
        }
    }

    /// # Safety
    /// As for [`WideGemv::block_sum`]; `B` is the width of the block.
    #[inline(always)]
    unsafe fn block_sum_of<S: Simd, const T: usize, const B: u8>(
        &self,
        base: *const u32,
        block: &RowBlock,
    ) -> [[S::I; T]; M] {
        // SAFETY: the block's lines and pairs exist; prefetching may run past the end.
        unsafe {
            let stride = self.packed.tile_words;
            let line_words = usize::from(B) * LANES;
            let mut isum = [[S::splat_i(0); T]; M];
            let mut lines = base.add(block.first_line * LANES);
            let mut x = self.input.pairs.as_ptr().add(block.first_row / 2 * M);
            for _ in 0..block.rows / BLOCK_ROWS {
                for t in 0..T {
                    for line in 0..usize::from(B) {
                        let at = lines.wrapping_add(t * stride + line * LANES);
                        S::prefetch(at.cast::<u8>().wrapping_add(PREFETCH_BYTES));
                    }
                }
                macro_rules! step {
                    ($($q:literal)*) => {$(
                        for t in 0..T {
                            let codes = quad::<S, B>(lines.add(t * stride), $q);
                            let even = S::and(codes, S::splat_i(0x00FF_00FF));
                            let odd = S::shr16::<8>(codes);
                            for m in 0..M {
                                let xe = S::splat_i(*x.add(2 * $q * M + m));
                                let xo = S::splat_i(*x.add((2 * $q + 1) * M + m));
                                isum[m][t] = S::dot16(isum[m][t], even, xe);
                                isum[m][t] = S::dot16(isum[m][t], odd, xo);
                            }
                        }
                    )*};
                }
                step!(0 1 2 3 4 5 6 7);
                lines = lines.add(line_words);
                x = x.add(PAIRS * M);
            }
            isum
        }
    }
}

/// Unpacks row blocks of one tile to pairs: `[32-row block][pair][16]`.
pub(crate) struct WidePanel<'a> {
    pub(crate) packed: &'a Packed,
    pub(crate) tile: usize,
    pub(crate) blocks: &'a [RowBlock],
    pub(crate) panel: &'a mut [i32],
}

impl Kernel for WidePanel<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let mut out = self.panel.as_mut_ptr();
        for block in self.blocks {
            // SAFETY: the tile's lines exist; the panel was sized for these blocks.
            unsafe {
                let base = self.packed.words.as_ptr().add(self.tile * self.packed.tile_words);
                let lines = base.add(block.first_line * LANES);
                let count = block.rows / BLOCK_ROWS;
                match block.bits {
                    2 => unpack::<S, 2>(lines, count, out),
                    3 => unpack::<S, 3>(lines, count, out),
                    4 => unpack::<S, 4>(lines, count, out),
                    5 => unpack::<S, 5>(lines, count, out),
                    6 => unpack::<S, 6>(lines, count, out),
                    _ => unpack::<S, 8>(lines, count, out),
                }
                out = out.add(count * PAIRS * LANES);
            }
        }
    }
}

/// # Safety
/// As for [`Simd`]; `count · B` lines and room for `count` unpacked blocks.
#[inline(always)]
unsafe fn unpack<S: Simd, const B: u8>(mut lines: *const u32, count: usize, mut out: *mut i32) {
    for _ in 0..count {
        // SAFETY: promised by the caller.
        unsafe {
            macro_rules! step {
                ($($q:literal)*) => {$(
                    let codes = quad::<S, B>(lines, $q);
                    S::store_i(out.add(2 * $q * LANES), S::and(codes, S::splat_i(0x00FF_00FF)));
                    S::store_i(out.add((2 * $q + 1) * LANES), S::shr16::<8>(codes));
                )*};
            }
            step!(0 1 2 3 4 5 6 7);
            lines = lines.add(usize::from(B) * LANES);
            out = out.add(PAIRS * LANES);
        }
    }
}

/// One tile of token rows (`MR`) times one unpacked tile of columns, over some row blocks.
pub(crate) struct WideTile<'a, const MR: usize> {
    /// Unpacked pairs of the blocks.
    pub(crate) panel: &'a [i32],
    pub(crate) blocks: &'a [RowBlock],
    /// Index of the first block in the linear.
    pub(crate) first_block: usize,
    pub(crate) scales: ScaleView<'a>,
    pub(crate) groups: usize,
    pub(crate) column_tile: usize,
    /// Pairs of the token tile, from packed row 0.
    pub(crate) pairs: &'a [i32],
    pub(crate) x_scales: &'a [f32],
    pub(crate) x_sums: &'a [i32],
    /// Chain of the current segment and finished segments, `[MR][16]` each.
    pub(crate) acc: &'a mut [f32],
    pub(crate) total: &'a mut [f32],
}

impl<const MR: usize> Kernel for WideTile<'_, MR> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: the caller sized every slice for these blocks and `MR` rows.
        unsafe {
            let mut b = self.panel.as_ptr();
            for (i, block) in self.blocks.iter().enumerate() {
                let mut isum = [S::splat_i(0); MR];
                let mut x = self.pairs.as_ptr().add(block.first_row / 2 * MR);
                for _ in 0..block.rows / 2 {
                    let codes = S::load_i(b.cast());
                    for (m, sum) in isum.iter_mut().enumerate() {
                        *sum = S::dot16(*sum, codes, S::splat_i(*x.add(m)));
                    }
                    b = b.add(LANES);
                    x = x.add(MR);
                }
                let (scale, zero) =
                    self.scales.load::<S>(self.column_tile, block.group, self.groups, block.bits);
                let at = (self.first_block + i) * MR;
                for (m, sum) in isum.into_iter().enumerate() {
                    let xs = *self.x_scales.as_ptr().add(at + m);
                    let xsum = *self.x_sums.as_ptr().add(at + m);
                    let v = S::sub_i(sum, S::mul_i(zero, S::splat_i(xsum)));
                    let acc = self.acc.as_mut_ptr().add(m * LANES);
                    let chain = S::fma(S::to_f(v), S::mul(scale, S::splat(xs)), S::load(acc));
                    S::store(acc, chain);
                }
                if block.ends_segment {
                    end_segment::<S, MR>(self.acc.as_mut_ptr(), self.total.as_mut_ptr());
                }
            }
        }
    }
}

/// Adds the chain of a segment to the total and starts the next one.
///
/// # Safety
/// As for [`Simd`]; `MR · 16` elements behind both pointers.
#[inline(always)]
pub(crate) unsafe fn end_segment<S: Simd, const MR: usize>(acc: *mut f32, total: *mut f32) {
    for m in 0..MR {
        // SAFETY: promised by the caller.
        unsafe {
            let (acc, total) = (acc.add(m * LANES), total.add(m * LANES));
            S::store(total, S::add(S::load(total), S::load(acc)));
            S::store(acc, S::splat(0.0));
        }
    }
}
