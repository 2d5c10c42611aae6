//! MXFP4 against the worked vector, in the layouts of all three writers, and what is refused.

use sha2::{Digest, Sha256};

use super::*;
use crate::linear::FusedPart;
use crate::small_float::testing::{TestTensor, f32s, files, rows};

const GATE_UP: &str = "x.gate_up_proj";

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (37 * i + 11) as u8).collect()
}

fn packed(scales: [u8; 2]) -> Vec<TestTensor> {
    vec![
        ("p.weight_packed", U8, vec![1, 32], bytes(32)),
        ("p.weight_scale", U8, vec![1, 2], scales.to_vec()),
    ]
}

#[test]
fn the_worked_vector_decodes_under_every_name() {
    let dsv4 = vec![
        ("p.weight", I8, vec![1, 32], bytes(32)),
        ("p.scale", E8M0, vec![1, 2], vec![120, 129]),
    ];
    for tensors in [packed([120, 129]), dsv4] {
        let files = files(&tensors);
        let linear = files.linear(64, 1).unwrap();
        assert_eq!(linear.kind, LinearKind::Mxfp4);
        let weights = rows(&linear);
        let first: Vec<f32> = weights[..32].iter().map(|weight| weight * 128.0).collect();
        let expected = [
            -1.5, 0.0, 0.0, 1.5, 3.0, 3.0, -1.0, 6.0, -6.0, -0.5, 2.0, -2.0, -0.5, -4.0, -4.0, 0.0,
            1.5, 1.5, -0.0, 3.0, -3.0, 6.0, 1.0, -1.0, 6.0, -2.0, -2.0, -4.0, 0.5, 0.5, 4.0, 1.5,
        ];
        assert_eq!(first, expected);
        let second: Vec<f32> = weights[32..40].iter().map(|weight| weight / 4.0).collect();
        assert_eq!(second, [-1.5, 3.0, 0.0, -0.0, 3.0, -1.0, -1.0, -2.0]);
        let digest = Sha256::digest(f32s(&weights));
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digest, "4bd3096a3b79ff3b778c2268b29f8a96b8262c42dbcf7ef21dcddd9bf4afc64d");
    }
}

/// Two experts of four outputs and 64 inputs: rows of gate and up in turn.
fn experts() -> Vec<TestTensor> {
    vec![
        ("x.gate_up_proj_blocks", U8, vec![2, 4, 2, 16], bytes(256)),
        ("x.gate_up_proj_scales", U8, vec![2, 4, 2], (112..128).collect()),
        ("x.gate_up_proj.bias", Dtype::F32, vec![2, 4], f32s(&[0., 1., 2., 3., 4., 5., 6., 7.])),
    ]
}

#[test]
fn gate_and_up_of_an_expert_are_every_other_row_of_its_slab() {
    let files = files(&experts());
    for (expert, first) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let own = first..4;
        let part = FusedPart {
            base: GATE_UP,
            total_out: 4,
            rows: std::slice::from_ref(&own),
            step: 2,
            slab: Some((expert, 2)),
        };
        let linear = files.part(part, true, 64, 2).unwrap();
        let places = [first, first + 2].map(|row| 4 * expert + row);
        assert_eq!(linear.bias, Some(places.map(|place| place as f32).to_vec()));
        let weights = rows(&linear);
        for (row, place) in places.into_iter().enumerate() {
            for input in 0..64 {
                let byte = bytes(256)[place * 32 + input / 2];
                let code = if input % 2 == 0 { byte & 15 } else { byte >> 4 };
                let scale = 2f32.powi(112 + (2 * place + input / 32) as i32 - 127);
                assert_eq!(weights[row * 64 + input], Number::E2m1.value(code) * scale);
            }
        }
        for (stored, first) in [(first, 0), (first + 2, 56), (first, 24)] {
            let codes: Vec<u8> = (first..first + 8).map(|i| linear.code(stored, i)).collect();
            let word = linear.eight_codes(stored, first);
            assert_eq!(codes, (0..8).map(|i| (word >> (4 * i) & 15) as u8).collect::<Vec<_>>());
        }
    }
}

#[test]
fn one_more_in_a_scale_doubles_its_group_and_nothing_else() {
    let weights = |scales| {
        let files = files(&packed(scales));
        rows(&files.linear(64, 1).unwrap())
    };
    let (one, other) = (weights([120, 129]), weights([120, 130]));
    assert_eq!(one[..32], other[..32]);
    assert!(one[32..].iter().zip(&other[32..]).all(|(one, other)| 2.0 * one == *other));
}

#[test]
fn what_contradicts_itself_is_refused_with_the_name_of_the_tensor() {
    let part = |slab| FusedPart {
        base: GATE_UP,
        total_out: 4,
        rows: std::slice::from_ref(&(0..4)),
        step: 2,
        slab,
    };
    let mut odd = experts();
    odd[0].2 = vec![2, 4, 4, 8];
    let mut short = experts();
    (short[1].2, short[1].3) = (vec![2, 4, 1], vec![120; 8]);
    let mut typed = experts();
    typed[1].1 = I8;
    let missing = vec![experts().remove(0)];
    for (tensors, slab, text) in [
        (odd, (0, 2), "`x.gate_up_proj_blocks` has shape [2, 4, 4, 8] where [2, 4, 2, 16]"),
        (short, (0, 2), "`x.gate_up_proj_scales` has shape [2, 4, 1] where [2, 4, 2]"),
        (typed, (0, 2), "`x.gate_up_proj_scales`"),
        (missing, (0, 2), "`x.gate_up_proj_scales`"),
        (experts(), (0, 3), "`x.gate_up_proj_blocks` has shape [2, 4, 2, 16] where [3, 4, 2, 16]"),
    ] {
        let error = files(&tensors).part(part(Some(slab)), true, 64, 2).map(|_| ()).unwrap_err();
        assert!(error.contains(text), "{error}");
    }
    let (nan, huge) = (packed([120, 255]), packed([254, 120]));
    for (tensors, inputs, text) in [
        (nan, 64, "`p.weight_scale` gives NaN as scale 1"),
        (huge, 64, "`p.weight_scale` gives 170141"),
        (packed([120, 120]), 48, "inputs in groups of 32"),
    ] {
        let error = files(&tensors).linear(inputs, 1).map(|_| ()).unwrap_err();
        assert!(error.contains(text), "{error}");
    }
}
