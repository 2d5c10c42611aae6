//! Slots of quantised keys and values: where codes and scales go, and panels made of them.
//!
//! A slot of keys holds words of four bytes, tokens innermost: `[D/4][256]` words of 4 consecutive
//! elements at 8 bits, `[D/8][256]` words of 8 at 4 bits, where byte `i` has element `i` low and
//! element `4 + i` high. A slot of values holds rows `[256][D]` at 8 bits and `[256][D/2]` at 4,
//! where byte `i` of 32 elements has element `i` low and element `16 + i` high. Scales are
//! `[D/32][256]` binary16 in both.

use std::ops::Range;

use pagella_backend::PAGE_TOKENS;

use super::code::{Bits, Encoded, ROTATION, SCALED};
use crate::simd::{Kernel, LANES, Simd};

/// One slot to write: codes and scales.
#[derive(Clone, Copy)]
pub(super) struct SlotMut {
    pub(super) codes: *mut u8,
    pub(super) scales: *mut u16,
    pub(super) bits: Bits,
}

impl SlotMut {
    /// Writes 32 elements from `d` on, a multiple of 32, as keys of `token`. `part` says which half
    /// of `encoded`.
    ///
    /// # Safety
    /// The slot has the element and the token and belongs to the caller.
    pub(super) unsafe fn put_keys(&self, encoded: &Encoded, part: usize, token: usize, d: usize) {
        let codes = &encoded.codes[part * SCALED..(part + 1) * SCALED];
        let word = |index: usize| (index * PAGE_TOKENS + token) * 4;
        // SAFETY: words `d / 4 …` (or `d / 8 …`) of the token, and its scale, are in the slot.
        unsafe {
            match self.bits {
                Bits::Eight => {
                    for (j, bytes) in codes.as_chunks::<4>().0.iter().enumerate() {
                        self.codes.add(word(d / 4 + j)).cast::<[u8; 4]>().write(*bytes);
                    }
                }
                Bits::Four => {
                    for (j, c) in codes.as_chunks::<8>().0.iter().enumerate() {
                        let bytes: [u8; 4] = std::array::from_fn(|i| c[i] | (c[4 + i] << 4));
                        self.codes.add(word(d / 8 + j)).cast::<[u8; 4]>().write(bytes);
                    }
                }
            }
            *self.scales.add(d / SCALED * PAGE_TOKENS + token) = encoded.scales[part];
        }
    }

    /// The same for values; `width` is the head size.
    ///
    /// # Safety
    /// As for [`SlotMut::put_keys`].
    pub(super) unsafe fn put_values(
        &self,
        encoded: &Encoded,
        part: usize,
        token: usize,
        d: usize,
        width: usize,
    ) {
        let codes = &encoded.codes[part * SCALED..(part + 1) * SCALED];
        // SAFETY: the bytes of elements `d … d + 32` of the token, and their scale, are in the slot.
        unsafe {
            let row = self.codes.add(self.bits.bytes(token * width + d));
            match self.bits {
                Bits::Eight => std::ptr::copy_nonoverlapping(codes.as_ptr(), row, SCALED),
                Bits::Four => {
                    for i in 0..LANES {
                        *row.add(i) = codes[i] | (codes[LANES + i] << 4);
                    }
                }
            }
            *self.scales.add(d / SCALED * PAGE_TOKENS + token) = encoded.scales[part];
        }
    }
}

/// One slot to read.
#[derive(Clone)]
pub(super) struct Slot {
    pub(super) codes: *const u8,
    pub(super) scales: *const u16,
    pub(super) bits: Bits,
    /// Elements per head, a multiple of 32.
    pub(super) width: usize,
    /// Tokens wanted, from a multiple of 16 on; the vector with the last one is decoded as a whole,
    /// whatever it holds.
    pub(super) tokens: Range<usize>,
}

/// Decodes a slot into rows of `step` elements, still rotated.
pub(super) struct Panel<'a> {
    pub(super) slot: Slot,
    pub(super) panel: &'a mut [f32],
    pub(super) step: usize,
}

/// `(code − half) · scale`, which is exact: 8 bits times 11.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
unsafe fn value<S: Simd>(code: S::I, scale: S::F, zero: S::F) -> S::F {
    // SAFETY: register operations of the level the caller is compiled for.
    unsafe { S::fma(S::to_f(code), scale, zero) }
}

/// Keys: `[width][step]`, tokens innermost.
pub(super) struct KeyPanel<'a>(pub(super) Panel<'a>);

impl Kernel for KeyPanel<'_> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Panel { slot, panel, step } = self.0;
        let Range { start, end } = slot.tokens;
        let fits =
            panel.len() >= slot.width * step && (end - start).next_multiple_of(LANES) <= step;
        assert!(fits, "the panel holds the keys");
        let panel = panel.as_mut_ptr();
        // SAFETY: words and scales are in the slot, rows in the panel.
        unsafe {
            let mask = S::splat_i(if slot.bits == Bits::Eight { 0xFF } else { 0xF });
            let per_word = if slot.bits == Bits::Eight { 4 } else { 8 };
            for word in 0..slot.width / per_word {
                let words = slot.codes.cast::<u32>().add(word * PAGE_TOKENS);
                let scales = slot.scales.add(word * per_word / SCALED * PAGE_TOKENS);
                for lane in (start..end).step_by(LANES) {
                    // What is decoded next: the tokens after these, or the next row.
                    S::prefetch(words.wrapping_add(lane + end - start).cast());
                    let scale = S::load_f16(scales.add(lane));
                    let zero = S::mul(scale, S::splat(-slot.bits.half()));
                    let w = S::load_i(words.add(lane));
                    let row = panel.add(word * per_word * step + lane - start);
                    macro_rules! put {
                        ($($element:literal: $code:expr),*) => {
                            $(S::store(
                                row.add($element * step),
                                value::<S>(S::and($code, mask), scale, zero),
                            );)*
                        };
                    }
                    let (b, c, d) = (S::shr::<8>(w), S::shr::<16>(w), S::shr::<24>(w));
                    put!(0: w, 1: b, 2: c, 3: d);
                    if slot.bits == Bits::Four {
                        let (a, b) = (S::shr::<4>(w), S::shr::<12>(w));
                        put!(4: a, 5: b, 6: S::shr::<20>(w), 7: S::shr::<28>(w));
                    }
                }
            }
        }
    }
}

/// Values: `[tokens][step]`, elements innermost.
pub(super) struct ValuePanel<'a>(pub(super) Panel<'a>);

impl Kernel for ValuePanel<'_> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Panel { slot, panel, step } = self.0;
        let Range { start, end } = slot.tokens;
        let last = (end - start).saturating_sub(1) * step + slot.width;
        assert!(panel.len() >= last && step >= slot.width, "the panel holds the values");
        let panel = panel.as_mut_ptr();
        let ahead = slot.bits.bytes((end - start) * slot.width);
        // SAFETY: rows and scales are in the slot, rows in the panel.
        unsafe {
            // Sixteen tokens at a time: their rows stay in the nearest cache.
            for first in (start..end).step_by(LANES) {
                for block in 0..slot.width / SCALED {
                    let mut scales = [0.0f32; LANES];
                    let source = slot.scales.add(block * PAGE_TOKENS + first);
                    S::store(scales.as_mut_ptr(), S::load_f16(source));
                    for (token, scale) in (first..end).zip(scales) {
                        let zero = S::splat(-slot.bits.half() * scale);
                        let scale = S::splat(scale);
                        let codes =
                            slot.codes.add(slot.bits.bytes(token * slot.width + block * SCALED));
                        S::prefetch(codes.wrapping_add(ahead));
                        let (low, high) = match slot.bits {
                            Bits::Eight => (S::load_u8(codes), S::load_u8(codes.add(LANES))),
                            Bits::Four => {
                                let both = S::load_u8(codes);
                                (S::and(both, S::splat_i(0xF)), S::shr::<4>(both))
                            }
                        };
                        let row = panel.add((token - start) * step + block * SCALED);
                        S::store(row, value::<S>(low, scale, zero));
                        S::store(row.add(LANES), value::<S>(high, scale, zero));
                    }
                }
            }
        }
    }
}

/// Undoes the rotation of keys `[rows][256]`, whole blocks of rows, for the first `tokens` tokens.
pub(super) fn unrotate_keys(panel: &mut [f32], tokens: usize) {
    for block in panel.chunks_exact_mut(ROTATION * PAGE_TOKENS) {
        for step in [2, 4, 8, 16, 32] {
            for low in (0..ROTATION).filter(|i| i & step == 0) {
                let (first, second) = block.split_at_mut((low + step) * PAGE_TOKENS);
                let first = &mut first[low * PAGE_TOKENS..][..tokens];
                for (a, b) in first.iter_mut().zip(&mut second[..tokens]) {
                    (*a, *b) = (*a + *b, *a - *b);
                }
            }
        }
        block.iter_mut().for_each(|x| *x *= super::code::UNROTATE);
    }
}
