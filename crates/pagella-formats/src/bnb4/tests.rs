//! nf4 and fp4, plain and with double quantisation, and what is refused.

use super::*;
use crate::small_float::testing::{TestTensor, f32s, files, rows};

/// The table of nf4, as bits of f32.
const NF4: [u32; 16] = [
    0xBF80_0000,
    0xBF32_39B1,
    0xBF06_6B30,
    0xBECA_32A0,
    0xBE91_A24D,
    0xBE3D_353F,
    0xBDBA_7871,
    0,
    0x3DA2_FAFF,
    0x3E24_CAE3,
    0x3E7C_04DD,
    0x3EAD_033A,
    0x3EE1_A4B8,
    0x3F10_07AB,
    0x3F39_13B3,
    0x3F80_0000,
];

fn nf4() -> Vec<f32> {
    NF4.map(f32::from_bits).to_vec()
}

fn state(json: &str) -> TestTensor {
    let bytes = json.as_bytes().to_vec();
    ("p.weight.quant_state.bitsandbytes__nf4", U8, vec![bytes.len()], bytes)
}

const STATE: &str =
    r#"{"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [3, 48]}"#;

/// Three outputs of 48 inputs: runs of 64 that begin inside rows.
fn plain() -> Vec<TestTensor> {
    vec![
        ("p.weight", U8, vec![72, 1], (0..72).map(|i| (37 * i + 11) as u8).collect()),
        ("p.weight.absmax", Dtype::F32, vec![3], f32s(&[0.5, 0.25, 3.0])),
        ("p.weight.quant_map", Dtype::F32, vec![16], f32s(&nf4())),
        state(STATE),
    ]
}

fn nested() -> Vec<TestTensor> {
    let json = STATE.replace(
        "}",
        r#", "nested_blocksize": 2, "nested_dtype": "float32", "nested_offset": 0.125}"#,
    );
    let map: Vec<f32> = (0..256).map(|i| (i as f32 - 100.0) / 255.0).collect();
    vec![
        plain().remove(0),
        ("p.weight.absmax", U8, vec![3], vec![250, 7, 101]),
        plain().remove(2),
        ("p.weight.nested_absmax", Dtype::F32, vec![2], f32s(&[0.3, 0.7])),
        ("p.weight.nested_quant_map", Dtype::F32, vec![256], f32s(&map)),
        state(&json),
    ]
}

/// Weights by the definition, of runs with these scales.
fn expected(scales: [f32; 3]) -> Vec<f32> {
    (0..144)
        .map(|i| {
            let byte = (37 * (i / 2) + 11) as u8;
            let code = if i % 2 == 0 { byte >> 4 } else { byte & 15 };
            nf4()[usize::from(code)] * scales[i / 64]
        })
        .collect()
}

#[test]
fn weights_are_values_of_the_table_times_the_scale_of_their_run() {
    let files_of = files(&plain());
    let linear = files_of.linear(48, 3).unwrap();
    assert_eq!(rows(&linear), expected([0.5, 0.25, 3.0]));
    // Runs and rows begin together every 16 inputs at the latest.
    assert_eq!(linear.group_inputs(), 16);
    for (stored, first) in [(0, 0), (1, 8), (2, 40)] {
        let word = linear.eight_codes(stored, first);
        for i in 0..8 {
            assert_eq!((word >> (4 * i) & 15) as u8, linear.code(stored, first + i));
        }
    }
}

#[test]
fn scales_of_scales_are_multiplied_then_shifted() {
    let files = files(&nested());
    let linear = files.linear(48, 3).unwrap();
    let value = |code: u8| (f32::from(code) - 100.0) / 255.0;
    let scales = [value(250) * 0.3 + 0.125, value(7) * 0.3 + 0.125, value(101) * 0.7 + 0.125];
    assert_eq!(rows(&linear), expected(scales));
}

#[test]
fn an_odd_number_of_inputs_begins_rows_inside_bytes() {
    let json = STATE.replace("[3, 48]", "[2, 9]");
    let files = files(&[
        ("p.weight", U8, vec![9, 1], (0..9).map(|i| (37 * i + 11) as u8).collect()),
        ("p.weight.absmax", Dtype::F32, vec![1], f32s(&[2.0])),
        plain().remove(2),
        state(&json),
    ]);
    let linear = files.linear(9, 2).unwrap();
    assert_eq!(rows(&linear), expected([2.0; 3])[..18]);
    let word = linear.eight_codes(1, 1);
    assert_eq!(word & 15, u32::from(linear.code(1, 1)));
    assert_eq!(linear.eight_codes(1, 8), u32::from(linear.code(1, 8)), "nothing beyond the inputs");
}

#[test]
fn what_contradicts_itself_is_refused_with_the_name_of_the_tensor() {
    let with = |json: &str| {
        let mut tensors = plain();
        tensors[3] = state(json);
        tensors
    };
    let replaced = |at: usize, tensor: TestTensor| {
        let mut tensors = plain();
        tensors[at] = tensor;
        tensors
    };
    let absmax = "p.weight.absmax";
    let mut lost = nested();
    lost.remove(3);
    for (tensors, text) in [
        (with(&STATE.replace("[3, 48]", "[48, 3]")), "says that the matrix is [48, 3]"),
        (with(&STATE.replace("[3, 48]", "[144]")), "is not about a matrix"),
        (with(&STATE.replace("\"nf4\"", "\"af4\"")), "has the type \"af4\""),
        (with(&STATE.replace("64", "0")), "runs of 0 weights"),
        (with(&STATE.replace("64", "-1")), "is not what it should be"),
        (with("{"), "is not what it should be"),
        (with(&" ".repeat(5000)), "has 5000 bytes, at most 4096"),
        (with(&STATE.replace("}", r#", "nested_blocksize": 256}"#)), "has no `nested_offset`"),
        (with(&STATE.replace("}", r#", "nested_offset": 1e99}"#)), "bitsandbytes__nf4`"),
        (
            replaced(1, (absmax, Dtype::F32, vec![2], f32s(&[1.0; 2]))),
            "`p.weight.absmax` has shape [2]",
        ),
        (replaced(1, (absmax, U8, vec![3], vec![0; 3])), "`p.weight.absmax`"),
        (
            replaced(1, (absmax, Dtype::F32, vec![3], f32s(&[1.0, f32::NAN, 1.0]))),
            "gives NaN as scale 1",
        ),
        (
            replaced(1, (absmax, Dtype::F32, vec![3], f32s(&[1.0, -1.0, 1.0]))),
            "gives -1 as scale 1",
        ),
        (replaced(0, ("p.weight", U8, vec![71, 1], vec![0; 71])), "`p.weight` has shape [71, 1]"),
        (
            replaced(2, ("p.weight.quant_map", Dtype::F32, vec![15], f32s(&[0.0; 15]))),
            "`p.weight.quant_map` has shape [15]",
        ),
        (lost, "`p.weight.nested_absmax`"),
        (plain()[..3].to_vec(), "`p.weight.quant_state.bitsandbytes__nf4`"),
        (vec![plain().remove(0), plain().remove(3)], "`p.weight.absmax`"),
    ] {
        let error = files(&tensors).linear(48, 3).map(|_| ()).unwrap_err();
        assert!(error.contains(text), "{error}");
    }
}
