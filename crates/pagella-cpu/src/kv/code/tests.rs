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

pub(crate) fn encode_on(isa: Isa, x: &[f32], bits: Bits) -> (Vec<u8>, Vec<f16>) {
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

/// The tables of the worked example: `wht` is the rotated block, the others are what comes back.
const WORKED: &str = "
    wht   C000 4200 C000 3C00 C400 3C00 0000 C200 0000 4200 C800 4200 0000 C200 0000 4500
          0000 4980 0000 4200 C800 C200 C800 C980 0000 4200 0000 4980 4800 4500 C800 C200
          4800 C500 C800 4200 0000 C200 0000 C980 C800 4200 C800 4980 CC00 4500 0000 C200
          0000 4200 0000 C500 4800 C980 C800 C200 4C00 CD40 0000 4200 C800 C200 C800 4500
    4bit  BFE4 B2C0 3E84 B870 3D24 3ED0 3AD8 BD50 3818 BEB0 2D40 3F60 B160 3E58 B8C8 3C48
          BB88 3B30 BD7C 3620 BEDC 3000 3F8C B4C0 3E2C B920 3C74 BBE0 3A28 BDA8 3570 BF08
          9C00 3F08 B570 3DA8 B978 3C30 BC74 3920 BDD4 34C0 BF8C B000 3F34 B620 3D7C BB30
          3C1C BC48 38C8 BE58 3410 BF60 AD40 3EB0 B6D0 3D50 BAD8 3BE0 BCCC 3870 BE84 32C0
    8bit  C000 B220 3E86 B880 3D05 401E 3B08 BD42 3810 BEB2 3038 3FBA B418 3E3F B90E 3CB8
          BC02 3A90 BD83 3704 BF04 2C60 3F83 B4E0 3E07 B97C 3C86 BC24 3A0A BDC0 3610 BF3C
          2080 3F3C B610 3DC0 BA0A 3C41 BC86 397C BE02 34E0 BF83 AC58 3F04 B704 3D83 BA90
          3C08 BCB8 390E BE3F 3418 BFBA B038 3EB2 B806 3D42 BB08 3B62 BD05 387F BE86 3220";

/// One table of [`WORKED`].
fn worked(name: &str) -> Vec<f16> {
    let words = WORKED.split_whitespace().skip_while(|word| *word != name).skip(1);
    words.take(ROTATION).map(|w| f16::from_bits(u16::from_str_radix(w, 16).unwrap())).collect()
}

/// Decodes in binary16 throughout, every stage rounded.
fn scalar_decode(codes: &[u8], scales: &[f16], bits: Bits) -> Vec<f16> {
    let value = |(e, code): (usize, &u8)| {
        f16::from_f64((f64::from(*code) - f64::from(bits.half())) * scales[e / SCALED].to_f64())
    };
    let rotated: Vec<f16> = codes.iter().enumerate().map(value).collect();
    scalar_rotate(&rotated).iter().map(|v| f16::from_f64(v.to_f64() / 32.0)).collect()
}

#[test]
fn the_worked_example_is_rotated_and_decoded_as_published() {
    let mut block = example();
    rotate_row(Isa::best(), &mut block, 1.0);
    assert_eq!(block, worked("wht").iter().map(|w| w.to_f32()).collect::<Vec<_>>());
    for (bits, name) in [(Bits::Four, "4bit"), (Bits::Eight, "8bit")] {
        let (codes, scales) = encode_on(Isa::best(), &example(), bits);
        assert_eq!(scalar_decode(&codes, &scales, bits), worked(name), "{bits:?}");
        // Decoding without the roundings in between: five of at most 2⁻⁷, over 32, and the last.
        for (found, published) in scalar_round_trip(&example(), bits).iter().zip(worked(name)) {
            let off = (found - published.to_f64()).abs();
            assert!(off <= 5.0 / 4096.0 + 1.0 / 1024.0, "{bits:?}: {found} {published}");
        }
    }
}

/// Rotates small integers back, so that encoding finds exactly them.
fn unrotated(rotated: [f32; ROTATION]) -> [f32; ROTATION] {
    let mut x = rotated;
    rotate_row(Isa::best(), &mut x, UNROTATE);
    x
}

#[test]
fn a_negative_extreme_is_exact_and_a_positive_one_loses_a_step() {
    for (bits, half) in [(Bits::Four, 8.0), (Bits::Eight, 128.0)] {
        for place in [0, 7, 31, 32, 63] {
            for sign in [-1.0, 1.0] {
                let mut w: [f32; ROTATION] = std::array::from_fn(|i| (i * 5 % 13) as f32 - 6.0);
                w[place] = sign * 16.0;
                let (codes, scales) = encode_on(Isa::best(), &unrotated(w), bits);
                let scale = scales[place / SCALED].to_f32();
                assert_eq!(scale, 16.0 / half);
                let found = (f32::from(codes[place]) - half) * scale;
                let lost = if sign < 0.0 { 0.0 } else { 16.0 / half };
                assert_eq!(found, w[place] - lost, "{bits:?} at {place}");
            }
        }
    }
}

#[test]
fn rotation_pays_when_there_is_an_outlier() {
    let (mut with, mut without) = (0.0, 0.0);
    for seed in 1..200 {
        let mut x = noise(seed, ROTATION);
        x[seed as usize % ROTATION] *= 50.0;
        let back = scalar_round_trip(&x, Bits::Four);
        with += x.iter().zip(back).map(|(x, y)| (f64::from(*x) - y).powi(2)).sum::<f64>();
        for part in x.chunks(SCALED) {
            let halves: Vec<f16> = part.iter().map(|x| f16::from_f32(*x)).collect();
            let (codes, scale) = scalar_quantize(&halves, Bits::Four);
            let plain = codes.iter().map(|c| (f64::from(*c) - 8.0) * scale.to_f64());
            without +=
                part.iter().zip(plain).map(|(x, y)| (f64::from(*x) - y).powi(2)).sum::<f64>();
        }
    }
    assert!(with < 0.75 * without, "{with} with rotation, {without} without");
}

#[test]
fn an_impulse_in_lane_five_has_the_published_signs() {
    let mut block = [0.0; ROTATION];
    block[10] = 1.0;
    rotate_row(Isa::best(), &mut block, 1.0);
    let signs: String = block.chunks(2).map(|pair| if pair[0] > 0.0 { '+' } else { '-' }).collect();
    assert_eq!(signs, "+-+--+-++-+--+-+".repeat(2));
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
pub(crate) fn noise(seed: u64, len: usize) -> Vec<f32> {
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
