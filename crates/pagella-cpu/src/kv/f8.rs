//! Elements of 8 bits, E5M2: the upper byte of binary16, so the value is rounded toward zero.
//! Infinity stays; a NaN whose payload is in the lower byte alone would become infinity, but the
//! conversion to binary16 makes no such NaN.

use super::narrow::Narrow;
use crate::simd::{LANES, Simd};

impl Narrow for u8 {
    #[inline(always)]
    fn from_half(bits: u16) -> Self {
        (bits >> 8) as u8
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(p: *const u8) -> S::F {
        // SAFETY: the caller gives 16 bytes; the array holds 16 elements.
        unsafe {
            let halves = p.cast::<[u8; LANES]>().read().map(|byte| u16::from(byte) << 8);
            S::load_f16(halves.as_ptr())
        }
    }

    #[inline(always)]
    unsafe fn store_part<S: Simd>(p: *mut u8, n: usize, v: S::F) {
        let mut halves = [0u16; LANES];
        // SAFETY: the array holds 16 elements; of `p` only `n` are written.
        unsafe {
            S::store_f16(halves.as_mut_ptr(), v);
            for (i, bits) in halves.into_iter().enumerate().take(n) {
                *p.add(i) = u8::from_half(bits);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;
    use crate::simd::{Isa, Kernel};

    /// Stores and loads 16 values, of which the first `n` are stored over 0xAA.
    struct RoundTrip {
        values: [f32; LANES],
        n: usize,
    }

    impl Kernel for RoundTrip {
        type Out = ([u8; LANES], [f32; LANES]);
        #[inline(always)]
        unsafe fn run<S: Simd>(self) -> Self::Out {
            let (mut bytes, mut back) = ([0xAA; LANES], [0.0; LANES]);
            // SAFETY: reached through `Isa::run`; all arrays hold 16 elements.
            unsafe {
                u8::store_part::<S>(bytes.as_mut_ptr(), self.n, S::load(self.values.as_ptr()));
                S::store(back.as_mut_ptr(), u8::load::<S>(bytes.as_ptr()));
            }
            (bytes, back)
        }
    }

    #[test]
    fn every_binary16_value_keeps_its_upper_byte() {
        for isa in Isa::available() {
            for first in (0..=u16::MAX).step_by(LANES) {
                let halves: [f16; LANES] =
                    std::array::from_fn(|i| f16::from_bits(first + i as u16));
                let (bytes, back) =
                    isa.run(RoundTrip { values: halves.map(f16::to_f32), n: LANES });
                for ((half, byte), back) in halves.into_iter().zip(bytes).zip(back) {
                    if half.is_nan() {
                        assert!(back.is_nan(), "{half:?} on {}", isa.name());
                        continue;
                    }
                    assert_eq!(byte, (half.to_bits() >> 8) as u8);
                    assert_eq!(
                        back.to_bits(),
                        f16::from_bits(half.to_bits() & 0xFF00).to_f32().to_bits()
                    );
                    assert_eq!(back.is_sign_negative(), half.is_sign_negative());
                    assert!(back.abs() <= half.to_f32().abs());
                    assert_eq!(back.is_infinite(), half.is_infinite());
                }
            }
        }
    }

    #[test]
    fn the_worked_examples_have_the_published_bytes() {
        let cases: [(u16, u8, u16); 7] = [
            (0x3C00, 0x3C, 0x3C00),
            (0x3D33, 0x3D, 0x3D00),
            (0xB99A, 0xB9, 0xB900),
            (0x4248, 0x42, 0x4200),
            (0x7BFF, 0x7B, 0x7B00),
            (0x03EF, 0x03, 0x0300),
            (0x0001, 0x00, 0x0000),
        ];
        for (half, byte, back) in cases {
            let values = [f16::from_bits(half).to_f32(); LANES];
            let found = Isa::best().run(RoundTrip { values, n: LANES });
            assert_eq!(found, ([byte; LANES], [f16::from_bits(back).to_f32(); LANES]));
        }
        // Too large for binary16, hence infinite there already.
        let (bytes, back) = Isa::best().run(RoundTrip { values: [-1e6; LANES], n: LANES });
        assert_eq!((bytes[0], back[0]), (0xFC, f32::NEG_INFINITY));
    }

    #[test]
    fn only_the_part_is_stored() {
        for n in 0..=LANES {
            let (bytes, _) = Isa::best().run(RoundTrip { values: [1.0; LANES], n });
            assert!(bytes.iter().enumerate().all(|(i, b)| *b == if i < n { 0x3C } else { 0xAA }));
        }
    }
}
