//! AWQ: the worked matrix, what a re-packed linear is, and files that contradict themselves.

use half::f16;
use pagella_formats::synthetic::{IntegerFormat, IntegerMatrix, Rounding};
use pagella_formats::{Dtype, GptqZeros, Linear, LinearKind};

use crate::support::{
    Tensor, check_refused, generated, load, load_integers, made_up, open, sha256,
    tensors_of_recipe, vector_scales, words,
};

/// Size of the worked matrix: two groups of 16.
const SIZE: (usize, usize) = (32, 16);

fn worked() -> Vec<Tensor> {
    let zeros = [0x7654_3210, 0xfedc_ba98, 0x8888_8888, 0x0123_4567];
    vec![
        words("layer.qweight", &[32, 2], (0..64).map(generated)),
        words("layer.qzeros", &[2, 2], zeros),
        vector_scales(16),
    ]
}

#[test]
fn the_worked_matrix_decodes_bit_for_bit() {
    let (_dir, checkpoint) = open(&worked());
    let linear = load_integers(&checkpoint, SIZE, GptqZeros::LessOne);
    assert_eq!((linear.kind, linear.bits, linear.groups), (LinearKind::Awq, 4, 2));
    let codes: Vec<u8> = (0..16).map(|column| linear.code(0, column)).collect();
    assert_eq!(codes, [1, 7, 11, 3, 9, 14, 7, 9, 2, 14, 6, 6, 3, 12, 15, 3]);
    let zeros: Vec<u8> = (0..16).map(|column| linear.zero(0, column)).collect();
    assert_eq!(zeros, [0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15]);
    let weights = linear.dequantize();
    let bits = |row: usize| weights[row * 16..][..16].iter().map(|w| w.to_bits());
    let first: Vec<u16> = bits(0).collect();
    assert_eq!(
        first,
        [
            0x1419, 0x1e26, 0x27ae, 0xa019, 0x287b, 0x2a25, 0x272b, 0x2419, 0xaaea, 0x251f, 0xa83a,
            0xad60, 0xadd3, 0xa72b, 0x2bae, 0xb226,
        ]
    );
    let last: Vec<u16> = bits(31).collect();
    assert_eq!(
        last,
        [
            0x2cee, 0xa625, 0x0000, 0x272b, 0xadc2, 0x2f2c, 0x2f9e, 0x2eea, 0xb041, 0x330b, 0xa960,
            0x33bf, 0x3127, 0x349c, 0x2a66, 0x32a8,
        ]
    );
    let expected = "a140f1721a1e239630b0dc8884297cc162395146364f862493ef027c6e10686a";
    assert_eq!(sha256(&weights), expected);
    // The weights are binary16 numbers, so that nothing is lost.
    let exact: Vec<f32> = weights.iter().map(|weight| weight.to_f32()).collect();
    assert_eq!(load(&checkpoint, SIZE).unwrap().values(), exact);
    assert_eq!(Linear::Gptq(linear).value_dtype(), Dtype::F16);
}

#[test]
fn the_same_codes_as_gptq_v2_are_the_same_words_after_repacking() {
    let rounded = |format| {
        let how = Rounding { format, bits: 4, group_rows: 32, symmetric: false, scattered: false };
        IntegerMatrix::round(&made_up(96, 40), 96, 40, how)
    };
    let (awq, gptq) = (rounded(IntegerFormat::Awq), rounded(IntegerFormat::GptqV2));
    let (_awq_dir, awq_files) = open(&tensors_of_recipe(&awq));
    let (_gptq_dir, gptq_files) = open(&tensors_of_recipe(&gptq));
    let first = load_integers(&awq_files, (96, 40), GptqZeros::LessOne);
    let second = load_integers(&gptq_files, (96, 40), GptqZeros::AsTheyAre);
    assert_eq!(first.words.bytes(), second.words.bytes());
    assert_eq!(first.zeros.bytes(), second.zeros.bytes());
    assert!(first.dequantize() == second.dequantize());
    assert_eq!(load(&awq_files, (96, 40)).unwrap().values(), awq.values());
    assert_eq!(first.weight_bytes(), second.weight_bytes());
}

#[test]
fn one_group_and_rows_that_fill_no_word_are_read() {
    let how = Rounding {
        format: IntegerFormat::Awq,
        bits: 4,
        group_rows: 44,
        symmetric: true,
        scattered: false,
    };
    let matrix = IntegerMatrix::round(&made_up(44, 24), 44, 24, how);
    let (_dir, checkpoint) = open(&tensors_of_recipe(&matrix));
    let linear = load(&checkpoint, (44, 24)).unwrap();
    assert_eq!((linear.values(), linear.details().as_str()), (matrix.values(), "one group"));
}

#[test]
fn awq_tensors_that_contradict_each_other_are_named() {
    let with = |change: &dyn Fn(&mut Vec<Tensor>)| {
        let mut tensors = worked();
        change(&mut tensors);
        tensors
    };
    let zeros_of = |shape: &[usize]| Tensor::zeros("layer.qzeros", Dtype::I32, shape);
    let infinite = with(&|t| t[2].data[6..8].copy_from_slice(&f16::INFINITY.to_le_bytes()));
    for (tensors, size, code, text) in [
        (with(&|t| drop(t.remove(1))), SIZE, "missing_tensor", "`layer.qzeros`"),
        (with(&|t| t[1] = zeros_of(&[3, 2])), SIZE, "uneven_groups", "`layer.qzeros`"),
        (with(&|t| t[1] = zeros_of(&[0, 2])), SIZE, "wrong_shape", "`layer.qzeros`"),
        (with(&|t| t[1] = zeros_of(&[2, 3])), SIZE, "wrong_shape", "`layer.qzeros`"),
        (with(&|t| t[1] = zeros_of(&[4, 2])), SIZE, "wrong_shape", "`layer.scales`"),
        (infinite, SIZE, "not_finite", "element 3 of `layer.scales`"),
        (worked(), (64, 16), "wrong_shape", "`layer.qweight`"),
        (worked(), (32, 24), "wrong_shape", "`layer.qweight`"),
        (worked(), (32, 0), "fused_split", "`layer.qweight`"),
        (
            with(&|t| t[0] = Tensor::zeros("layer.qweight", Dtype::F32, &[32, 2])),
            SIZE,
            "wrong_dtype",
            "`layer.qweight`",
        ),
        (
            with(&|t| t[2] = Tensor::zeros("layer.scales", Dtype::I16, &[2, 16])),
            SIZE,
            "wrong_dtype",
            "`layer.scales`",
        ),
        // The layout of `gemv`, by outputs.
        (
            with(&|t| t[0] = Tensor::zeros("layer.qweight", Dtype::I32, &[16, 4])),
            SIZE,
            "wrong_shape",
            "`layer.qweight`",
        ),
    ] {
        check_refused(&tensors, size, code, text);
    }
}
