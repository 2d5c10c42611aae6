//! Integers of compressed-tensors and bitsandbytes: worked words, round trips, and damaged files.

use pagella_formats::synthetic::{IntegerFormat, IntegerMatrix, Rounding};
use pagella_formats::{Dtype, GptqZeros, Linear, LinearKind, OtherDtype};

use crate::support::{
    Tensor, check_refused, load, load_integers, made_up, open, tensors_of_recipe, words,
};

fn numbers(name: &str, values: &[i64]) -> Tensor {
    let data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let dtype = Dtype::Other(OtherDtype::I64);
    Tensor { name: name.to_owned(), dtype, shape: vec![values.len()], data }
}

fn floats(name: &str, shape: &[usize], values: &[f32]) -> Tensor {
    let data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Tensor { name: name.to_owned(), dtype: Dtype::F32, shape: shape.to_vec(), data }
}

fn bytes(name: &str, shape: &[usize], values: &[i8]) -> Tensor {
    let data = values.iter().map(|value| *value as u8).collect();
    let dtype = Dtype::Other(OtherDtype::I8);
    Tensor { name: name.to_owned(), dtype, shape: shape.to_vec(), data }
}

#[test]
fn worked_words_are_distances_from_the_middle() {
    for (word, rows, values) in [
        (0xfea9_8710u32, 8, vec![-8.0, -7.0, -1.0, 0.0, 1.0, 2.0, 6.0, 7.0]),
        (0x89ab_cdef, 8, vec![7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0]),
        (0xff80_7f00, 4, vec![-128.0, -1.0, 0.0, 127.0]),
    ] {
        let tensors = [
            words("layer.weight_packed", &[1, 1], [word]),
            floats("layer.weight_scale", &[1], &[1.0]),
            numbers("layer.weight_shape", &[1, rows]),
        ];
        let (_dir, checkpoint) = open(&tensors);
        let linear = load(&checkpoint, (rows as usize, 1)).unwrap();
        assert_eq!((linear.kind(), linear.values()), (LinearKind::PackQuantized, values));
    }
}

#[test]
fn zero_points_are_packed_down_the_outputs() {
    let tensors = [
        words("layer.weight_packed", &[9, 4], [0x8888_8888; 36]),
        floats("layer.weight_scale", &[9, 1], &[1.0; 9]),
        words("layer.weight_zero_point", &[2, 1], [0x5a9f_b870, 0x0000_000d]),
        numbers("layer.weight_shape", &[9, 32]),
    ];
    let (_dir, checkpoint) = open(&tensors);
    let linear = load(&checkpoint, (32, 9)).unwrap();
    let first: Vec<f32> = linear.values().into_iter().take(9).collect();
    assert_eq!(first, [8.0, 1.0, -0.0, -3.0, -7.0, -1.0, -2.0, 3.0, -5.0]);
}

/// Rounds made-up weights and checks that the files give them back.
#[track_caller]
fn check_round_trip(kind: LinearKind, (rows, columns): (usize, usize), how: Rounding) {
    let matrix = IntegerMatrix::round(&made_up(rows, columns), rows, columns, how);
    let (_dir, checkpoint) = open(&tensors_of_recipe(&matrix));
    let linear = load(&checkpoint, (rows, columns)).unwrap();
    assert_eq!(linear.kind(), kind);
    assert_eq!(linear.widths(), [(how.bits, (rows * columns) as u64)]);
    assert_eq!(linear.values(), matrix.values(), "{how:?}");
    let stored: usize = linear.tensors().iter().map(|tensor| tensor.data.len()).sum();
    let spare = stored as u64 - linear.weight_bytes();
    assert!(spare <= 4 * columns as u64 + 64, "{spare} of {stored} bytes are no weights: {how:?}");
}

#[test]
fn packed_integers_of_every_kind_give_back_what_was_rounded() {
    for bits in [2u8, 4, 8] {
        for symmetric in [true, false] {
            for (group_rows, scattered) in [(32, false), (32, true), (96, false)] {
                let format = IntegerFormat::PackQuantized;
                let how = Rounding { format, bits, group_rows, symmetric, scattered };
                check_round_trip(LinearKind::PackQuantized, (96, 35), how);
            }
        }
    }
    // Inputs that fill no whole word.
    let format = IntegerFormat::PackQuantized;
    let how = Rounding { format, bits: 4, group_rows: 45, symmetric: false, scattered: false };
    check_round_trip(LinearKind::PackQuantized, (45, 8), how);
}

#[test]
fn bytes_give_back_what_was_rounded() {
    for (format, kind) in [
        (IntegerFormat::IntQuantized, LinearKind::IntQuantized),
        (IntegerFormat::BnbInt8, LinearKind::BnbInt8),
    ] {
        for symmetric in [true, false] {
            for rows in [64, 33] {
                let (bits, group_rows, scattered) = (8, rows, false);
                let how = Rounding { format, bits, group_rows, symmetric, scattered };
                check_round_trip(kind, (rows, 21), how);
            }
        }
    }
}

#[test]
fn one_scale_and_one_zero_point_may_stand_for_all() {
    let tensors = [
        bytes("layer.weight", &[2, 3], &[-128, 0, 127, 1, 2, 3]),
        floats("layer.weight_scale", &[1], &[0.5]),
        bytes("layer.weight_zero_point", &[1], &[-2]),
    ];
    let (_dir, checkpoint) = open(&tensors);
    let linear = load(&checkpoint, (3, 2)).unwrap();
    assert_eq!(linear.values(), [-63.0, 1.5, 1.0, 2.0, 64.5, 2.5]);
    assert_eq!(linear.details(), "one group");
    let tensors = [
        words("layer.weight_packed", &[2, 1], [0x8888_8888, 0x9999_9999]),
        floats("layer.weight_scale", &[], &[0.5]),
        words("layer.weight_zero_point", &[1, 1], [9]),
        numbers("layer.weight_shape", &[2, 8]),
    ];
    let (_dir, checkpoint) = open(&tensors);
    assert_eq!(load(&checkpoint, (8, 2)).unwrap().values()[..2], [-0.5, 0.0]);
}

#[test]
fn largest_magnitudes_of_bitsandbytes_are_divided_by_127() {
    let tensors = [
        bytes("layer.weight", &[2, 2], &[127, -127, 64, 0]),
        floats("layer.SCB", &[2], &[2.0, 0.3]),
    ];
    let (_dir, checkpoint) = open(&tensors);
    let linear = load(&checkpoint, (2, 2)).unwrap();
    assert_eq!(linear.kind(), LinearKind::BnbInt8);
    assert_eq!(
        linear.values(),
        [127.0 * (2.0 / 127.0), 64.0 * (0.3 / 127.0), -127.0 * (2.0 / 127.0), 0.0]
    );
}

#[test]
fn scales_keep_more_than_binary16_holds() {
    let fine = 0.1f32;
    let tensors =
        [bytes("layer.weight", &[1, 1], &[3]), floats("layer.weight_scale", &[1, 1], &[fine])];
    let (_dir, checkpoint) = open(&tensors);
    let linear = load_integers(&checkpoint, (1, 1), GptqZeros::LessOne);
    assert!(!linear.scales.is_half());
    assert_eq!(Linear::Gptq(linear).values(), [3.0 * fine]);
}

/// Size of the linears below.
const SIZE: (usize, usize) = (64, 16);

fn rounded(format: IntegerFormat, bits: u8, scattered: bool) -> Vec<Tensor> {
    let group_rows = if format == IntegerFormat::PackQuantized { 32 } else { 64 };
    let how = Rounding { format, bits, group_rows, symmetric: false, scattered };
    tensors_of_recipe(&IntegerMatrix::round(&made_up(SIZE.0, SIZE.1), SIZE.0, SIZE.1, how))
}

/// `tensors` with the one called `layer.{suffix}` replaced by zeros of another type or shape.
fn replace(mut tensors: Vec<Tensor>, suffix: &str, dtype: Dtype, shape: &[usize]) -> Vec<Tensor> {
    let name = format!("layer.{suffix}");
    tensors.retain(|tensor| tensor.name != name);
    tensors.push(Tensor::zeros(&name, dtype, shape));
    tensors
}

fn without(mut tensors: Vec<Tensor>, suffix: &str) -> Vec<Tensor> {
    tensors.retain(|tensor| tensor.name != format!("layer.{suffix}"));
    tensors
}

fn with_bytes(mut tensors: Vec<Tensor>, suffix: &str, at: usize, bytes: &[u8]) -> Vec<Tensor> {
    let name = format!("layer.{suffix}");
    let tensor = tensors.iter_mut().find(|tensor| tensor.name == name).unwrap();
    tensor.data[at..at + bytes.len()].copy_from_slice(bytes);
    tensors
}

#[test]
fn packed_tensors_that_contradict_each_other_are_named() {
    let base = || rounded(IntegerFormat::PackQuantized, 4, true);
    let i64s = Dtype::Other(OtherDtype::I64);
    let packed = |words| replace(base(), "weight_packed", Dtype::I32, &[16, words]);
    for (tensors, code, text) in [
        (without(base(), "weight_scale"), "missing_tensor", "`layer.weight_scale`"),
        (without(base(), "weight_shape"), "missing_tensor", "`layer.weight_shape`"),
        (replace(base(), "weight_shape", i64s, &[2]), "bad_weights", "`layer.weight_shape` says"),
        (replace(base(), "weight_shape", i64s, &[3]), "wrong_shape", "`layer.weight_shape`"),
        (replace(base(), "weight_shape", Dtype::F32, &[2]), "wrong_dtype", "`layer.weight_shape`"),
        (packed(9), "wrong_shape", "`layer.weight_packed`"),
        (packed(6), "unsupported_format", "compressed-tensors of 3 bits"),
        (packed(7), "unsupported_format", "compressed-tensors of 3 bits"),
        (packed(10), "unsupported_format", "compressed-tensors of 5 bits"),
        (packed(12), "unsupported_format", "compressed-tensors of 6 bits"),
        (packed(0), "wrong_shape", "`layer.weight_packed`"),
        (
            replace(base(), "weight_packed", Dtype::I32, &[17, 8]),
            "wrong_shape",
            "`layer.weight_packed`",
        ),
        (
            replace(base(), "weight_scale", Dtype::BF16, &[16, 3]),
            "wrong_shape",
            "`layer.weight_zero_point`",
        ),
        (
            replace(base(), "weight_scale", Dtype::I16, &[16, 2]),
            "wrong_dtype",
            "`layer.weight_scale`",
        ),
        (
            replace(base(), "weight_scale", Dtype::BF16, &[2, 16]),
            "wrong_shape",
            "`layer.weight_scale`",
        ),
        (
            with_bytes(base(), "weight_scale", 2, &[0x80, 0x7f]),
            "not_finite",
            "element 1 of `layer.weight_scale`",
        ),
        (
            replace(base(), "weight_zero_point", Dtype::I32, &[1, 2]),
            "wrong_shape",
            "`layer.weight_zero_point`",
        ),
        (
            replace(base(), "weight_zero_point", Dtype::F32, &[2, 2]),
            "wrong_dtype",
            "`layer.weight_zero_point`",
        ),
        (replace(base(), "weight_g_idx", Dtype::I32, &[63]), "wrong_shape", "`layer.weight_g_idx`"),
        (
            with_bytes(base(), "weight_g_idx", 20, &[2, 0, 0, 0]),
            "group_index",
            "row 5 is in group 2 of 2",
        ),
    ] {
        check_refused(&tensors, SIZE, code, text);
    }
    let uneven = replace(base(), "weight_scale", Dtype::BF16, &[16, 3]);
    let uneven = without(without(uneven, "weight_g_idx"), "weight_zero_point");
    check_refused(&uneven, SIZE, "uneven_groups", "64 rows do not divide into 3 groups");
    check_refused(&base(), (64, 8), "bad_weights", "`layer.weight_shape`");
    check_refused(&base(), (0, 0), "fused_split", "`layer.weight_packed`");
}

#[test]
fn an_order_that_was_never_set_is_no_order() {
    let tensors = rounded(IntegerFormat::PackQuantized, 4, false);
    let (_dir, checkpoint) = open(&tensors);
    let expected = load(&checkpoint, SIZE).unwrap().values();
    let mut order = Tensor::zeros("layer.weight_g_idx", Dtype::I32, &[64]);
    order.data.fill(0xff);
    let (_dir, checkpoint) = open(&[tensors, vec![order]].concat());
    assert_eq!(load(&checkpoint, SIZE).unwrap().values(), expected);
}

#[test]
fn tensors_of_bytes_that_contradict_each_other_are_named() {
    let i8s = Dtype::Other(OtherDtype::I8);
    let ints = || rounded(IntegerFormat::IntQuantized, 8, false);
    let bnb = || rounded(IntegerFormat::BnbInt8, 8, false);
    for (tensors, code, text) in [
        (replace(ints(), "weight", i8s, &[16, 63]), "wrong_shape", "`layer.weight`"),
        (
            replace(ints(), "weight_scale", Dtype::F32, &[15, 1]),
            "wrong_shape",
            "`layer.weight_scale`",
        ),
        (
            replace(ints(), "weight_scale", Dtype::F32, &[16, 3]),
            "uneven_groups",
            "`layer.weight_scale`",
        ),
        (with_bytes(ints(), "weight_scale", 4, &[0, 0, 0xc0, 0x7f]), "not_finite", "element 1"),
        (
            replace(ints(), "weight_zero_point", i8s, &[15, 1]),
            "wrong_shape",
            "`layer.weight_zero_point`",
        ),
        (
            replace(ints(), "weight_zero_point", Dtype::I32, &[16, 1]),
            "wrong_dtype",
            "`layer.weight_zero_point`",
        ),
        (replace(bnb(), "weight", i8s, &[8, 64]), "wrong_shape", "`layer.weight`"),
        (replace(bnb(), "SCB", Dtype::F32, &[15]), "wrong_shape", "`layer.SCB`"),
        (replace(bnb(), "SCB", Dtype::F32, &[16, 1]), "wrong_shape", "`layer.SCB`"),
        (replace(bnb(), "SCB", Dtype::F16, &[16]), "wrong_dtype", "`layer.SCB`"),
        (
            with_bytes(bnb(), "SCB", 0, &[0, 0, 0x80, 0x7f]),
            "not_finite",
            "element 0 of `layer.SCB`",
        ),
        (with_bytes(bnb(), "weight_format", 0, &[1]), "bad_weights", "`layer.weight_format`"),
    ] {
        check_refused(&tensors, SIZE, code, text);
    }
}
