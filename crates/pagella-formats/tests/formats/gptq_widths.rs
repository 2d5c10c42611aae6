//! GPTQ of every width: worked matrices of 2, 3 and 8 bits, conventions of zero points, orders.

use half::f16;
use pagella_formats::synthetic::{IntegerFormat, IntegerMatrix, Rounding};
use pagella_formats::{GptqZeros, LinearKind};
use serde_json::json;

use crate::support::{
    Tensor, generated, load_integers, made_up, open, sha256, tensors_of_recipe, vector_scales,
    words,
};

/// Size of the worked matrices: two groups of 32.
const SIZE: (usize, usize) = (64, 32);

fn worked(bits: usize) -> Vec<Tensor> {
    let zeros = (0..2 * bits as u32).map(|at| generated(1000 + at));
    vec![
        words("layer.qweight", &[2 * bits, 32], (0..64 * bits as u32).map(generated)),
        words("layer.qzeros", &[2, bits], zeros),
        vector_scales(32),
    ]
}

#[test]
fn worked_matrices_of_two_three_and_eight_bits_decode_bit_for_bit() {
    use GptqZeros::{AsTheyAre, LessOne};
    for (bits, zeros, first, last, sha) in [
        (
            2,
            LessOne,
            [0x9419, 0x9819, 0x1a25, 0x9c19, 0x9d1f, 0x0000],
            [0xacbc, 0xa8dd, 0xa8fe, 0x2d1f, 0x0000, 0xb008],
            "e112a193bfe03d90a60525ed4169a509",
        ),
        (
            2,
            AsTheyAre,
            [0x0000, 0x0000, 0x1e25, 0x0000, 0x0000, 0x1e25],
            [0xa8bc, 0x0000, 0x0000, 0x2fae, 0x293f, 0xad60],
            "2797d2bc205b2fbb80bb6fbe36b4b733",
        ),
        (
            3,
            LessOne,
            [0x9419, 0x9c19, 0x9e25, 0x1c19, 0x9d1f, 0x0000],
            [0x2f1a, 0x0000, 0x323e, 0xad1f, 0x0000, 0xa960],
            "e4a574222fd59f2e13f403cf56535e28",
        ),
        (
            3,
            AsTheyAre,
            [0x0000, 0x9819, 0x9a25, 0x2019, 0x0000, 0x1e25],
            [0x30bc, 0x28dd, 0x337d, 0xa91f, 0xb497, 0x0000],
            "7023d1e81098caca7bd03b9df6cc5895",
        ),
        (
            8,
            LessOne,
            [0x30d5, 0xb36d, 0xb92f, 0x2f6d, 0xb6e2, 0xb3df],
            [0xc5cf, 0x4662, 0x3c36, 0xc7e2, 0x46c3, 0xc555],
            "bdaebcf2520dbcddc15838fe3fb6fc8e",
        ),
        (
            8,
            AsTheyAre,
            [0x30de, 0xb35d, 0xb929, 0x2faf, 0xb6cd, 0xb3ae],
            [0xc5c5, 0x466c, 0x3c5e, 0xc7d7, 0x46ce, 0xc54a],
            "be9e1f8e875ee6d9072f5ae2f0b0228e",
        ),
    ] {
        let (_dir, checkpoint) = open(&worked(bits));
        let linear = load_integers(&checkpoint, SIZE, zeros);
        assert_eq!((linear.kind, usize::from(linear.bits)), (LinearKind::Gptq, bits));
        let weights = linear.dequantize();
        let bits_of = |values: &[f16]| values.iter().map(|w| w.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits_of(&weights[..6]), first, "{bits} bits, {zeros:?}");
        assert_eq!(bits_of(&weights[64 * 32 - 6..]), last, "{bits} bits, {zeros:?}");
        assert_eq!(&sha256(&weights)[..32], sha, "{bits} bits, {zeros:?}");
    }
}

#[test]
fn codes_and_stored_zero_points_of_the_worked_matrices() {
    let codes: [(usize, [u8; 12], [u8; 12]); 3] = [
        (2, [1, 0, 3, 2, 1, 2, 3, 1, 3, 1, 3, 0], [1, 2, 1, 0, 1, 1, 1, 3, 2, 2, 2, 3]),
        (3, [1, 6, 6, 4, 7, 6, 5, 1, 6, 3, 6, 0], [1, 3, 4, 2, 5, 5, 2, 7, 6, 4, 2, 5]),
        (
            8,
            [177, 121, 55, 158, 209, 175, 38, 101, 241, 229, 21, 44],
            [25, 213, 234, 166, 202, 78, 34, 69, 123, 200, 89, 227],
        ),
    ];
    for (bits, codes, zeros) in codes {
        let (_dir, checkpoint) = open(&worked(bits));
        let linear = load_integers(&checkpoint, SIZE, GptqZeros::AsTheyAre);
        let found: Vec<u8> = (0..12).map(|row| linear.code(row, 0)).collect();
        assert_eq!(found, codes, "{bits} bits");
        let found: Vec<u8> = (0..12).map(|column| linear.zero(0, column)).collect();
        assert_eq!(found, zeros, "{bits} bits");
    }
}

/// The zero points of eight columns, stored in one word of 4 bits each.
fn four_bit_zeros(word: u32, zeros: GptqZeros) -> Vec<u8> {
    let tensors = [
        Tensor::zeros("layer.qweight", pagella_formats::Dtype::I32, &[4, 8]),
        words("layer.qzeros", &[1, 1], [word]),
        Tensor::zeros("layer.scales", pagella_formats::Dtype::F16, &[1, 8]),
    ];
    let (_dir, checkpoint) = open(&tensors);
    let linear = load_integers(&checkpoint, (32, 8), zeros);
    (0..8).map(|column| linear.zero(0, column)).collect()
}

#[test]
fn a_stored_maximum_is_sixteen_or_a_wrapped_zero() {
    // True zero points 0 0 8 8 8 8 8 0, less one by words.
    let stored = 0x0888_8800u32.wrapping_sub(0x1111_1111);
    assert_eq!(four_bit_zeros(stored, GptqZeros::LessOneByWord), [0, 0, 8, 8, 8, 8, 8, 0]);
    assert_eq!(four_bit_zeros(0x7777_777f, GptqZeros::LessOne), [16, 8, 8, 8, 8, 8, 8, 8]);
    assert_eq!(four_bit_zeros(0x7777_777f, GptqZeros::AsTheyAre), [15, 7, 7, 7, 7, 7, 7, 7]);
}

#[test]
fn the_convention_of_zero_points_follows_from_the_configuration() {
    let gptqmodel = json!({ "quantizer": ["gptqmodel:2.2.0"] });
    for (config, expected) in [
        (json!({}), GptqZeros::LessOne),
        (json!({ "checkpoint_format": "gptq" }), GptqZeros::LessOne),
        (json!({ "checkpoint_format": "gptq_v2" }), GptqZeros::AsTheyAre),
        (json!({ "format": "GPTQ_V2" }), GptqZeros::AsTheyAre),
        (json!({ "sym": false, "meta": gptqmodel }), GptqZeros::LessOneByWord),
        (json!({ "sym": true, "meta": gptqmodel }), GptqZeros::LessOne),
        (json!({ "sym": false, "meta": { "quantizer": "optimum:1.0" } }), GptqZeros::LessOne),
    ] {
        assert_eq!(GptqZeros::of(&config), expected, "{config}");
    }
}

#[test]
fn every_width_survives_packing_with_every_order_and_convention() {
    for bits in [2u8, 3, 4, 8] {
        for (format, zeros) in [
            (IntegerFormat::Gptq, GptqZeros::LessOne),
            (IntegerFormat::GptqV2, GptqZeros::AsTheyAre),
        ] {
            for (group_rows, scattered) in [(32, false), (32, true), (96, false)] {
                let how = Rounding { format, bits, group_rows, symmetric: false, scattered };
                let matrix = IntegerMatrix::round(&made_up(96, 32), 96, 32, how);
                let (_dir, checkpoint) = open(&tensors_of_recipe(&matrix));
                let linear = load_integers(&checkpoint, (96, 32), zeros);
                assert_eq!(
                    pagella_formats::Linear::Gptq(linear).values(),
                    matrix.values(),
                    "{how:?}"
                );
            }
        }
    }
}

#[test]
fn a_code_of_three_bits_may_lie_in_two_words() {
    for row in 0..32usize {
        let mut column = [0u32; 3];
        for bit in 0..3 {
            column[(3 * row + bit) / 32] |= 1 << ((3 * row + bit) % 32);
        }
        let tensors = [
            words("layer.qweight", &[3, 32], column.into_iter().flat_map(|word| [word; 32])),
            words("layer.qzeros", &[1, 3], [0; 3]),
            Tensor::zeros("layer.scales", pagella_formats::Dtype::F16, &[1, 32]),
        ];
        let (_dir, checkpoint) = open(&tensors);
        let linear = load_integers(&checkpoint, (32, 32), GptqZeros::AsTheyAre);
        let codes: Vec<u8> = (0..32).map(|row| linear.code(row, 5)).collect();
        let expected: Vec<u8> = (0..32).map(|at| if at == row { 7 } else { 0 }).collect();
        assert_eq!(codes, expected);
    }
}
