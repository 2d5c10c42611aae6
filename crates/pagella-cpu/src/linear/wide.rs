//! Wide arithmetic: integer codes times 15-bit activations, exact integer sums per row block.
//!
//! GEMV: tiles in lockstep, each a sequential stream; 32 rows of 16 columns are 16 pair products
//! per activation row. Per row block: `acc = fma(f32(isum − zero·xsum), scale·xs, acc)`.
//! GEMM: a panel of 64 columns is unpacked once to pairs and multiplied with all token rows.
//! Both follow the canonical order, so a token row has the same bits either way.

use super::blocks::{BLOCK_ROWS, RowBlock};
use super::gemv::{GemvBlock, Kind, fetch_ahead};
use super::input::WideInput;
use super::quad::{ScaleView, quad};
use super::weights::Packed;
use crate::simd::{Kernel, LANES, Simd};

/// Pair products per 32 rows.
const PAIRS: usize = BLOCK_ROWS / 2;

/// Wide arithmetic of a few token rows (`M`).
pub(crate) struct WideGemv<'a, const M: usize> {
    pub(crate) packed: &'a Packed,
    pub(crate) input: &'a WideInput<'a>,
}

impl<const M: usize> GemvBlock<M> for WideGemv<'_, M> {
    const KIND: Kind = Kind::Wide;

    #[inline(always)]
    unsafe fn add<S: Simd, const T: usize>(
        &self,
        token_tile: usize,
        tile: usize,
        index: usize,
        block: &RowBlock,
        acc: &mut [[S::F; T]; M],
    ) {
        // SAFETY: the tiles and the block exist, so every pointer below stays inside.
        unsafe {
            let at = Place {
                tiles: self.packed.words.as_ptr().add(tile * self.packed.tile_words),
                // What other token tiles read is in the cache already.
                fetch: token_tile == 0,
                x: self.input.pairs.as_ptr().add(token_tile * (self.input.rows / 2 * M)),
            };
            let view = self.packed.scales.view();
            let common = view.common_zero(block.bits);
            let first = (token_tile * self.input.blocks + index) * M;
            let xs = self.input.scales.as_ptr().add(first);
            let xsum = self.input.sums.as_ptr().add(first);
            let mut isum = [[S::splat_i(0); T]; M];
            if let Some(zero) = common {
                for (m, sums) in isum.iter_mut().enumerate() {
                    *sums = [S::splat_i((-zero).wrapping_mul(*xsum.add(m))); T];
                }
            }
            self.block_sum::<S, T>(&at, block, &mut isum);
            for t in 0..T {
                let (scale, zero) =
                    view.load::<S>(tile + t, block.group, self.packed.groups, block.bits);
                for m in 0..M {
                    let v = match common {
                        Some(_) => isum[m][t],
                        None => S::sub_i(isum[m][t], S::mul_i(zero, S::splat_i(*xsum.add(m)))),
                    };
                    acc[m][t] = S::fma(S::to_f(v), S::mul(scale, S::splat(*xs.add(m))), acc[m][t]);
                }
            }
        }
    }
}

/// Where the operands of a block are.
struct Place {
    /// Start of tile 0 of `T` tiles.
    tiles: *const u32,
    /// Whether what follows should be fetched early.
    fetch: bool,
    /// Start of a tile of activations.
    x: *const i32,
}

impl<const M: usize> WideGemv<'_, M> {
    /// # Safety
    /// As for [`Simd`]; the block exists at `at`.
    #[inline(always)]
    unsafe fn block_sum<S: Simd, const T: usize>(
        &self,
        at: &Place,
        block: &RowBlock,
        isum: &mut [[S::I; T]; M],
    ) {
        // SAFETY: forwarded.
        unsafe {
            match block.bits {
                2 => self.block_sum_of::<S, T, 2>(at, block, isum),
                3 => self.block_sum_of::<S, T, 3>(at, block, isum),
                4 => self.block_sum_of::<S, T, 4>(at, block, isum),
                5 => self.block_sum_of::<S, T, 5>(at, block, isum),
                6 => self.block_sum_of::<S, T, 6>(at, block, isum),
                _ => self.block_sum_of::<S, T, 8>(at, block, isum),
            }
        }
    }

    /// # Safety
    /// As for [`WideGemv::block_sum`]; `B` is the width of the block.
    #[inline(always)]
    unsafe fn block_sum_of<S: Simd, const T: usize, const B: u8>(
        &self,
        at: &Place,
        block: &RowBlock,
        isum: &mut [[S::I; T]; M],
    ) {
        // SAFETY: the block's lines and pairs exist; prefetching may run past the end.
        unsafe {
            let stride = self.packed.tile_words;
            let line_words = usize::from(B) * LANES;
            let mut line = block.first_line * LANES;
            let mut x = at.x.add(block.first_row / 2 * M);
            for _ in 0..block.rows / BLOCK_ROWS {
                let lines = at.tiles.add(line);
                if at.fetch {
                    fetch_ahead::<S, T>(at.tiles.cast(), 4 * stride, 4 * line, usize::from(B));
                }
                if const { B <= S::BYTE_BITS_MAX[M.ilog2() as usize] } {
                    bytes::<S, T, M, B>(lines, stride, x, isum);
                } else {
                    pairs::<S, T, M, B>(lines, stride, x, isum);
                }
                line += line_words;
                x = x.add(PAIRS * M);
            }
        }
    }
}

/// Adds 32 rows as pairs of 16 bits.
///
/// # Safety
/// As for [`Simd`]; `B` lines of `T` tiles, `stride` words apart, and 16 pairs for every row.
#[inline(always)]
unsafe fn pairs<S: Simd, const T: usize, const M: usize, const B: u8>(
    lines: *const u32,
    stride: usize,
    x: *const i32,
    isum: &mut [[S::I; T]; M],
) {
    // SAFETY: promised by the caller.
    unsafe {
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
    }
}

/// Adds 32 rows as bytes.
///
/// # Safety
/// As for [`pairs`], with the bytes of a quad in place of its pairs.
#[inline(always)]
unsafe fn bytes<S: Simd, const T: usize, const M: usize, const B: u8>(
    lines: *const u32,
    stride: usize,
    x: *const i32,
    isum: &mut [[S::I; T]; M],
) {
    // SAFETY: promised by the caller.
    unsafe {
        let zero = [S::splat_i(0); 2];
        let mut sums = [[zero; T]; M];
        macro_rules! step {
            ($($q:literal)*) => {$(
                for t in 0..T {
                    let codes = quad::<S, B>(lines.add(t * stride), $q);
                    for m in 0..M {
                        let high = S::splat_i(*x.add(2 * $q * M + m));
                        let low = S::splat_i(*x.add((2 * $q + 1) * M + m));
                        sums[m][t] = S::dot_bytes(sums[m][t], codes, high, low);
                    }
                }
                if ($q + 1) % S::byte_quads(B).min(8) == 0 {
                    for m in 0..M {
                        for t in 0..T {
                            isum[m][t] = S::fold_bytes(isum[m][t], sums[m][t]);
                            sums[m][t] = zero;
                        }
                    }
                }
            )*};
        }
        step!(0 1 2 3 4 5 6 7);
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
        // A constant, so that nothing is compiled that is never asked for, see `TileRows`.
        if const { MR > S::GEMM_ROWS } {
            return;
        }
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
