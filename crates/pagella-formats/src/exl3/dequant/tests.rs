//! The decoder against vectors that the original program gave.

use half::f16;
use sha2::{Digest, Sha256};

use super::super::tile::{position, states, tile_bytes};
use super::super::{Codebook, Exl3Linear, MCG_MULTIPLIER, MUL1_MULTIPLIER};

const CODEBOOKS: [Codebook; 3] =
    [Codebook::ThreeInst, Codebook::Mcg(MCG_MULTIPLIER), Codebook::Mul1(MUL1_MULTIPLIER)];

fn digest(values: impl Iterator<Item = u16>) -> String {
    let bytes: Vec<u8> = values.flat_map(u16::to_le_bytes).collect();
    Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Words of the streams that the vectors were made of.
fn generated(words: usize) -> Vec<u8> {
    let word = |at: usize| (at as u32 + 1).wrapping_mul(0x9E37_79B1);
    (0..words).flat_map(|at| word(at).to_le_bytes()).collect()
}

#[test]
fn codebooks_have_the_values_of_the_program() {
    let hashes = [
        "ad88de2dcff5bb05fff2faec37cceceb43aa1c2e8203f9d81a6fbd6dd3393eea",
        "95383563929baa9d1ae5de0be22490284382673620bdd85929feea7bdbef04a9",
        "bc48d02cb1c14939dc47b90f870dd689d63e3b1ab69a157e65538db68677a6c8",
    ];
    for (codebook, hash) in CODEBOOKS.into_iter().zip(hashes) {
        let values = (0..=u16::MAX).map(|state| codebook.value(state).to_bits());
        assert_eq!(digest(values), hash, "{}", codebook.name());
    }
    assert_eq!(CODEBOOKS[0].value(0xABCD).to_bits(), 0xB98E);
    assert_eq!(CODEBOOKS[1].value(0xABCD).to_bits(), 0x35E7);
    assert_eq!(CODEBOOKS[2].value(0xABCD).to_bits(), 0xBD42);
}

#[test]
fn tiles_of_all_widths_decode_as_in_the_program() {
    const HASHES: [[&str; 4]; 8] = [
        ["6e03dd3d62293986", "f354c64dae8ceec1", "a9e731cb2eb4cac7", "9de43983b2a064f6"],
        ["377f89754c0903b6", "2e4344d95f97763a", "220ef4285a54cecb", "45024e4d861340b2"],
        ["aff9af7846e149dd", "79aff8bfa5457331", "d8b3659474f3f887", "4b03e6416e92261e"],
        ["f3cdf2f272251cf6", "dc732ed5180773fd", "3b46902262d0a492", "cc04048293c23dbd"],
        ["b14f4d0c3c91ab72", "077bdd1d85b1f8a7", "d9ef63783aae3cae", "232710e8b586ba4b"],
        ["bc211558842de073", "6d63e395326b2dc2", "c3840621cea022a5", "7c5fe93d4699b032"],
        ["786b6a3124094d28", "91c35bcc7e94d1c1", "a709b7f0aa3f466c", "dbf6b22a068f00ea"],
        ["84a6e0e728e7dd04", "77230cac77372e22", "35028db3ac6418b1", "80a025b9b356fd3d"],
    ];
    for (bits, hashes) in (1..=8u8).zip(HASHES) {
        let tile = generated(8 * usize::from(bits));
        assert_eq!(tile.len(), tile_bytes(bits));
        let states = states(&tile, bits);
        assert_eq!(&digest(states.into_iter())[..16], hashes[0], "states of {bits} bits");
        for (codebook, hash) in CODEBOOKS.into_iter().zip(&hashes[1..]) {
            let mut matrix = [0; 256];
            for (i, state) in states.into_iter().enumerate() {
                let (row, column) = position(i);
                matrix[16 * row + column] = codebook.value(state).to_bits();
            }
            let name = codebook.name();
            assert_eq!(&digest(matrix.into_iter())[..16], *hash, "{bits} bits of {name}");
        }
    }
}

/// The layer of 128 × 128 that the vectors were made of.
fn layer(trellis: &[u8]) -> Exl3Linear<'_> {
    let narrow = |x: f64| f16::from_f64(x).to_f32();
    let suh = |i: usize| {
        let sign = if i % 3 == 1 { -1.0 } else { 1.0 };
        narrow(0.01 * (1 + i % 5) as f64 * sign)
    };
    let svh = |i: usize| (0.5 + 0.25 * (i % 4) as f32) * if i % 2 == 1 { -1.0 } else { 1.0 };
    Exl3Linear {
        name: "layer".to_owned(),
        in_features: 128,
        out_features: 128,
        padded_in: 128,
        padded_out: 128,
        bits: 3,
        codebook: CODEBOOKS[2],
        trellis,
        suh: (0..128).map(suh).collect(),
        svh: (0..128).map(svh).collect(),
        bias: None,
        tensors: Vec::new(),
    }
}

#[test]
fn a_layer_has_the_weights_of_the_vectors() {
    let trellis = generated(8 * 8 * 24);
    let layer = layer(&trellis);
    let inner = layer.inner();
    assert_eq!(
        digest(inner.iter().map(|weight| weight.to_bits())),
        "9b88cf8f206206231a68f825ff2976ea42d99b682e90bb8d268fe7a5b02f7c72"
    );
    let weights = layer.dequantize();
    let close = |found: &[f32], expected: &[f64]| {
        for (found, expected) in found.iter().zip(expected) {
            assert!((f64::from(*found) - expected).abs() < 6e-9, "{found} {expected}");
        }
    };
    close(&weights[..4], &[-0.00474222, 0.00594922, 0.00701224, 0.00514417]);
    close(&weights[128 * 128 - 4..], &[0.00972033, -0.02595012, 0.02348881, 0.02539318]);
    let sum: f64 = weights.iter().map(|w| f64::from(*w)).sum();
    let magnitude: f64 = weights.iter().map(|w| f64::from(w.abs())).sum();
    assert!((sum - 5.973_578_140).abs() < 1e-5, "{sum}");
    assert!((magnitude - 341.181_783_994).abs() < 1e-4, "{magnitude}");
}

#[test]
fn scales_and_streams_have_the_symmetries_of_the_format() {
    let trellis = generated(8 * 8 * 24);
    let mut layer = layer(&trellis);
    let weights = layer.dequantize();
    layer.svh.iter_mut().for_each(|scale| *scale *= 2.0);
    let doubled = layer.dequantize();
    assert!(weights.iter().zip(&doubled).all(|(once, twice)| 2.0 * once == *twice));
    let zeros = vec![0; tile_bytes(5)];
    assert_eq!(states(&zeros, 5), [0; 256]);
    // A stream that moves on by one code moves every weight by one place.
    let tile = generated(32);
    let mut moved: Vec<u32> =
        tile.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
    let first = moved[0] >> 28;
    for at in 0..moved.len() {
        let next = moved.get(at + 1).map_or(first, |word| word >> 28);
        moved[at] = moved[at] << 4 | next;
    }
    let moved: Vec<u8> = moved.into_iter().flat_map(u32::to_le_bytes).collect();
    let (mut before, after) = (states(&tile, 4), states(&moved, 4));
    before.rotate_left(1);
    assert_eq!(before, after);
}

#[test]
fn sampled_weights_are_those_of_the_matrix() {
    for (inputs, outputs) in [(100, 200), (256, 128)] {
        let linear = crate::synthetic::exl3(inputs, outputs, 3, Codebook::ThreeInst, 1);
        let crate::Linear::Exl3(linear) = linear.view() else { panic!() };
        let (matrix, sample) = (linear.dequantize(), linear.first_weights());
        let (rows, columns) = (inputs.min(128), outputs.min(128));
        assert_eq!(sample.len(), rows * columns);
        for (at, weight) in sample.into_iter().enumerate() {
            let expected = matrix[at % rows * outputs + at / rows];
            assert!((weight - expected).abs() <= 1e-6, "{at}: {weight} {expected}");
        }
    }
}
