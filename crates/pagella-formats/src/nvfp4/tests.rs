//! NVFP4 of both writers against the worked vector, and what is refused.

use super::*;
use crate::small_float::testing::{TestTensor, f32s, files, rows};

const BYTES: [u8; 8] = [0x0B, 0x30, 0x55, 0x7A, 0x9F, 0xC4, 0xE9, 0x0E];

fn compressed(scale: u8, global: f32) -> Vec<TestTensor> {
    vec![
        ("p.weight_packed", U8, vec![1, 8], BYTES.to_vec()),
        ("p.weight_scale", E4M3, vec![1, 1], vec![scale]),
        ("p.weight_global_scale", Dtype::F32, vec![1], f32s(&[global])),
    ]
}

fn modelopt(scale: u8, scale_2: f32) -> Vec<TestTensor> {
    vec![
        ("p.weight", U8, vec![1, 8], BYTES.to_vec()),
        ("p.weight_scale", E4M3, vec![1, 1], vec![scale]),
        ("p.weight_scale_2", Dtype::F32, vec![], f32s(&[scale_2])),
    ]
}

#[test]
fn both_writers_give_the_worked_vector() {
    let codes =
        [-1.5, 0.0, 0.0, 1.5, 3.0, 3.0, -1.0, 6.0, -6.0, -0.5, 2.0, -2.0, -0.5, -4.0, -4.0, 0.0f32];
    for (tensors, scale) in [
        (compressed(0x5A, 3000.0), 20.0 / 3000.0),
        (modelopt(0x5A, 1.0 / 3000.0), 20.0 * (1.0 / 3000.0f32)),
    ] {
        let files = files(&tensors);
        let linear = files.linear(16, 1).unwrap();
        assert_eq!(rows(&linear), codes.map(|code| code * scale));
        assert_eq!(rows(&linear)[..4], [-0.01, 0.0, 0.0, 0.01]);
    }
    // Where a power of two leaves nothing to round, they agree to the bit.
    let (one, other) = (files(&compressed(0x31, 4096.0)), files(&modelopt(0x31, 1.0 / 4096.0)));
    assert_eq!(rows(&one.linear(16, 1).unwrap()), rows(&other.linear(16, 1).unwrap()));
}

#[test]
fn a_scale_of_the_other_writer_and_other_contradictions_are_named() {
    let swizzled = {
        let mut tensors = modelopt(0x38, 0.001);
        tensors[1] = ("p.weight_scale", U8, vec![512], vec![0; 512]);
        tensors
    };
    let wide = {
        let mut tensors = modelopt(0x38, 0.001);
        tensors[1] = ("p.weight_scale", E4M3, vec![1, 2], vec![0; 2]);
        tensors
    };
    let many = {
        let mut tensors = modelopt(0x38, 0.001);
        tensors[2] = ("p.weight_scale_2", Dtype::F32, vec![2], f32s(&[0.1, 0.2]));
        tensors
    };
    let mut lost = compressed(0x38, 3000.0);
    lost.remove(1);
    for (tensors, text) in [
        (compressed(0x38, 1.0 / 3000.0), "`p.weight_global_scale` is 0.00033333"),
        (modelopt(0x38, 3000.0), "`p.weight_scale_2` is 3000, on the wrong side of 1"),
        (modelopt(0x38, f32::NAN), "`p.weight_scale_2` is NaN"),
        (compressed(0x38, 0.0), "`p.weight_global_scale` is 0,"),
        (compressed(0x7F, 3000.0), "`p.weight_scale` gives NaN as scale 0"),
        (compressed(0xB8, 3000.0), "`p.weight_scale` gives -0.000"),
        (swizzled, "`p.weight_scale`"),
        (wide, "`p.weight_scale` has shape [1, 2] where [1, 1]"),
        (many, "`p.weight_scale_2` has shape [2] where one number"),
        (lost, "`p.weight_scale`"),
    ] {
        let error = files(&tensors).linear(16, 1).map(|_| ()).unwrap_err();
        assert!(error.contains(text), "{error}");
    }
}
