//! From words of a bit stream to weights, in registers.
//!
//! A line is one word of the same place in 16 tiles. The lines `[c·bits, (c + 1)·bits)` of a pair of
//! tile rows, with the line before them, hold 32 weights of every tile: 16 rows of columns `c` and
//! `c + 8`.

use pagella_formats::exl3::Codebook;

use super::super::quad::round_f16;
use crate::simd::{LANES, Simd};

/// [`Codebook::ThreeInst`] and [`Codebook::Mcg`]: the sum of two halves.
pub(super) const HALVES: u8 = 0;
/// [`Codebook::Mul1`]: the sum of four bytes.
pub(super) const BYTES: u8 = 1;

/// Step and origin of a value that is affine in a sum of bytes; both products are exact.
const SUM_STEP: f32 = 1774.0 / 262_144.0;
const SUM_ORIGIN: f32 = -10.382_812_5 + 1024.0 * SUM_STEP;
/// Brings back halves whose exponent was taken for that of an f32.
const HALF_SCALE: f32 = f32::from_bits((127 + 112) << 23);

/// The codebook in registers.
#[derive(Clone, Copy)]
pub(super) struct Book<S: Simd> {
    multiplier: S::I,
    addend: S::I,
}

impl<S: Simd> Book<S> {
    /// # Safety
    /// As for [`Simd`].
    #[inline(always)]
    pub(super) unsafe fn new(codebook: Codebook) -> Self {
        let (multiplier, addend) = codebook.factors();
        // SAFETY: register operations only.
        unsafe {
            Book { multiplier: S::splat_i(multiplier as i32), addend: S::splat_i(addend as i32) }
        }
    }

    /// Values of 16 states, which are below 2^16.
    ///
    /// # Safety
    /// As for [`Simd`].
    #[inline(always)]
    pub(super) unsafe fn value<const C: u8>(self, state: S::I) -> S::F {
        // SAFETY: register operations only.
        unsafe {
            let x = S::mul_i(state, self.multiplier);
            if C == BYTES {
                let sum = S::to_f(S::sum_bytes(x));
                let value = S::fma(sum, S::splat(SUM_STEP), S::splat(SUM_ORIGIN));
                return round_f16::<S>(value);
            }
            let x = S::and(S::add_i(x, self.addend), S::splat_i(0x8FFF_8FFF_u32 as i32));
            let x = S::xor(x, S::splat_i(0x3B60_3B60));
            let sum = S::add(widened::<S>(S::shl::<16>(x)), widened::<S>(x));
            S::mul(round_f16::<S>(sum), S::splat(HALF_SCALE))
        }
    }
}

/// The binary16 in the upper halves of lanes as f32, but for the bias of the exponent: the sign stays,
/// exponent and digits move to where those of an f32 are.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
unsafe fn widened<S: Simd>(half: S::I) -> S::F {
    // SAFETY: register operations only.
    unsafe {
        let sign = S::and(half, S::splat_i(i32::MIN));
        let digits = S::and(S::shr::<3>(half), S::splat_i(0x0FFF_E000));
        S::bits_f(S::or(sign, digits))
    }
}

/// What happens to decoded weights. A trait, because a closure need not be inlined and would then be
/// compiled without the vectors of its level.
pub(super) trait Take<S: Simd> {
    /// Takes the weights of two columns in place `u` of a tile's packed rows.
    ///
    /// # Safety
    /// As for [`Simd`]; `u` is below 16.
    unsafe fn take(&mut self, u: usize, low: S::F, high: S::F);
}

/// The lines of 32 weights: the one before them, then `bits` of their own.
type Lines<S> = [<S as Simd>::I; 9];

/// Loads the lines of columns `c` and `c + 8`.
///
/// # Safety
/// As for [`Simd`]; `pair` points to `8 · B` lines and `c` is below 8.
#[inline(always)]
unsafe fn lines<S: Simd, const B: usize>(pair: *const u32, c: usize) -> Lines<S> {
    // SAFETY: every index is below `8 · B`.
    unsafe {
        let line = |at: usize| S::load_i(pair.add(at * LANES));
        let mut lines = [S::splat_i(0); 9];
        lines[0] = line((c * B + 8 * B - 1) % (8 * B));
        for (i, out) in lines[1..=B].iter_mut().enumerate() {
            *out = line(c * B + i);
        }
        lines
    }
}

/// Weights of columns `c` and `c + 8` in place `u` of a tile's packed rows, for every `u` in turn.
///
/// # Safety
/// As for [`Simd`]; `pair` points to `8 · B` lines and `c` is below 8.
#[inline(always)]
pub(super) unsafe fn decode<S: Simd, const B: usize, const C: u8>(
    book: Book<S>,
    pair: *const u32,
    c: usize,
    to: &mut impl Take<S>,
) {
    // SAFETY: promised by the caller.
    unsafe {
        let lines = lines::<S, B>(pair, c);
        macro_rules! weights {
            ($u:expr) => {
                let q = $u / 4 * 8 + $u % 4;
                let low = book.value::<C>(state::<S, B>(&lines, q));
                let high = book.value::<C>(state::<S, B>(&lines, q + 4));
                to.take($u, low, high);
            };
        }
        macro_rules! unrolled {
            ($($u:literal)*) => {$(weights!($u);)*};
        }
        // Where a vector is not a register or two, constants are not worth the code.
        if S::REGISTERS <= 2 {
            unrolled!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        } else {
            for u in 0..16 {
                weights!(u);
            }
        }
    }
}

/// State `q` of the 32 that [`Lines`] hold. `q` is a constant at every call, so shifts and choices
/// fold away.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
unsafe fn state<S: Simd, const B: usize>(lines: &Lines<S>, q: usize) -> S::I {
    let end = (q + 1) * B;
    let word = (end - 1) / 32;
    let taken = (end - 32 * word) as u32;
    // SAFETY: register operations only; shifts are below 32.
    unsafe {
        let tail = S::shr_by(lines[word + 1], 32 - taken);
        match taken {
            16 => tail,
            17.. => S::and(tail, S::splat_i(0xFFFF)),
            _ => S::and(S::or(S::shl_by(lines[word], taken), tail), S::splat_i(0xFFFF)),
        }
    }
}
