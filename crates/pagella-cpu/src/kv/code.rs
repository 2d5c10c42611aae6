//! The quantised code: 64 elements rotated together, a binary16 scale per 32, 8 or 4 bits each.
//!
//! The rotation spreads an outlier over its block. Even and odd elements are transformed apart, by
//! the unnormalised 32-point Hadamard matrix; the factor 1/32 belongs to the way back.

use crate::simd::{LANES, Simd};

/// Elements rotated together.
pub(crate) const ROTATION: usize = 64;
/// Elements that share a scale.
pub(crate) const SCALED: usize = 32;
/// `H · H = 32 · I`.
pub(crate) const UNROTATE: f32 = 1.0 / 32.0;

/// Inputs up to this stay finite in binary16 through all five stages.
const HALF_SAFE_MAX: f32 = 2047.0;

/// Bits per code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bits {
    Four,
    Eight,
}

impl Bits {
    /// The code of zero; codes reach from 0 to twice this less one.
    pub(crate) fn half(self) -> f32 {
        match self {
            Bits::Four => 8.0,
            Bits::Eight => 128.0,
        }
    }

    /// Bytes of `elements` codes.
    pub(crate) fn bytes(self, elements: usize) -> usize {
        match self {
            Bits::Four => elements / 2,
            Bits::Eight => elements,
        }
    }
}

/// A block as it is stored, in element order.
pub(crate) struct Encoded {
    pub(crate) codes: [u8; ROTATION],
    /// Binary16.
    pub(crate) scales: [u16; ROTATION / SCALED],
}

/// One stage of the transform: elements whose index differs in the bit `step`.
#[inline(always)]
fn butterfly(block: &mut [f32; ROTATION], step: usize) {
    for low in (0..ROTATION).filter(|i| i & step == 0) {
        let (a, b) = (block[low], block[low + step]);
        (block[low], block[low + step]) = (a + b, a - b);
    }
}

/// The unnormalised transform in f32, its own inverse but for the factor 32.
#[inline(always)]
pub(crate) fn rotate(block: &mut [f32; ROTATION]) {
    butterfly(block, 2);
    butterfly(block, 4);
    butterfly(block, 8);
    butterfly(block, 16);
    butterfly(block, 32);
}

/// [`rotate`] on every whole block of `row`, scaled.
pub(crate) fn rotate_row(row: &mut [f32], scale: f32) {
    for block in row.as_chunks_mut::<ROTATION>().0 {
        rotate(block);
        block.iter_mut().for_each(|x| *x *= scale);
    }
}

/// Rounds to binary16.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
unsafe fn round<S: Simd, const N: usize>(values: &mut [f32; N]) {
    let mut narrow = [0u16; LANES];
    for lanes in values.as_chunks_mut::<LANES>().0 {
        // SAFETY: both arrays hold 16 elements.
        unsafe {
            S::store_f16(narrow.as_mut_ptr(), S::load(lanes.as_ptr()));
            S::store(lanes.as_mut_ptr(), S::load_f16(narrow.as_ptr()));
        }
    }
}

/// Rotates and quantises one block. The stages are rounded to binary16, except in blocks whose
/// sums could overflow it. NaN or infinity anywhere makes the scales NaN.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
pub(crate) unsafe fn encode<S: Simd>(mut block: [f32; ROTATION], bits: Bits) -> Encoded {
    // SAFETY: passed on to the caller.
    unsafe {
        round::<S, ROTATION>(&mut block);
        if block.iter().all(|x| x.abs() <= HALF_SAFE_MAX) {
            for step in [2, 4, 8, 16, 32] {
                butterfly(&mut block, step);
                round::<S, ROTATION>(&mut block);
            }
        } else {
            rotate(&mut block);
        }
        let mut encoded = Encoded { codes: [0; ROTATION], scales: [0; ROTATION / SCALED] };
        let parts = block.as_chunks::<SCALED>().0.iter().zip(encoded.codes.as_chunks_mut().0);
        for ((part, codes), scale) in parts.zip(&mut encoded.scales) {
            *scale = quantize::<S>(part, bits, codes);
        }
        encoded
    }
}

/// Quantises 32 rotated elements; returns the scale.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
unsafe fn quantize<S: Simd>(w: &[f32; SCALED], bits: Bits, codes: &mut [u8; SCALED]) -> u16 {
    let half = bits.half();
    let largest = w.iter().fold(0.0f32, |m, x| m.max(x.abs()));
    if largest == 0.0 && !w.iter().any(|x| x.is_nan()) {
        return 0;
    }
    if !largest.is_finite() || w.iter().any(|x| x.is_nan()) {
        return half::f16::NAN.to_bits();
    }
    let mut ratio = [0.0f32; SCALED];
    for (ratio, w) in ratio.iter_mut().zip(w) {
        *ratio = w / largest;
    }
    // SAFETY: passed on to the caller; all arrays hold whole vectors.
    unsafe {
        round::<S, SCALED>(&mut ratio);
        for x in &mut ratio {
            // The product is exact, so this is one rounding.
            *x = *x * half + half;
        }
        round::<S, SCALED>(&mut ratio);
        let mut code = [0i32; LANES];
        for (lanes, codes) in
            ratio.as_chunks::<LANES>().0.iter().zip(codes.as_chunks_mut::<LANES>().0)
        {
            let clamped = S::min(S::load(lanes.as_ptr()), S::splat(2.0 * half - 1.0));
            S::store_i(code.as_mut_ptr(), S::round_i(clamped));
            *codes = code.map(|c| c as u8);
        }
        let mut scale = [0u16; LANES];
        S::store_f16(scale.as_mut_ptr(), S::splat(largest / half));
        scale[0]
    }
}

#[cfg(test)]
pub(crate) mod tests;
