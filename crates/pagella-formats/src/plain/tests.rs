//! Plain linears: both orientations, fused and stacked tensors, biases.

use super::*;
use crate::linear::{BiasRule, FusedPart, Linear, load_linear};
use crate::safetensors::write::{TensorData, write_file};

/// Opens a checkpoint of F32 tensors whose elements count up from zero.
fn checkpoint(tensors: &[(&str, &[usize])]) -> (tempfile::TempDir, Checkpoint) {
    let dir = tempfile::tempdir().unwrap();
    let buffers: Vec<Vec<u8>> = tensors
        .iter()
        .map(|(_, shape)| {
            (0..shape.iter().product()).flat_map(|i: usize| (i as f32).to_le_bytes()).collect()
        })
        .collect();
    let tensors: Vec<_> = tensors
        .iter()
        .zip(&buffers)
        .map(|((name, shape), data)| TensorData {
            name: (*name).to_owned(),
            dtype: Dtype::F32,
            shape: shape.to_vec(),
            data,
        })
        .collect();
    write_file(&dir.path().join("m.safetensors"), &tensors).unwrap();
    let checkpoint = Checkpoint::open(dir.path(), &[]).unwrap();
    (dir, checkpoint)
}

fn request<'a>(bases: &'a [String], in_features: usize, out_features: usize) -> LinearRequest<'a> {
    LinearRequest {
        bases,
        fused: None,
        in_features,
        out_features,
        bias: BiasRule::IfPresent,
        transposed: false,
        gptq_zeros: crate::gptq::GptqZeros::LessOne,
    }
}

fn plain<'a>(checkpoint: &'a Checkpoint, request: &LinearRequest<'_>) -> PlainLinear<'a> {
    match load_linear(checkpoint, request).unwrap() {
        Linear::Plain(linear) => linear,
        other => panic!("{:?}", other.kind()),
    }
}

/// Both ways to read all weights agree with `weight`; returns the rows.
fn rows(linear: &PlainLinear<'_>) -> Vec<f32> {
    let rows = linear.rows_f32();
    let matrix = linear.dequantize();
    for out in 0..linear.out_features {
        for input in 0..linear.in_features {
            let weight = linear.weight(out, input);
            assert_eq!(rows[out * linear.in_features + input], weight);
            assert_eq!(matrix[input * linear.out_features + out], weight);
        }
    }
    rows
}

#[test]
fn rows_are_outputs_unless_transposed() {
    let (_dir, checkpoint) = checkpoint(&[("a.weight", &[2, 3]), ("bare", &[2, 3])]);
    let names = ["a".to_owned()];
    let linear = plain(&checkpoint, &request(&names, 3, 2));
    assert_eq!(rows(&linear), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_eq!(linear.row_bytes(1).unwrap()[..4], 3f32.to_le_bytes());
    assert_eq!(linear.row_bytes(2), None);
    let linear = plain(&checkpoint, &LinearRequest { transposed: true, ..request(&names, 2, 3) });
    assert_eq!(rows(&linear), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    assert_eq!((linear.row_bytes(0), linear.stored_outputs()), (None, 3));
    let names = ["bare".to_owned()];
    assert_eq!(rows(&plain(&checkpoint, &request(&names, 3, 2))).len(), 6);
    let error = load_linear(&checkpoint, &request(&names, 2, 3)).unwrap_err();
    assert!(error.to_string().contains("`bare` has shape [2, 3] where [3, 2]"), "{error}");
}

#[test]
fn a_fused_tensor_beats_split_ones_and_is_cut_by_rows() {
    let (_dir, checkpoint) =
        checkpoint(&[("qkv.weight", &[6, 2]), ("qkv.bias", &[6]), ("q.weight", &[3, 2])]);
    let names = ["q".to_owned()];
    let ranges = [0..1, 4..6];
    let fused = Some(FusedPart { base: "qkv", total_out: 6, rows: &ranges, step: 1, slab: None });
    let linear = plain(&checkpoint, &LinearRequest { fused, ..request(&names, 2, 3) });
    assert_eq!(rows(&linear), [0.0, 1.0, 8.0, 9.0, 10.0, 11.0]);
    assert_eq!(linear.bias, Some(vec![0.0, 4.0, 5.0]));
    assert_eq!((linear.name.as_str(), linear.stored_outputs()), ("qkv", 6));
    assert_eq!(linear.row_bytes(1).unwrap()[..4], 8f32.to_le_bytes());
}

#[test]
fn transposed_fused_tensors_are_cut_by_columns_and_stacked_ones_by_rows() {
    let (_dir, checkpoint) = checkpoint(&[("c_attn.weight", &[2, 6]), ("w2", &[6, 3])]);
    let part = std::slice::from_ref(&(2..4));
    let fused = Some(FusedPart { base: "c_attn", total_out: 6, rows: part, step: 1, slab: None });
    let request = LinearRequest { fused, transposed: true, ..request(&[], 2, 2) };
    assert_eq!(rows(&plain(&checkpoint, &request)), [2.0, 8.0, 3.0, 9.0]);
    // Three experts of [2 inputs, 3 outputs] on top of each other; this is the second.
    let fused = Some(FusedPart { base: "w2", total_out: 6, rows: part, step: 1, slab: None });
    let request = LinearRequest { fused, out_features: 3, ..request };
    assert_eq!(rows(&plain(&checkpoint, &request)), [6.0, 9.0, 7.0, 10.0, 8.0, 11.0]);
}

#[test]
fn impossible_cuts_are_refused() {
    let (_dir, checkpoint) = checkpoint(&[("qkv.weight", &[6, 2])]);
    for ranges in
        [vec![0..2, 5..7], vec![0..1, 1..2], vec![0..4, 4..4], vec![], vec![0..1, 0..usize::MAX]]
    {
        let fused =
            Some(FusedPart { base: "qkv", total_out: 6, rows: &ranges, step: 1, slab: None });
        let error =
            load_linear(&checkpoint, &LinearRequest { fused, ..request(&[], 2, 4) }).unwrap_err();
        assert_eq!(error.code(), "fused_split", "{ranges:?}");
        assert!(error.to_string().contains("qkv.weight"), "{error}");
    }
    let whole = std::slice::from_ref(&(0..4));
    let fused = Some(FusedPart { base: "qkv", total_out: 8, rows: whole, step: 1, slab: None });
    let error =
        load_linear(&checkpoint, &LinearRequest { fused, ..request(&[], 2, 4) }).unwrap_err();
    assert_eq!(error.code(), "wrong_shape");
}

#[test]
fn biases_follow_the_rule_of_the_family() {
    let (_dir, checkpoint) = checkpoint(&[
        ("a.weight", &[2, 1]),
        ("a.bias", &[2]),
        ("zero.weight", &[1, 1]),
        ("zero.bias", &[1]),
        ("none.weight", &[2, 1]),
        ("odd.weight", &[2, 1]),
        ("odd.bias", &[3]),
    ]);
    let load = |name: &str, outputs, bias| {
        let bases = [name.to_owned()];
        load_linear(&checkpoint, &LinearRequest { bias, ..request(&bases, 1, outputs) })
            .map(|linear| linear.bias().map(<[f32]>::to_vec))
    };
    assert_eq!(load("a", 2, BiasRule::Required).unwrap(), Some(vec![0.0, 1.0]));
    assert_eq!(load("a", 2, BiasRule::IfPresent).unwrap(), Some(vec![0.0, 1.0]));
    assert_eq!(load("a", 2, BiasRule::Forbidden).unwrap_err().code(), "unexpected_bias");
    assert_eq!(load("zero", 1, BiasRule::Forbidden).unwrap(), None);
    assert_eq!(load("zero", 1, BiasRule::IfPresent).unwrap(), Some(vec![0.0]));
    assert_eq!(load("none", 2, BiasRule::IfPresent).unwrap(), None);
    let error = load("none", 2, BiasRule::Required).unwrap_err();
    assert!(error.to_string().contains("`none.bias`"), "{error}");
    assert_eq!(load("odd", 2, BiasRule::IfPresent).unwrap_err().code(), "wrong_shape");
}

#[test]
fn a_matrix_of_a_stack_is_read_with_its_bias_in_either_orientation() {
    // Three matrices [2, 4], counting up; biases [3, 2] and [3, 4].
    let tensors: &[(&str, &[usize])] = &[
        ("rows", &[3, 2, 4]),
        ("rows.bias", &[3, 2]),
        ("columns", &[3, 2, 4]),
        ("columns.bias", &[3, 4]),
    ];
    let (_dir, checkpoint) = checkpoint(tensors);
    let part = |base, total_out, rows, step| {
        Some(FusedPart { base, total_out, rows, step, slab: Some((1, 3)) })
    };
    let second = std::slice::from_ref(&(1..2));
    let fused = part("rows", 2, second, 1);
    let linear = plain(&checkpoint, &LinearRequest { fused, ..request(&[], 4, 1) });
    assert_eq!(rows(&linear), [12.0, 13.0, 14.0, 15.0]);
    assert_eq!(linear.bias, Some(vec![3.0]));
    // Columns 1 and 3 of [in, out].
    let odd = std::slice::from_ref(&(1..4));
    let fused = part("columns", 4, odd, 2);
    let linear =
        plain(&checkpoint, &LinearRequest { fused, transposed: true, ..request(&[], 2, 2) });
    assert_eq!(rows(&linear), [9.0, 13.0, 11.0, 15.0]);
    assert_eq!(linear.bias, Some(vec![5.0, 7.0]));
    let wrong = Some(FusedPart { slab: Some((1, 4)), ..part("rows", 2, second, 1).unwrap() });
    let error = load_linear(&checkpoint, &LinearRequest { fused: wrong, ..request(&[], 4, 1) });
    assert!(matches!(error, Err(FormatError::WrongShape { .. })));
}

#[test]
fn a_split_part_lies_in_the_usual_order_even_where_the_fused_tensor_does_not() {
    let (_dir, checkpoint) = checkpoint(&[("q", &[2, 3])]);
    let bases = ["q".to_owned()];
    let whole = std::slice::from_ref(&(0..2));
    let fused = Some(FusedPart { base: "qkv", total_out: 6, rows: whole, step: 1, slab: None });
    let linear =
        plain(&checkpoint, &LinearRequest { fused, transposed: true, ..request(&bases, 3, 2) });
    assert_eq!(rows(&linear), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
}

#[test]
fn weights_that_the_converter_to_exl3_padded_are_read_without_the_padding() {
    let bases = ["head".to_owned()];
    let shapes: [&[usize]; 4] = [&[128, 128], &[128, 70], &[100, 128], &[110, 128]];
    for shape in shapes {
        let (_dir, checkpoint) = checkpoint(&[("head.weight", shape), ("layer.trellis", &[1])]);
        let linear = plain(&checkpoint, &request(&bases, 70, 100));
        let weights = rows(&linear);
        assert_eq!(weights[99 * 70 + 69], (99 * shape[1] + 69) as f32, "{shape:?}");
        assert_eq!(linear.row_bytes(99).unwrap().len(), 70 * 4);
    }
    for shape in [&[129, 70][..], &[99, 70], &[100, 129], &[128, 69]] {
        let (_dir, checkpoint) = checkpoint(&[("head.weight", shape), ("layer.trellis", &[1])]);
        let error = load_linear(&checkpoint, &request(&bases, 70, 100)).unwrap_err();
        assert_eq!(error.code(), "wrong_shape", "{shape:?}");
    }
    let (_dir, checkpoint) = checkpoint(&[("head.weight", &[128, 128])]);
    assert!(load_linear(&checkpoint, &request(&bases, 70, 100)).is_err(), "no EXL3, no padding");
}
