//! Linears whose tensors contradict each other: one clear error each, never a panic.

use crate::support::{Tensor, check_refused, load, open, request, tensors_of};
use half::f16;
use pagella_formats::exl3::{Codebook, MUL1_MULTIPLIER};
use pagella_formats::synthetic::{self, RowOrder};
use pagella_formats::{Dtype, FusedPart, Linear, LinearRequest, OtherDtype, load_linear};
use proptest::prelude::*;

/// Size of the linears below.
const SIZE: (usize, usize) = (160, 64);

fn exl2() -> Vec<Tensor> {
    let mix = [(8, 0.2, 32), (5, 0.2, 32), (4, 0.2, 32), (3, 0.2, 32), (2, 0.2, 32)];
    tensors_of(&synthetic::exl2(SIZE.0, SIZE.1, &mix, 1))
}

fn gptq(order: RowOrder) -> Vec<Tensor> {
    tensors_of(&synthetic::gptq(SIZE.0, SIZE.1, 32, order, 1))
}

/// `tensors` after a change to the one called `layer.{suffix}`.
fn with(mut tensors: Vec<Tensor>, suffix: &str, change: impl FnOnce(&mut Tensor)) -> Vec<Tensor> {
    let name = format!("layer.{suffix}");
    change(tensors.iter_mut().find(|tensor| tensor.name == name).unwrap());
    tensors
}

fn without(mut tensors: Vec<Tensor>, suffix: &str) -> Vec<Tensor> {
    tensors.retain(|tensor| tensor.name != format!("layer.{suffix}"));
    tensors
}

/// Replaces a tensor by zeros of another type or shape.
fn replace(tensors: Vec<Tensor>, suffix: &str, dtype: Dtype, shape: &[usize]) -> Vec<Tensor> {
    with(tensors, suffix, |tensor| *tensor = Tensor::zeros(&tensor.name, dtype, shape))
}

#[test]
fn the_untouched_linears_load() {
    for tensors in [exl2(), gptq(RowOrder::Sequential), gptq(RowOrder::Shuffled)] {
        let (_dir, checkpoint) = open(&tensors);
        load(&checkpoint, SIZE).unwrap();
    }
}

/// Size of the EXL3 linears below, padded to 256 × 128.
const EXL3_SIZE: (usize, usize) = (200, 100);

fn exl3() -> Vec<Tensor> {
    let codebook = Codebook::Mul1(MUL1_MULTIPLIER);
    tensors_of(&synthetic::exl3(EXL3_SIZE.0, EXL3_SIZE.1, 3, codebook, 1))
}

#[test]
fn exl3_tensors_that_contradict_each_other_are_named() {
    let number = |suffix: &str, value: u32| {
        let mut tensor = Tensor::zeros(&format!("layer.{suffix}"), Dtype::I32, &[1]);
        tensor.data = value.to_le_bytes().to_vec();
        tensor
    };
    let both = [exl3(), vec![number("mcg", 1)]].concat();
    let infinite = with(exl3(), "svh", |t| t.data[14..16].copy_from_slice(&[0x00, 0x7c]));
    for (tensors, code, text) in [
        (without(exl3(), "suh"), "missing_tensor", "`layer.suh`"),
        (without(exl3(), "svh"), "missing_tensor", "`layer.svh`"),
        (replace(exl3(), "trellis", Dtype::I16, &[16, 8, 144]), "wrong_shape", "bits 1 to 8"),
        (replace(exl3(), "trellis", Dtype::I16, &[16, 8, 40]), "wrong_shape", "`layer.trellis`"),
        (replace(exl3(), "trellis", Dtype::I16, &[12, 8, 48]), "wrong_shape", "[16, 8, 16 · bits]"),
        (replace(exl3(), "trellis", Dtype::I32, &[16, 8, 48]), "wrong_dtype", "`layer.trellis`"),
        (replace(exl3(), "suh", Dtype::F16, &[200]), "wrong_shape", "[256]"),
        (replace(exl3(), "suh", Dtype::F32, &[256]), "wrong_dtype", "`layer.suh`"),
        (replace(exl3(), "mul1", Dtype::I32, &[1]), "bad_weights", "`layer.mul1` is 0"),
        (replace(exl3(), "mul1", Dtype::I32, &[2]), "wrong_shape", "`layer.mul1`"),
        (both, "bad_weights", "two codebooks"),
        (infinite, "not_finite", "element 7 of `layer.svh`"),
    ] {
        check_refused(&tensors, EXL3_SIZE, code, text);
    }
}

#[test]
fn early_exl3_files_hold_signs_and_any_multiplier() {
    let signs = |suffix: &str, words: usize| {
        let mut tensor = Tensor::zeros(&format!("layer.{suffix}"), Dtype::I16, &[words]);
        tensor.data.fill(0b0000_0110);
        tensor
    };
    let early = without(without(exl3(), "suh"), "svh");
    let (_dir, checkpoint) = open(&[early, vec![signs("su", 16), signs("sv", 8)]].concat());
    let Linear::Exl3(linear) = load(&checkpoint, EXL3_SIZE).unwrap() else { panic!() };
    assert_eq!(linear.suh[..5], [1.0, -1.0, -1.0, 1.0, 1.0]);
    assert_eq!((linear.suh.len(), linear.svh.len()), (256, 128));
    let other = with(exl3(), "mul1", |t| t.data = 7u32.to_le_bytes().to_vec());
    let (_dir, checkpoint) = open(&other);
    let linear = load(&checkpoint, EXL3_SIZE).unwrap();
    assert_eq!(linear.details(), "codebook mul1 with an experimental multiplier");
    assert!(linear.caution().is_some_and(|words| words.contains("multiplier")));
}

#[test]
fn missing_tensors_are_named() {
    for suffix in ["q_scale", "q_scale_max", "q_groups", "q_invperm"] {
        check_refused(
            &without(exl2(), suffix),
            SIZE,
            "missing_tensor",
            &format!("`layer.{suffix}`"),
        );
    }
    for suffix in ["qzeros", "scales"] {
        let tensors = without(gptq(RowOrder::Sequential), suffix);
        check_refused(&tensors, SIZE, "missing_tensor", &format!("`layer.{suffix}`"));
    }
    check_refused(&without(exl2(), "q_weight"), SIZE, "missing_linear", "`layer`");
    check_refused(&[], SIZE, "missing_linear", "`layer`");
}

#[test]
fn mistyped_tensors_are_named() {
    let size = |tensors: &[Tensor], name: &str| {
        tensors.iter().find(|tensor| tensor.name == name).unwrap().shape.clone()
    };
    for (suffix, dtype) in [
        ("q_weight", Dtype::F32),
        ("q_scale", Dtype::Other(OtherDtype::U32)),
        ("q_scale_max", Dtype::BF16),
        ("q_groups", Dtype::F16),
        ("q_invperm", Dtype::Other(OtherDtype::I64)),
    ] {
        let name = format!("layer.{suffix}");
        let tensors = replace(exl2(), suffix, dtype, &size(&exl2(), &name));
        check_refused(&tensors, SIZE, "wrong_dtype", &name);
    }
    let base = gptq(RowOrder::Shuffled);
    for (suffix, dtype) in [
        ("qweight", Dtype::Other(OtherDtype::U32)),
        ("qzeros", Dtype::F32),
        ("scales", Dtype::I16),
        ("g_idx", Dtype::Other(OtherDtype::I64)),
    ] {
        let name = format!("layer.{suffix}");
        let tensors = replace(base.clone(), suffix, dtype, &size(&base, &name));
        check_refused(&tensors, SIZE, "wrong_dtype", &name);
    }
}

#[test]
fn exl2_shapes_must_agree() {
    for (suffix, dtype, shape, code) in [
        ("q_weight", Dtype::I32, &[22usize * 64][..], "wrong_shape"),
        ("q_weight", Dtype::I32, &[22, 72], "wrong_shape"),
        ("q_weight", Dtype::I32, &[22, 0], "wrong_shape"),
        ("q_weight", Dtype::I32, &[0, 64], "group_table"),
        ("q_weight", Dtype::I32, &[21, 64], "group_table"),
        ("q_weight", Dtype::I32, &[24, 64], "wrong_shape"),
        ("q_scale", Dtype::I32, &[5, 7], "wrong_shape"),
        ("q_scale", Dtype::I32, &[4, 8], "wrong_shape"),
        ("q_scale", Dtype::I32, &[40], "wrong_shape"),
        ("q_scale_max", Dtype::F16, &[4], "group_table"),
        ("q_scale_max", Dtype::F16, &[5, 1], "wrong_shape"),
        ("q_groups", Dtype::I16, &[5, 2], "wrong_shape"),
        ("q_groups", Dtype::I16, &[9], "group_table"),
        ("q_groups", Dtype::I16, &[0], "group_table"),
        ("q_invperm", Dtype::I32, &[159], "wrong_shape"),
        ("q_invperm", Dtype::I32, &[160, 1], "wrong_shape"),
    ] {
        check_refused(&replace(exl2(), suffix, dtype, shape), SIZE, code, "layer.q_");
    }
    check_refused(&exl2(), (192, 64), "wrong_shape", "192 rows");
    check_refused(&exl2(), (160, 65), "wrong_shape", "65 columns");
    check_refused(&exl2(), (160, 32), "wrong_shape", "32 columns");
    check_refused(&exl2(), (0, 0), "fused_split", "layer.q_weight");
    let (_dir, checkpoint) = open(&exl2());
    assert_eq!(load(&checkpoint, (160, 40)).unwrap().out_features(), 40, "padded to 64");
}

#[test]
fn exl2_tables_must_make_sense() {
    let entry = |index: usize, value: i16| {
        with(exl2(), "q_groups", move |tensor| {
            tensor.data[index * 2..index * 2 + 2].copy_from_slice(&value.to_le_bytes());
        })
    };
    for (index, value) in [(0, 7), (0, 4), (1, 1), (3, 0), (3, 200), (3, -1), (8, 3), (9, 21)] {
        check_refused(&entry(index, value), SIZE, "group_table", "`layer.q_groups`");
    }
    for ceiling in [f16::NAN, f16::INFINITY, f16::NEG_ONE] {
        let tensors = with(exl2(), "q_scale_max", |tensor| {
            tensor.data[4..6].copy_from_slice(&ceiling.to_le_bytes());
        });
        check_refused(&tensors, SIZE, "group_table", "group 2");
    }
    let position = |value: i32| {
        with(exl2(), "q_invperm", move |tensor| {
            tensor.data[12..16].copy_from_slice(&value.to_le_bytes());
        })
    };
    for value in [-1, 160, i32::MAX, i32::MIN] {
        check_refused(&position(value), SIZE, "not_a_permutation", &format!("entry 3 is {value}"));
    }
    let repeated = with(exl2(), "q_invperm", |tensor| tensor.data.copy_within(0..4, 400));
    check_refused(&repeated, SIZE, "not_a_permutation", "entry 100");
}

#[test]
fn gptq_shapes_and_groups_must_agree() {
    let base = || gptq(RowOrder::Sequential);
    for (suffix, dtype, shape) in [
        ("qweight", Dtype::I32, &[19usize, 64][..]),
        ("qweight", Dtype::I32, &[20, 48]),
        ("qweight", Dtype::I32, &[20 * 64]),
        ("qzeros", Dtype::I32, &[0, 8]),
        ("qzeros", Dtype::I32, &[5, 9]),
        ("qzeros", Dtype::I32, &[4, 8]),
        ("scales", Dtype::F16, &[5, 63]),
        ("scales", Dtype::F16, &[320]),
        ("g_idx", Dtype::I32, &[161]),
        ("g_idx", Dtype::I32, &[2, 80]),
    ] {
        check_refused(&replace(base(), suffix, dtype, shape), SIZE, "wrong_shape", "layer.");
    }
    for group in [5i32, -1, i32::MAX] {
        let tensors = with(base(), "g_idx", |tensor| {
            tensor.data[28..32].copy_from_slice(&group.to_le_bytes());
        });
        check_refused(&tensors, SIZE, "group_index", &format!("row 7 is in group {group} of 5"));
    }
    let uneven = replace(base(), "qzeros", Dtype::I32, &[3, 8]);
    let uneven = without(replace(uneven, "scales", Dtype::F16, &[3, 64]), "g_idx");
    check_refused(&uneven, SIZE, "uneven_groups", "160 rows do not divide into 3 groups");
}

#[test]
fn tensor_size_product_and_sum_wrap() {
    // Extents that no file could hold are legal next to an extent of zero.
    for huge in [usize::MAX / 32, usize::MAX / 2, usize::MAX] {
        for shape in [[huge, 0], [0, huge]] {
            for suffix in ["q_weight", "q_scale"] {
                let tensors = replace(exl2(), suffix, Dtype::I32, &shape);
                check_refused(&tensors, SIZE, "wrong_shape", suffix);
            }
            for suffix in ["qweight", "qzeros"] {
                let tensors = replace(gptq(RowOrder::Sequential), suffix, Dtype::I32, &shape);
                check_refused(&tensors, SIZE, "wrong_shape", suffix);
            }
            let plain = [Tensor::zeros("layer.weight", Dtype::F16, &shape)];
            check_refused(&plain, SIZE, "wrong_shape", "layer.weight");
        }
    }
}

#[test]
fn gptq_without_an_order_has_consecutive_groups() {
    let base = gptq(RowOrder::Sequential);
    let zeros = replace(base.clone(), "g_idx", Dtype::I32, &[160]);
    let mut seen = Vec::new();
    for tensors in [base.clone(), without(base, "g_idx"), zeros] {
        let (_dir, checkpoint) = open(&tensors);
        let Linear::Gptq(linear) = load(&checkpoint, SIZE).unwrap() else { panic!() };
        assert_eq!((linear.groups, linear.group_rows), (5, Some(32)));
        seen.push(linear.dequantize());
    }
    assert!(seen[0] == seen[1] && seen[1] == seen[2]);
}

#[test]
fn other_formats_are_refused_by_name() {
    let i32s = |suffix: &str, shape: &[usize]| {
        vec![Tensor::zeros(&format!("layer.{suffix}"), Dtype::I32, shape)]
    };
    let of = |suffix: &str, dtype: OtherDtype| {
        vec![Tensor::zeros(&format!("layer.{suffix}"), Dtype::Other(dtype), &[64, 160])]
    };
    for (tensors, text) in [
        (i32s("qweight", &[10, 128]), "Marlin"),
        (i32s("B", &[10, 128]), "Marlin"),
        (i32s("W_q", &[64, 20]), "HQQ"),
    ] {
        check_refused(&tensors, SIZE, "unsupported_format", text);
        check_refused(&tensors, SIZE, "unsupported_format", "`layer.");
        check_refused(
            &tensors,
            SIZE,
            "unsupported_format",
            "use an EXL2, EXL3, AWQ or GPTQ version",
        );
    }
    check_refused(&of("weight", OtherDtype::F64), SIZE, "wrong_dtype", "F64");
    // Formats that are read, with tensors missing or of another type.
    check_refused(
        &of("weight_packed", OtherDtype::U8),
        SIZE,
        "missing_tensor",
        "`layer.weight_scale`",
    );
    check_refused(&of("weight_packed", OtherDtype::I8), SIZE, "wrong_dtype", "has type I8");
    let bnb = [of("weight", OtherDtype::U8), of("SCB", OtherDtype::U8)].concat();
    check_refused(&bnb, SIZE, "wrong_dtype", "has type U8 where I8 is needed");
    check_refused(&of("SCB", OtherDtype::U8), SIZE, "missing_linear", "`layer`");
}

#[test]
fn packed_fused_tensors_are_cut_by_columns() {
    for tensors in [exl2(), gptq(RowOrder::Shuffled)] {
        let (_dir, checkpoint) = open(&tensors);
        let values = |linear: Linear<'_>| match linear {
            Linear::Exl2(linear) => linear.dequantize(),
            Linear::Gptq(linear) => linear.dequantize(),
            _ => panic!("a packed linear"),
        };
        let part = |rows| {
            let fused = Some(FusedPart { base: "layer", total_out: 64, rows, step: 1, slab: None });
            load_linear(&checkpoint, &LinearRequest { fused, ..request(&[], 160, 24) })
        };
        let whole = values(load(&checkpoint, SIZE).unwrap());
        let cut = part(&[48..64, 8..16]).unwrap();
        assert_eq!((cut.out_features(), cut.columns()), (24, 64));
        let columns = || (48..64).chain(8..16);
        let expected: Vec<f16> =
            whole.chunks_exact(64).flat_map(|row| columns().map(|col| row[col])).collect();
        assert_eq!(values(cut), expected);
        let error = part(&[0..12, 20..32]).unwrap_err();
        assert!(error.to_string().contains("multiples of 8 columns"), "{error}");
        assert_eq!(part(&[40..48, 56..72]).unwrap_err().code(), "fused_split");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() })]

    #[test]
    fn damaged_tables_load_or_are_refused(
        which in 0usize..9,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        reshape in prop::option::of((0usize..30, 0usize..70)),
    ) {
        let mut tensors = [exl2(), gptq(RowOrder::Shuffled)].concat();
        let tensor = &mut tensors[which];
        if let Some((rows, columns)) = reshape {
            *tensor = Tensor::zeros(&tensor.name, tensor.dtype, &[rows, columns]);
        }
        for (at, value) in damage {
            if !tensor.data.is_empty() {
                let at = at.index(tensor.data.len());
                tensor.data[at] = value;
            }
        }
        let (exl2, gptq) = tensors.split_at(5);
        for tensors in [exl2, gptq] {
            let (_dir, checkpoint) = open(tensors);
            match load(&checkpoint, SIZE) {
                Ok(Linear::Exl2(linear)) => prop_assert_eq!(linear.dequantize().len(), 160 * 64),
                Ok(Linear::Gptq(linear)) => prop_assert_eq!(linear.dequantize().len(), 160 * 64),
                Ok(_) => prop_assert!(false),
                Err(error) => prop_assert!(error.to_string().contains("layer")),
            }
        }
    }
}
