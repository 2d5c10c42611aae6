//! The code against a scalar model of it, written straight from its definition.

use half::f16;

use super::*;
use crate::simd::{Isa, Kernel};

struct Encode {
    block: [f32; ROTATION],
    bits: Bits,
}

impl Kernel for Encode {
    type Out = Encoded;
    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> Encoded {
        // SAFETY: reached through `Isa::run`; the block is whole.
        unsafe { encode::<S>(self.block.as_ptr(), self.bits) }
    }
}

/// Five stages on the even and the odd elements, each sum rounded.
fn scalar_rotate(x: &[f16]) -> Vec<f16> {
    let mut v = x.to_vec();
    for step in [1, 2, 4, 8, 16] {
        let old = v.clone();
        for (e, v) in v.iter_mut().enumerate() {
            let partner = old[e ^ (2 * step)].to_f64();
            let own = old[e].to_f64();
            *v = f16::from_f64(if (e / 2) & step != 0 { partner - own } else { partner + own });
        }
    }
    v
}

/// Codes and scale of 32 rotated values.
fn scalar_quantize(w: &[f16], bits: Bits) -> (Vec<u8>, f16) {
    let half = f64::from(bits.half());
    let largest = w.iter().map(|w| w.to_f64().abs()).fold(0.0, f64::max);
    if largest == 0.0 {
        return (vec![0; w.len()], f16::ZERO);
    }
    let code = |w: &f16| {
        let t = f16::from_f64(w.to_f64() / largest).to_f64();
        let u = f16::from_f64(t * half + half).to_f64();
        u.round_ties_even().clamp(0.0, 2.0 * half - 1.0) as u8
    };
    (w.iter().map(code).collect(), f16::from_f64(largest / half))
}

fn scalar_encode(x: &[f32], bits: Bits) -> (Vec<u8>, Vec<f16>) {
    let x: Vec<f16> = x.iter().map(|&x| f16::from_f32(x)).collect();
    scalar_rotate(&x).chunks(SCALED).map(|w| scalar_quantize(w, bits)).fold(
        (Vec::new(), Vec::new()),
        |(mut codes, mut scales), (code, scale)| {
            codes.extend(code);
            scales.push(scale);
            (codes, scales)
        },
    )
}

/// What a block of 64 elements is worth after a round trip, without further rounding.
pub(crate) fn scalar_round_trip(x: &[f32], bits: Bits) -> Vec<f64> {
    let (codes, scales) = scalar_encode(x, bits);
    let w = |e: usize| (f64::from(codes[e]) - f64::from(bits.half())) * scales[e / SCALED].to_f64();
    let sign = |i: usize, j: usize| if (i & j).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
    let element = |e: usize| (0..32).map(|j| sign(e / 2, j) * w(2 * j + e % 2)).sum::<f64>() / 32.0;
    (0..ROTATION).map(element).collect()
}

fn encode_on(isa: Isa, x: &[f32], bits: Bits) -> (Vec<u8>, Vec<f16>) {
    let encoded = isa.run(Encode { block: x.try_into().unwrap(), bits });
    (encoded.codes.to_vec(), encoded.scales.map(f16::from_bits).to_vec())
}

fn example() -> Vec<f32> {
    let value = |i: usize| ((29 * i % 64) as f32 - 32.0) / 16.0 + if i == 5 { 3.0 } else { 0.0 };
    (0..ROTATION).map(value).collect()
}

/// Bytes in element order: the even element of a pair in the low nibble.
fn hex(codes: &[u8], bits: Bits) -> String {
    let bytes: Vec<u8> = match bits {
        Bits::Eight => codes.to_vec(),
        Bits::Four => codes.chunks(2).map(|c| c[0] | (c[1] << 4)).collect(),
    };
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn the_worked_example_has_the_published_bytes() {
    let cases = [
        (
            Bits::Four,
            [0x3D80, 0x4140],
            "a7979568a8a268c8f8a86202a8f8ce626b95784895c5a27898684b750e9875a5",
        ),
        (
            Bits::Eight,
            [0x2D80, 0x3140],
            "69a3698c528c805d80a323a3805d80ba80ff80a3235d230080a380ffddba235d\
             b1624f92806e803d4f924fc31e9e806e80928062b13d4f6ee20080924f6e4f9e",
        ),
    ];
    for (bits, scales, bytes) in cases {
        for isa in Isa::available() {
            let (codes, found) = encode_on(isa, &example(), bits);
            assert_eq!(hex(&codes, bits), bytes, "{bits:?} on {}", isa.name());
            assert_eq!(found, scales.map(f16::from_bits));
        }
    }
}

#[test]
fn an_impulse_becomes_the_signs_of_its_row() {
    let mut x = vec![0.0; ROTATION];
    x[0] = 1.0;
    let (codes, scales) = encode_on(Isa::best(), &x, Bits::Four);
    assert!(codes.chunks(2).all(|pair| pair == [15, 8]));
    assert_eq!(scales, [0x3000, 0x3000].map(f16::from_bits));
    let back = scalar_round_trip(&x, Bits::Four);
    assert_eq!(back[0], 0.875, "the largest positive value loses 1/8");
    assert!(back[1..].iter().all(|&y| y == 0.0));
    for position in 0..ROTATION {
        let mut block = [0.0; ROTATION];
        block[position] = 1.0;
        rotate_row(Isa::best(), &mut block, 1.0);
        for (e, y) in block.iter().enumerate() {
            let sign =
                if ((e / 2) & (position / 2)).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
            assert_eq!(*y, if e % 2 == position % 2 { sign } else { 0.0 });
        }
    }
}

#[test]
fn rotating_twice_multiplies_by_32() {
    let mut block: [f32; ROTATION] = std::array::from_fn(|i| (i * 37 % 23) as f32 - 11.0);
    let before = block;
    rotate_row(Isa::best(), &mut block, 1.0);
    rotate_row(Isa::best(), &mut block, UNROTATE);
    assert_eq!(block, before);
}

/// Roughly Gaussian, the same everywhere.
fn noise(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    (0..len).map(|_| (0..12).map(|_| uniform()).sum::<f32>() - 6.0).collect()
}

#[test]
fn codes_equal_the_scalar_model_on_every_level() {
    for bits in [Bits::Four, Bits::Eight] {
        for seed in 0..400 {
            let scale = 10f32.powi(seed as i32 % 8 - 6);
            let mut x = noise(seed, ROTATION);
            x.iter_mut().for_each(|x| *x *= scale);
            if seed % 5 == 0 {
                x[seed as usize % ROTATION] *= 50.0;
            }
            let expected = scalar_encode(&x, bits);
            for isa in Isa::available() {
                assert_eq!(encode_on(isa, &x, bits), expected, "{seed} on {}", isa.name());
            }
        }
    }
}

#[test]
fn errors_have_the_expected_size() {
    for (bits, expected, slack) in [(Bits::Four, 0.093, 0.005), (Bits::Eight, 0.0060, 0.0004)] {
        let (mut error, mut count) = (0.0, 0.0);
        for seed in 0..500 {
            let x = noise(seed + 1, ROTATION);
            for (x, y) in x.iter().zip(scalar_round_trip(&x, bits)) {
                error += (f64::from(*x) - y).powi(2);
                count += 1.0;
            }
        }
        let rms = f64::sqrt(error / count);
        assert!((rms - expected).abs() <= slack, "{bits:?}: {rms}");
    }
}

#[test]
fn extreme_blocks_stay_decodable_and_broken_ones_show() {
    let scales = |x: &[f32]| encode_on(Isa::best(), x, Bits::Eight).1;
    assert_eq!(scales(&[0.0; ROTATION]), [f16::ZERO; 2]);
    assert_eq!(encode_on(Isa::best(), &[0.0; ROTATION], Bits::Four).0, vec![0; ROTATION]);
    let tiny = scales(&[1e-6; ROTATION]);
    assert!(tiny.iter().all(|s| s.is_finite()));
    // Rounded stages would overflow: 32 · 30000 is beyond binary16, a 128th of it is not.
    let mut large = [30_000.0; ROTATION];
    large[7] = -30_000.0;
    assert!(scales(&large).iter().all(|s| s.is_finite()));
    for broken in [f32::NAN, f32::INFINITY, 1e6] {
        let mut x = [1.0; ROTATION];
        x[40] = broken;
        assert!(scales(&x).iter().all(|s| s.is_nan()), "{broken}");
    }
}
