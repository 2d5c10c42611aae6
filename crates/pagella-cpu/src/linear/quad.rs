//! Reading packed weights with vectors: quads of codes, scales and zero points.

use crate::simd::{LANES, Simd};

/// Quad `q` (0…7) of a 32-row block of `B`-bit codes: byte `i` of a lane is the code of row
/// `4q + i` of that column. `q` is a constant at every call, so the match folds away.
///
/// # Safety
/// As for [`Simd`]; `lines` points to `B` lines of 16 words.
#[inline(always)]
pub(crate) unsafe fn quad<S: Simd, const B: u8>(lines: *const u32, q: usize) -> S::I {
    // SAFETY: word indices stay below `B` for `q < 8`; the caller promises `B` lines.
    unsafe {
        let word = |j: usize| S::load_i(lines.add(j * LANES));
        let mask = |v, m: i32| S::and(v, S::splat_i(m));
        match (B, q) {
            (2, _) => {
                let w = word(q / 4);
                let w = match q % 4 {
                    0 => w,
                    1 => S::shr::<2>(w),
                    2 => S::shr::<4>(w),
                    _ => S::shr::<6>(w),
                };
                mask(w, 0x0303_0303)
            }
            (3, 6) => S::or(
                mask(S::shr::<6>(word(0)), 0x0101_0101),
                S::or(
                    mask(S::shr::<5>(word(1)), 0x0202_0202),
                    mask(S::shr::<4>(word(2)), 0x0404_0404),
                ),
            ),
            (3, 7) => S::or(
                mask(S::shr::<7>(word(0)), 0x0101_0101),
                S::or(
                    mask(S::shr::<6>(word(1)), 0x0202_0202),
                    mask(S::shr::<5>(word(2)), 0x0404_0404),
                ),
            ),
            (3, _) if q.is_multiple_of(2) => mask(word(q / 2), 0x0707_0707),
            (3, _) => mask(S::shr::<3>(word(q / 2)), 0x0707_0707),
            (4, _) if q.is_multiple_of(2) => mask(word(q / 2), 0x0F0F_0F0F),
            (4, _) => mask(S::shr::<4>(word(q / 2)), 0x0F0F_0F0F),
            (5, 5) => S::or(
                mask(S::shr::<5>(word(0)), 0x0707_0707),
                mask(S::shr::<2>(word(1)), 0x1818_1818),
            ),
            (5, 6) => S::or(
                mask(S::shr::<5>(word(2)), 0x0707_0707),
                mask(S::shr::<2>(word(3)), 0x1818_1818),
            ),
            (5, 7) => S::or(
                mask(S::shr::<5>(word(4)), 0x0707_0707),
                S::or(
                    mask(S::shr::<4>(word(1)), 0x0808_0808),
                    mask(S::shr::<3>(word(3)), 0x1010_1010),
                ),
            ),
            (5, _) => mask(word(q), 0x1F1F_1F1F),
            (6, 6 | 7) => {
                let w = (q - 6) * 3;
                S::or(
                    mask(S::shr::<6>(word(w)), 0x0303_0303),
                    S::or(
                        mask(S::shr::<4>(word(w + 1)), 0x0C0C_0C0C),
                        mask(S::shr::<2>(word(w + 2)), 0x3030_3030),
                    ),
                )
            }
            (6, _) => mask(word(q), 0x3F3F_3F3F),
            _ => word(q),
        }
    }
}

/// The zero point of offset-binary codes.
pub(crate) const fn zero_point(bits: u8) -> i32 {
    1 << (bits - 1)
}

/// Rounds to 11 significant bits, ties to even: the binary16 value of every product
/// `(code − zero) · scale`, for all finite binary16 scales, subnormal ones included, because such
/// products are multiples of 2⁻²⁴. Overflow is excluded at load.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
pub(crate) unsafe fn round_f16<S: Simd>(p: S::F) -> S::F {
    // SAFETY: register operations only.
    unsafe { Rounding::<S>::new(ROUND_F16).apply(p) }
}

/// Factor of [`Rounding`] that rounds to the 11 significant bits of binary16.
const ROUND_F16: f32 = 8192.0;

/// [`round_f16`] with a factor of [`ROUND_F16`]; the value itself with a factor of 0.
#[derive(Clone, Copy)]
pub(crate) struct Rounding<S: Simd> {
    factor: S::F,
    /// One more.
    next: S::F,
}

impl<S: Simd> Rounding<S> {
    /// # Safety
    /// As for [`Simd`].
    #[inline(always)]
    pub(crate) unsafe fn new(factor: f32) -> Self {
        // SAFETY: register operations only.
        unsafe { Rounding { factor: S::splat(factor), next: S::splat(factor + 1.0) } }
    }

    /// # Safety
    /// As for [`Simd`].
    #[inline(always)]
    pub(crate) unsafe fn apply(self, p: S::F) -> S::F {
        // SAFETY: register operations only.
        unsafe { S::fnma(p, self.factor, S::mul(p, self.next)) }
    }
}

/// Scales of one tile and group.
#[derive(Clone, Copy)]
pub(crate) enum ScaleView<'a> {
    /// EXL2: `((code + 1)² · step)` rounded to binary16. One byte per column holds the codes of
    /// two groups, the even one in the low nibble.
    Square {
        /// `[tile][group pair][16]`.
        codes: &'a [u8],
        /// Per group, already rounded to binary16.
        steps: &'a [f32],
    },
    /// GPTQ and its kin: a binary16 scale and a zero point per column.
    Half {
        /// `[tile][group][16]`, binary16 bits.
        scales: &'a [u16],
        /// `[tile][group][16]`.
        zeros: &'a [u8],
        /// Whether weights are binary16 numbers.
        rounded: bool,
    },
    /// The same with scales that binary16 does not hold. `zero · scale` is exact in f32, so that a
    /// weight is rounded once.
    Single {
        /// `[tile][group][16]`.
        scales: &'a [f32],
        /// `[tile][group][16]`.
        zeros: &'a [u8],
    },
}

impl ScaleView<'_> {
    /// The factor of [`Rounding`] that gives the format's weights: EXL2 and AWQ define them as binary16
    /// values, others as the product itself, which f32 holds exactly for binary16 scales.
    pub(crate) fn rounding(self) -> f32 {
        match self {
            ScaleView::Square { .. } | ScaleView::Half { rounded: true, .. } => ROUND_F16,
            ScaleView::Half { .. } | ScaleView::Single { .. } => 0.0,
        }
    }

    /// The zero point, where it is the same for all columns.
    #[inline(always)]
    pub(crate) fn common_zero(self, bits: u8) -> Option<i32> {
        match self {
            ScaleView::Square { .. } => Some(zero_point(bits)),
            ScaleView::Half { .. } | ScaleView::Single { .. } => None,
        }
    }

    /// Scales and zero points of 16 columns.
    ///
    /// # Safety
    /// As for [`Simd`]; `tile` and `group` exist.
    #[inline(always)]
    pub(crate) unsafe fn load<S: Simd>(
        self,
        tile: usize,
        group: usize,
        groups: usize,
        bits: u8,
    ) -> (S::F, S::I) {
        // SAFETY: the arrays hold 16 entries for every tile and group (pair), so the offsets of an
        // existing tile and group are in bounds.
        unsafe {
            match self {
                ScaleView::Square { codes, steps } => {
                    let at = (tile * groups.div_ceil(2) + group / 2) * LANES;
                    let pair = S::load_u8(codes.as_ptr().add(at));
                    let pair = if group % 2 == 1 { S::shr::<4>(pair) } else { pair };
                    // Squares up to 256 are exact.
                    let root = S::add(S::to_f(S::and(pair, S::splat_i(15))), S::splat(1.0));
                    let step = S::splat(*steps.as_ptr().add(group));
                    let scale = round_f16::<S>(S::mul(S::mul(root, root), step));
                    (scale, S::splat_i(zero_point(bits)))
                }
                ScaleView::Half { scales, zeros, .. } => {
                    let at = (tile * groups + group) * LANES;
                    (S::load_f16(scales.as_ptr().add(at)), S::load_u8(zeros.as_ptr().add(at)))
                }
                ScaleView::Single { scales, zeros } => {
                    let at = (tile * groups + group) * LANES;
                    (S::load(scales.as_ptr().add(at)), S::load_u8(zeros.as_ptr().add(at)))
                }
            }
        }
    }
}
