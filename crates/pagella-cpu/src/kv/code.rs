//! The quantised code: 64 elements rotated together, a binary16 scale per 32, 8 or 4 bits each.
//!
//! The rotation spreads an outlier over its block. Even and odd elements are transformed apart, by
//! the unnormalised 32-point Hadamard matrix; the factor 1/32 belongs to the way back.

use crate::simd::{Isa, Kernel, LANES, Simd};

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

/// A block in registers, elements in order.
type Block<S> = [<S as Simd>::F; ROTATION / LANES];

/// 1, or −1 in the lanes whose number has the bit `N`.
const fn signs<const N: usize>() -> [f32; LANES] {
    let mut signs = [1.0; LANES];
    let mut i = 0;
    while i < LANES {
        if i & N != 0 {
            signs[i] = -1.0;
        }
        i += 1;
    }
    signs
}

/// One stage inside the vectors: each element plus or minus the one `N` lanes away.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
unsafe fn stage_within<S: Simd, const N: usize>(block: &mut Block<S>) {
    let signs = const { signs::<N>() };
    // SAFETY: `signs` holds 16 elements; the rest are register operations.
    unsafe {
        let signs = S::load(signs.as_ptr());
        for v in block {
            *v = S::fma(*v, signs, S::swap::<N>(*v));
        }
    }
}

/// One stage between the vectors `first` and `second`.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
unsafe fn stage_between<S: Simd>(block: &mut Block<S>, first: usize, second: usize) {
    let (a, b) = (block[first], block[second]);
    // SAFETY: register operations of the level the caller is compiled for.
    unsafe {
        block[first] = S::add(a, b);
        block[second] = S::sub(a, b);
    }
}

/// The unnormalised transform, its own inverse but for the factor 32. With `ROUND` every stage is
/// rounded to binary16.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
unsafe fn rotate<S: Simd, const ROUND: bool>(block: &mut Block<S>) {
    // SAFETY: passed on to the caller.
    unsafe {
        stage_within::<S, 2>(block);
        round_if::<S, ROUND>(block);
        stage_within::<S, 4>(block);
        round_if::<S, ROUND>(block);
        stage_within::<S, 8>(block);
        round_if::<S, ROUND>(block);
        stage_between::<S>(block, 0, 1);
        stage_between::<S>(block, 2, 3);
        round_if::<S, ROUND>(block);
        stage_between::<S>(block, 0, 2);
        stage_between::<S>(block, 1, 3);
        round_if::<S, ROUND>(block);
    }
}

/// # Safety
/// As for [`Simd`].
#[inline(always)]
unsafe fn round_if<S: Simd, const ROUND: bool>(block: &mut Block<S>) {
    if ROUND {
        for v in block {
            // SAFETY: passed on to the caller.
            *v = unsafe { round::<S>(*v) };
        }
    }
}

/// Rounds to binary16.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
unsafe fn round<S: Simd>(v: S::F) -> S::F {
    let mut narrow = [0u16; LANES];
    // SAFETY: `narrow` holds 16 elements.
    unsafe {
        S::store_f16(narrow.as_mut_ptr(), v);
        S::load_f16(narrow.as_ptr())
    }
}

/// Rotates every whole block of `row` and multiplies it with `scale`.
pub(crate) fn rotate_row(isa: Isa, row: &mut [f32], scale: f32) {
    isa.run(RotateRow { row, scale });
}

struct RotateRow<'a> {
    row: &'a mut [f32],
    scale: f32,
}

impl Kernel for RotateRow<'_> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        for elements in self.row.as_chunks_mut::<ROTATION>().0 {
            // SAFETY: reached through `Isa::run`; a block holds four vectors.
            unsafe {
                let mut block = load::<S>(elements.as_ptr());
                rotate::<S, false>(&mut block);
                for (i, v) in block.into_iter().enumerate() {
                    let scaled = S::mul(v, S::splat(self.scale));
                    S::store(elements.as_mut_ptr().add(i * LANES), scaled);
                }
            }
        }
    }
}

/// # Safety
/// As for [`Simd`]; `p` points to a block.
#[inline(always)]
unsafe fn load<S: Simd>(p: *const f32) -> Block<S> {
    // SAFETY: four vectors make a block.
    unsafe {
        [S::load(p), S::load(p.add(LANES)), S::load(p.add(2 * LANES)), S::load(p.add(3 * LANES))]
    }
}

/// Rotates and quantises the block at `x`. The stages are rounded to binary16, except in blocks
/// whose sums could overflow it. NaN or infinity anywhere makes the scales NaN.
///
/// # Safety
/// As for [`Simd`]; `x` points to [`ROTATION`] elements.
#[inline(always)]
pub(crate) unsafe fn encode<S: Simd>(x: *const f32, bits: Bits) -> Encoded {
    // SAFETY: passed on to the caller.
    unsafe {
        let mut block = load::<S>(x);
        round_if::<S, true>(&mut block);
        let [a, b, c, d] = block.map(
            #[inline(always)]
            |v| S::abs(v),
        );
        let largest = S::max_lane(S::max(S::max(a, b), S::max(c, d)));
        if largest <= HALF_SAFE_MAX {
            rotate::<S, true>(&mut block);
        } else {
            rotate::<S, false>(&mut block);
        }
        let mut encoded = Encoded { codes: [0; ROTATION], scales: [0; ROTATION / SCALED] };
        let [low, high] = &mut encoded.codes.as_chunks_mut::<SCALED>().0 else {
            unreachable!("a block has two parts");
        };
        encoded.scales = [
            quantize::<S>(block[0], block[1], bits, low),
            quantize::<S>(block[2], block[3], bits, high),
        ];
        encoded
    }
}

/// Quantises 32 rotated elements; returns the scale.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
unsafe fn quantize<S: Simd>(a: S::F, b: S::F, bits: Bits, codes: &mut [u8; SCALED]) -> u16 {
    // SAFETY: passed on to the caller; all arrays hold whole vectors.
    unsafe {
        let zero = S::splat(0.0);
        // 0 times anything finite is 0.
        let broken = S::sum(S::fma(a, zero, S::mul(b, zero)));
        if broken != 0.0 {
            return half::f16::NAN.to_bits();
        }
        let largest = S::max_lane(S::max(S::abs(a), S::abs(b)));
        if largest == 0.0 {
            return 0;
        }
        let half = S::splat(bits.half());
        let mut code = [0i32; LANES];
        for (part, codes) in [a, b].into_iter().zip(codes.as_chunks_mut::<LANES>().0) {
            let ratio = round::<S>(S::div(part, S::splat(largest)));
            let offset = round::<S>(S::fma(ratio, half, half));
            let clamped = S::min(offset, S::splat(2.0 * bits.half() - 1.0));
            S::store_i(code.as_mut_ptr(), S::round_i(clamped));
            for (byte, code) in codes.iter_mut().zip(code) {
                *byte = code as u8;
            }
        }
        let mut scale = [0u16; LANES];
        S::store_f16(scale.as_mut_ptr(), S::splat(largest / bits.half()));
        scale[0]
    }
}

#[cfg(test)]
pub(crate) mod tests;
