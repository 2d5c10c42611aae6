//! FP8 with every kind of scale, against the worked vector, and what is refused.

use super::*;
use crate::linear::FusedPart;
use crate::small_float::testing::{TestTensor, f32s, files, rows};
use crate::small_float::{Sharing, e4m3};

const E4M3: Dtype = Dtype::Other(OtherDtype::F8E4M3);
const E5M2: Dtype = Dtype::Other(OtherDtype::F8E5M2);
const U8: Dtype = Dtype::Other(OtherDtype::U8);
const E8M0: Dtype = Dtype::Other(OtherDtype::F8E8M0);

/// Bytes that are all finite.
fn bytes(len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (29 * i + 5) as u8)
        .map(|byte| if byte & 0x7F == 0x7F { 0 } else { byte })
        .collect()
}

fn weight(shape: [usize; 2]) -> TestTensor {
    ("p.weight", E4M3, shape.to_vec(), bytes(shape[0] * shape[1]))
}

fn scale(name: &'static str, shape: &[usize]) -> TestTensor {
    let len = shape.iter().product();
    (
        name,
        Dtype::F32,
        shape.to_vec(),
        f32s(&(0..len).map(|i: usize| 0.5 + i as f32).collect::<Vec<_>>()),
    )
}

#[test]
fn the_worked_vector_has_partial_rectangles() {
    let files = files(&[
        weight([3, 5]),
        ("p.weight_scale_inv", Dtype::F32, vec![2, 3], f32s(&[0.5, 0.25, 2.0, 1.5, 0.125, 3.0])),
    ])
    .with_groups([2, 2]);
    let linear = files.linear(5, 3).unwrap();
    #[rustfmt::skip]
    let expected = [
        0.0048828125, 0.078125, 0.46875, 6.0, 576.0,
        -0.02734375, -0.34375, -2.0, -26.0, 0.0390625,
        0.3515625, 4.5, 4.5, 56.0, -0.2578125,
    ];
    assert_eq!(rows(&linear), expected);
    assert_eq!(linear.group_inputs(), 2);
}

#[test]
fn shapes_of_scales_say_what_they_are_for() {
    let e8m0 = |dtype, shape: &[usize]| {
        ("p.weight_scale", dtype, shape.to_vec(), vec![127; shape.iter().product()])
    };
    let channel = Sharing::Grid { rows: 1, columns: usize::MAX, stride: 1 };
    for (shape, scale, sharing) in [
        (
            [576, 256],
            scale("p.weight_scale_inv", &[5, 2]),
            Sharing::Grid { rows: 128, columns: 128, stride: 2 },
        ),
        (
            [576, 130],
            scale("p.weight_scale", &[5, 2]),
            Sharing::Grid { rows: 128, columns: 128, stride: 2 },
        ),
        ([40, 64], scale("p.weight_scale_inv", &[]), Sharing::ONE),
        ([40, 64], scale("p.weight_scale", &[1]), Sharing::ONE),
        ([40, 64], scale("p.weight_scale", &[1, 1]), Sharing::ONE),
        ([40, 64], scale("p.weight_scale", &[40, 1]), channel),
        ([40, 64], scale("p.weight_scale", &[40]), channel),
        ([40, 64], e8m0(U8, &[40, 2]), Sharing::Grid { rows: 1, columns: 32, stride: 2 }),
        ([256, 512], e8m0(E8M0, &[2, 4]), Sharing::Grid { rows: 128, columns: 128, stride: 4 }),
    ] {
        let files = files(&[weight(shape), scale]);
        let linear = files.linear(shape[1], shape[0]).unwrap();
        assert_eq!(linear.sharing, sharing, "{shape:?}");
        let weights = rows(&linear);
        let at = |row: usize, column: usize| weights[row * shape[1] + column];
        let byte = bytes(shape[0] * shape[1])[(shape[0] - 1) * shape[1] + 63];
        assert_eq!(at(shape[0] - 1, 63), e4m3(byte) * linear.scale(shape[0] - 1, 63));
    }
}

#[test]
fn experts_in_one_tensor_have_scales_of_their_own_in_either_orientation() {
    // Two matrices of 4 × 6 in rectangles of 2 × 4.
    for transposed in [false, true] {
        let files = files(&[
            ("x.gate_up_proj", E4M3, vec![2, 4, 6], bytes(48)),
            scale("x.gate_up_proj_scale_inv", &[2, 2, 2]),
        ])
        .with_groups([2, 4]);
        let total_out = if transposed { 6 } else { 4 };
        let part = FusedPart {
            base: "x.gate_up_proj",
            total_out,
            rows: std::slice::from_ref(&(1..4)),
            step: 1,
            slab: Some((1, 2)),
        };
        let inputs = if transposed { 4 } else { 6 };
        let linear = files.part(part, transposed, inputs, 3).unwrap();
        let weights = rows(&linear);
        for output in 0..3 {
            for input in 0..inputs {
                let (row, column) =
                    if transposed { (input, output + 1) } else { (output + 1, input) };
                let scale = 0.5 + (4 + row / 2 * 2 + column / 4) as f32;
                let value = e4m3(bytes(48)[24 + row * 6 + column]) * scale;
                assert_eq!(weights[output * inputs + input], value, "{transposed} {row} {column}");
            }
        }
    }
    let one =
        files(&[("x.down_proj", E4M3, vec![2, 4, 6], bytes(48)), scale("x.down_proj_scale", &[2])]);
    let part = FusedPart {
        base: "x.down_proj",
        total_out: 4,
        rows: std::slice::from_ref(&(0..4)),
        step: 1,
        slab: Some((1, 2)),
    };
    assert_eq!(one.part(part, false, 6, 4).unwrap().scale(3, 5), 1.5);
}

#[test]
fn e5m2_is_the_upper_half_of_binary16() {
    let codes: Vec<u8> =
        (0..=255).map(|byte: u8| if byte & 0x7C == 0x7C { 0 } else { byte }).collect();
    let files =
        files(&[("p.weight", E5M2, vec![2, 128], codes.clone()), scale("p.weight_scale", &[1])]);
    let weights = rows(&files.linear(128, 2).unwrap());
    for (weight, code) in weights.iter().zip(codes) {
        assert_eq!(*weight, half::f16::from_bits(u16::from(code) << 8).to_f32() * 0.5);
    }
}

#[test]
fn what_cannot_be_right_is_refused_with_the_name_of_the_tensor() {
    let with = |at: usize, byte: u8| {
        let mut weight = weight([4, 64]);
        weight.3[at] = byte;
        weight
    };
    let one = |value: f32| ("p.weight_scale", Dtype::F32, vec![1], f32s(&[value]));
    let rows = |values: [f32; 4]| ("p.weight_scale", Dtype::F32, vec![4, 1], f32s(&values));
    let mut infinite = weight([4, 64]);
    (infinite.1, infinite.3[3]) = (E5M2, 0xFC);
    let fnuz = ("p.weight", Dtype::Other(OtherDtype::F8E4M3Fnuz), vec![4, 64], bytes(256));
    for (tensors, text) in [
        (vec![with(77, 0x7F), one(1.0)], "`p.weight` holds a NaN as code 77"),
        (vec![infinite, one(1.0)], "`p.weight` holds a NaN as code 3"),
        (vec![weight([4, 64]), one(f32::INFINITY)], "`p.weight_scale` gives inf as scale 0"),
        (vec![weight([4, 64]), one(-1.0)], "`p.weight_scale` gives -1 as scale 0"),
        (vec![weight([4, 64]), one(1e37)], "`p.weight_scale` gives 1"),
        (vec![weight([4, 64]), one(0.0)], "`p.weight_scale` is 0 at output 0, input 0"),
        (vec![weight([4, 64]), rows([1.0, 1.0, 0.0, 1.0])], "is 0 at output 2, input 0"),
        (vec![weight([4, 64])], "`p.weight` is F8_E4M3 and has no scale beside it"),
        (
            vec![weight([4, 64]), scale("p.weight_scale", &[1, 64])],
            "`p.weight_scale` has shape [1, 64]",
        ),
        (
            vec![weight([4, 64]), scale("p.weight_scale", &[2, 2])],
            "or [1, 1] for groups of 128 × 128",
        ),
        (vec![weight([8, 32]), one(1.0)], "`p.weight` has shape [8, 32] where [4, 64]"),
        (
            vec![weight([4, 64]), ("p.weight_scale", Dtype::I32, vec![1], vec![0; 4])],
            "`p.weight_scale`",
        ),
        (vec![fnuz, one(1.0)], "F8_E4M3FNUZ"),
    ] {
        let error = files(&tensors).linear(64, 4).map(|_| ()).unwrap_err();
        assert!(error.contains(text), "{error}");
    }
    // Rows of zeros need no scale.
    let mut zeros = weight([4, 64]);
    zeros.3[128..192].fill(0x80);
    assert!(files(&[zeros, rows([1.0, 1.0, 0.0, 1.0])]).linear(64, 4).is_ok());
}
