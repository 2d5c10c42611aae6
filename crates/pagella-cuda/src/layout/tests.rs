//! Plans and strips of every kind: directories hold what they must, and the weights in the strips
//! are those of the format, bit for bit.

use half::{bf16, f16};
use pagella_formats::synthetic::{self, RowOrder};
use pagella_formats::{Columns, Dtype, Linear, PlainLinear};

use super::chunk::{block_bytes, record_bytes};
use super::*;

/// Checks what kernels rely on in a directory.
fn check_directory(plan: &T32Plan) {
    let segment_blocks = segment_rows(plan.k) / BLOCK_ROWS;
    let (mut block, mut offset, mut largest) = (0, 0, 0);
    for chunk in &plan.chunks {
        assert_eq!(usize::from(chunk.first_block), block);
        assert_eq!(chunk.offset16 as usize * 16, offset);
        let most = match chunk.bits {
            16 => 1,
            8 => 2,
            _ => 4,
        };
        assert!((1..=most).contains(&chunk.blocks), "{chunk:?}");
        assert_eq!(block / segment_blocks, usize::from(chunk.segment));
        block += usize::from(chunk.blocks);
        assert_eq!((block - 1) / segment_blocks, usize::from(chunk.segment));
        assert!(chunk.segment < 8);
        let records = &chunk.record[..usize::from(chunk.blocks)];
        assert!(records.is_sorted());
        assert_eq!(
            chunk.records,
            if plan.kind == LayoutKind::Plain { 0 } else { records[records.len() - 1] + 1 }
        );
        let bytes = usize::from(chunk.records) * record_bytes(plan.kind)
            + usize::from(chunk.blocks) * block_bytes(chunk.bits);
        assert_eq!(usize::from(chunk.bytes16) * 16, bytes);
        assert!(bytes.is_multiple_of(64));
        offset += bytes;
        largest = largest.max(bytes);
    }
    assert_eq!(block * BLOCK_ROWS, plan.k);
    assert_eq!((plan.strip_bytes as usize, plan.slot_bytes as usize), (offset, largest));
}

/// Plans, lays out, reads back and compares with `weights`, `[in_features, out_features]`.
fn check(linear: &Linear<'_>, weights: &[f16]) -> T32Plan {
    let plan = plan(linear).unwrap();
    check_directory(&plan);
    assert_eq!((plan.k_in, plan.n), (linear.in_features(), linear.out_features()));
    let strips = mirror::relayout(&plan, linear, 0);
    assert_eq!(strips.len(), plan.bytes());
    let found = mirror::dequantise(&plan, &strips);
    let width = STRIP_COLUMNS * plan.n_strips;
    let mut seen = vec![false; plan.k_in];
    for (packed, row) in found.chunks(width).enumerate() {
        let feature = plan.perm.as_ref().map_or(packed as u32, |perm| perm[packed]);
        let padding = feature == NO_ROW || feature as usize >= plan.k_in;
        let wanted = if padding {
            vec![f16::ZERO; plan.n]
        } else {
            assert!(!std::mem::replace(&mut seen[feature as usize], true), "{feature} twice");
            weights[feature as usize * plan.n..][..plan.n].to_vec()
        };
        for (column, value) in row.iter().enumerate() {
            let wanted = wanted.get(column).copied().unwrap_or(f16::ZERO);
            assert_eq!(value.to_bits(), wanted.to_bits(), "row {packed}, column {column}");
        }
    }
    assert!(seen.iter().all(|seen| *seen));
    plan
}

fn check_exl2(k: usize, n: usize, mix: &[(u8, f32, usize)], seed: u64) -> T32Plan {
    let owned = synthetic::exl2(k, n, mix, seed);
    let Linear::Exl2(linear) = owned.view() else { unreachable!() };
    check(&owned.view(), &linear.dequantize())
}

#[test]
fn exl2_of_every_width_and_group_keeps_its_weights() {
    for bits in [2, 3, 4, 5, 6, 8] {
        for (k, group, n) in [(32, 32, 32), (64, 64, 96), (160, 128, 32), (2048 + 96, 128, 41)] {
            let plan = check_exl2(k, n, &[(bits, 1.0, group)], k as u64 + u64::from(bits));
            assert_eq!((plan.kind, plan.k), (LayoutKind::Exl2, k));
        }
        check_exl2(320, 64, &[(bits, 1.0, 32)], 9);
    }
}

#[test]
fn exl2_of_mixed_widths_keeps_its_weights() {
    let mix: &[(u8, f32, usize)] =
        &[(8, 0.1, 32), (6, 0.1, 128), (5, 0.2, 64), (4, 0.3, 128), (3, 0.2, 64), (2, 0.1, 32)];
    let plan = check_exl2(1536, 96, mix, 3);
    let widths: std::collections::BTreeSet<u8> =
        plan.chunks.iter().map(|chunk| chunk.bits).collect();
    assert_eq!(widths.into_iter().collect::<Vec<_>>(), [2, 3, 4, 5, 6, 8]);
    check_exl2(2048 + 160, 33, mix, 4);
}

#[test]
fn chunks_end_with_groups_where_segments_allow() {
    // Segments of 448 rows cut every other group of 128.
    let plan = check_exl2(3584, 32, &[(4, 1.0, 128)], 5);
    assert_eq!(segment_rows(3584), 448);
    let second: Vec<_> = plan.chunks.iter().filter(|chunk| chunk.segment == 1).collect();
    assert_eq!(second.iter().map(|chunk| chunk.blocks).collect::<Vec<_>>(), [2, 4, 4, 4]);
    assert!(second.iter().all(|chunk| chunk.records == 1));
    // The usual case: a record and four blocks per chunk.
    let plan = check_exl2(4096, 32, &[(4, 1.0, 128)], 6);
    assert_eq!((plan.chunks.len(), plan.slot_bytes), (32, 64 + 4 * 512));
    let plan = check_exl2(512, 32, &[(4, 1.0, 32)], 6);
    assert_eq!((plan.chunks[0].blocks, plan.chunks[0].records), (2, 2), "segments of 64 rows");
}

#[test]
fn parts_of_a_packed_tensor_take_their_columns() {
    let owned = synthetic::exl2(64, 96, &[(5, 1.0, 32)], 8);
    let Linear::Exl2(mut linear) = owned.view() else { unreachable!() };
    linear.columns = Columns::new(96, vec![40..64, 8..24]).unwrap();
    linear.out_features = 40;
    let weights = linear.dequantize();
    let plan = check(&Linear::Exl2(linear), &weights);
    assert_eq!(plan.columns.unwrap()[22..26], [62, 63, 8, 9]);
}

#[test]
fn gptq_keeps_its_weights_in_any_row_order() {
    for order in [RowOrder::Sequential, RowOrder::Shuffled] {
        for (k, n, group) in
            [(32, 32, 32), (160, 40, 32), (2176, 96, 128), (1024, 8, 1024), (192, 40, 64)]
        {
            let owned = synthetic::gptq(k, n, group, order, k as u64);
            let Linear::Gptq(mut linear) = owned.view() else { unreachable!() };
            let plan = check(&owned.view(), &linear.dequantize());
            let reordered = order == RowOrder::Shuffled && group < k;
            assert_eq!((plan.kind, plan.perm.is_some()), (LayoutKind::Gptq, reordered));
            let second = (linear.groups > 1).then(|| linear.scale(1, 1).to_bits());
            assert_eq!(gptq_scales(&linear).get(n + 1).copied(), second);
            linear.zero_offset = 0;
            let weights = linear.dequantize();
            check(&Linear::Gptq(linear), &weights);
        }
    }
}

#[test]
fn gptq_groups_that_do_not_fill_blocks_become_plain() {
    for (k, n, group) in [(48, 16, 16), (40, 32, 8), (96, 40, 48), (144, 8, 144)] {
        for order in [RowOrder::Sequential, RowOrder::Shuffled] {
            let owned = synthetic::gptq(k, n, group, order, 2);
            let Linear::Gptq(linear) = owned.view() else { unreachable!() };
            let plan = check(&owned.view(), &linear.dequantize());
            assert_eq!(plan.kind, LayoutKind::Plain);
            assert_eq!((plan.k, plan.perm), (k.next_multiple_of(32), None));
        }
    }
}

/// Values from tiny to large, of both signs.
fn values(len: usize, scale: f32) -> Vec<f32> {
    (0..len as u32)
        .map(|i| {
            let random = i.wrapping_mul(2_654_435_761) >> 8;
            let value = (random as f32 / (1 << 23) as f32 - 1.0) * scale;
            if i % 7 == 0 { value * 1e-5 } else { value }
        })
        .collect()
}

/// A plain linear with `ranges` of outputs over `data`.
fn plain_linear(
    (k, n): (usize, usize),
    dtype: Dtype,
    transposed: bool,
    data: &[u8],
    ranges: Vec<std::ops::Range<usize>>,
) -> PlainLinear<'_> {
    PlainLinear {
        name: "plain".to_owned(),
        in_features: k,
        out_features: ranges.iter().map(ExactSizeIterator::len).sum(),
        dtype,
        transposed,
        data,
        stride: if transposed { n } else { k },
        ranges,
        bias: None,
        tensors: Vec::new(),
    }
}

#[test]
fn plain_f16_is_copied_whatever_its_orientation() {
    for (k, n) in [(32, 32), (33, 7), (160, 96), (2080, 40)] {
        let data: Vec<u8> = values(k * n, 100.0)
            .into_iter()
            .flat_map(|value| f16::from_f32(value).to_le_bytes())
            .collect();
        for transposed in [false, true] {
            for ranges in [vec![std::ops::Range { start: 0, end: n }], vec![3..n, 0..2]] {
                let linear = plain_linear((k, n), Dtype::F16, transposed, &data, ranges);
                let weights: Vec<f16> =
                    linear.dequantize().into_iter().map(f16::from_f32).collect();
                let plan = check(&Linear::Plain(linear), &weights);
                assert_eq!((plan.k, plan.perm), (k.next_multiple_of(32), None));
            }
        }
    }
}

/// The weights of scaled strips, parts added, `[k_in][n]`.
fn scaled_weights(linear: &PlainLinear<'_>) -> (T32Plan, i32, Vec<f64>) {
    let largest = linear.dequantize().into_iter().fold(0.0f32, |a, b| a.max(b.abs()));
    let exponent = exponent(largest.to_bits());
    let linear = Linear::Plain(linear.clone());
    let plan = plan(&linear).unwrap();
    check_directory(&plan);
    let found = mirror::dequantise(&plan, &mirror::relayout(&plan, &linear, exponent));
    let mut weights = vec![0.0; plan.k_in * plan.n];
    for (packed, row) in found.chunks(STRIP_COLUMNS * plan.n_strips).enumerate() {
        let feature = plan.perm.as_ref().map_or(packed as u32, |perm| perm[packed]) as usize;
        for (column, value) in row.iter().enumerate() {
            assert!(value.to_f32().abs() < 32768.1);
            if feature < plan.k_in && column < plan.n {
                weights[feature * plan.n + column] +=
                    f64::from(value.to_f32()) * f64::from(power_of_two(exponent));
            } else {
                assert_eq!(value.to_bits(), 0);
            }
        }
    }
    (plan, exponent, weights)
}

#[test]
fn bf16_is_exact_over_32_binades_and_f32_to_22_bits() {
    for scale in [1e-6, 0.02, 3.0, 1e9] {
        for transposed in [false, true] {
            let (k, n) = (100, 40);
            let values = values(k * n, scale);
            let bf16s: Vec<u8> =
                values.iter().flat_map(|v| bf16::from_f32(*v).to_le_bytes()).collect();
            let all = || vec![std::ops::Range { start: 0, end: n }];
            let linear = plain_linear((k, n), Dtype::BF16, transposed, &bf16s, all());
            let (plan, exponent, weights) = scaled_weights(&linear);
            assert_eq!((plan.k, plan.perm), (128, None));
            let wanted = linear.dequantize();
            assert!(weights.iter().zip(&wanted).all(|(w, v)| *w == f64::from(*v)), "{exponent}");

            let f32s: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            let linear = plain_linear((k, n), Dtype::F32, transposed, &f32s, all());
            let (plan, exponent, weights) = scaled_weights(&linear);
            assert_eq!(plan.k, 256);
            // The lower part has 11 bits more, and no finer step than 2^-25 of the scaled weight.
            let step = f64::from(power_of_two(exponent)) * 2f64.powi(-25);
            for (weight, wanted) in weights.iter().zip(linear.dequantize()) {
                let error = (weight - f64::from(wanted)).abs();
                assert!(error <= (f64::from(wanted).abs() * 2f64.powi(-22)).max(step));
            }
        }
    }
}

#[test]
fn exponents_bring_the_largest_weight_just_below_2_to_the_15() {
    for largest in [1.0f32, 0.99, 65504.0, 3e38, 1e-20, f32::MIN_POSITIVE] {
        let e = exponent(largest.to_bits());
        let scaled = largest * power_of_two(-e);
        assert!((16384.0..32768.0).contains(&scaled) || e == -112, "{largest}: {scaled}");
        assert_eq!(power_of_two(e) * power_of_two(-e), 1.0);
    }
    assert_eq!(power_of_two(exponent(0)) * power_of_two(-exponent(0)), 1.0);
}

#[test]
fn what_cannot_be_counted_is_refused() {
    let data = vec![0; 64];
    let mut linear = plain_linear((1, 32), Dtype::F16, false, &data, vec![]);
    assert!(plan(&Linear::Plain(linear.clone())).is_err());
    linear.out_features = 32;
    linear.in_features = 1 << 21;
    let error = plan(&Linear::Plain(linear)).unwrap_err();
    assert!(error.to_string().contains("2097152 inputs"), "{error}");
}
