//! Exact weights: the worked layer, and properties of random ones.

use half::f16;
use proptest::prelude::*;
use sha2::{Digest, Sha256};

use crate::exl2::pack::{Exl2Tensors, GroupCodes};
use crate::exl2::{Exl2Linear, groups, scale};
use crate::linear::{Columns, Linear};
use crate::synthetic;
use crate::words::WordMatrix;

/// SHA-256 of little-endian binary16 values, in hex.
fn sha256(values: &[f16]) -> String {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn view<'a>(tensors: &'a Exl2Tensors, perm: &[u32]) -> Exl2Linear<'a> {
    let columns = tensors.columns;
    let word_rows = tensors.q_weight.len() / columns / 4;
    let groups = groups::parse(&tensors.q_groups, &tensors.q_scale_max, word_rows).unwrap();
    Exl2Linear {
        name: "test".to_owned(),
        in_features: perm.len(),
        out_features: columns,
        columns: Columns::first(columns, columns).unwrap(),
        words: WordMatrix::new(&tensors.q_weight, word_rows, columns).unwrap(),
        scales: WordMatrix::new(&tensors.q_scale, groups.len(), columns / 8).unwrap(),
        groups,
        perm: perm.to_vec(),
        bias: None,
        tensors: Vec::new(),
    }
}

/// `K = 160`, `N = 8`, five groups of 32 rows with 8, 5, 4, 3 and 2 bits.
fn worked_layer() -> (Exl2Tensors, Vec<u32>) {
    let words = (0..22 * 8u32).map(|at| at.wrapping_mul(2_654_435_761).wrapping_add(12345));
    let scales = (1..=5u32).map(|group| group.wrapping_mul(0x9e37_79b9));
    let tensors = Exl2Tensors {
        columns: 8,
        q_weight: words.flat_map(u32::to_le_bytes).collect(),
        q_scale: scales.flat_map(u32::to_le_bytes).collect(),
        q_scale_max: [0x135fu16, 0x1c19, 0x224c, 0x251f, 0x2a66]
            .into_iter()
            .flat_map(u16::to_le_bytes)
            .collect(),
        q_groups: [8i16, 0, 5, 8, 4, 13, 3, 17, 2, 20]
            .into_iter()
            .flat_map(i16::to_le_bytes)
            .collect(),
        q_invperm: (0..160i32).flat_map(|i| ((37 * i + 11) % 160).to_le_bytes()).collect(),
    };
    let mut perm = vec![0; 160];
    for i in 0..160u32 {
        perm[(37 * i as usize + 11) % 160] = i;
    }
    (tensors, perm)
}

#[test]
fn the_worked_layer_decodes_bit_for_bit() {
    let (tensors, perm) = worked_layer();
    assert_eq!(perm[..6], [17, 30, 43, 56, 69, 82]);
    let linear = view(&tensors, &perm);
    let weights = linear.dequantize();
    for (row, expected) in [
        (0, [0x2875, 0x1026, 0xa85e, 0x2325, 0xa026, 0x1f08, 0x24dc, 0xa6a9]),
        (1, [0x12e8, 0x9a24, 0x99a1, 0x2a24, 0x2332, 0x9bd6, 0xa864, 0x191e]),
        (31, [0x95c2, 0xa018, 0x8c18, 0x1c18, 0x2332, 0x1fd6, 0x2864, 0x9aa7]),
        (80, [0xab16, 0x0000, 0x2c38, 0x98d2, 0x233b, 0xa1f4, 0x2877, 0xa73b]),
        (159, [0x28e6, 0x2500, 0x0a66, 0x0000, 0x0000, 0x9266, 0xa266, 0x9266u16]),
    ] {
        let bits: Vec<u16> = weights[row * 8..row * 8 + 8].iter().map(|w| w.to_bits()).collect();
        assert_eq!(bits, expected, "row {row}");
    }
    assert_eq!(
        sha256(&weights),
        "3d761add7ed3e415cf6cd5d26eab33d995cffbbbd4c90951c029b0603030c4a8"
    );
    let sum: f64 = weights.iter().map(|w| w.to_f64()).sum();
    let magnitude: f64 = weights.iter().map(|w| w.to_f64().abs()).sum();
    assert_eq!((sum, magnitude), (-4.157810807228088, 22.384225726127625));
}

/// `y[n] = Σ_k x[k] · W[k, n]` in f64, over 8 columns.
fn multiply(x: &[f64], weights: &[f16]) -> [f64; 8] {
    let mut y = [0.0; 8];
    for (x, row) in x.iter().zip(weights.chunks_exact(8)) {
        for (y, w) in y.iter_mut().zip(row) {
            *y += x * w.to_f64();
        }
    }
    y
}

#[test]
fn packed_rows_times_gathered_inputs_give_the_same_product() {
    let (tensors, perm) = worked_layer();
    let linear = view(&tensors, &perm);
    let x: Vec<f64> = (0..160).map(|i| f64::from(i % 7 - 3)).collect();
    let gathered: Vec<f64> = perm.iter().map(|row| x[*row as usize]).collect();
    // Small integers times binary16: every partial sum is exact, so the order does not matter.
    let expected = [
        0.48970067501068115,
        -0.6700534820556641,
        -0.4854469299316406,
        -0.9308700561523438,
        -0.5213279724121094,
        0.46843767166137695,
        -0.3032231330871582,
        -0.5320014953613281,
    ];
    assert_eq!(multiply(&x, &linear.dequantize()), expected);
    assert_eq!(multiply(&gathered, &linear.dequantize_packed()), expected);
}

/// A mix of all widths with group sizes whose borders are not multiples of 128.
const MIX: &[(u8, f32, usize)] =
    &[(8, 0.1, 32), (6, 0.1, 64), (5, 0.2, 128), (4, 0.2, 32), (3, 0.2, 128), (2, 0.2, 64)];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn groups_are_bounded_and_have_few_values(rows in 6usize..20, seed in any::<u64>()) {
        let owned = synthetic::exl2(rows * 32, 16, MIX, seed);
        let Linear::Exl2(linear) = owned.view() else { unreachable!() };
        let weights = linear.dequantize_packed();
        for (index, group) in linear.groups.iter().enumerate() {
            let step = scale::group_step(group.scale_max, 1.0).to_f32();
            let half = f32::from(1u16 << (group.bits - 1));
            let bound = half * f16::from_f32(256.0 * step).to_f32();
            let rows = weights.chunks_exact(16).skip(group.first_row).take(group.rows);
            for col in 0..16 {
                let scale = linear.group_scale(index, col).to_f32();
                for weight in rows.clone().map(|row| row[col].to_f32()) {
                    prop_assert!(weight.abs() <= bound);
                    let level = (weight / scale).round();
                    prop_assert!((-half..half).contains(&level));
                    prop_assert_eq!(f16::from_f32(level * scale).to_f32(), weight);
                }
            }
        }
    }

    #[test]
    fn doubling_a_normal_ceiling_doubles_every_weight(
        codes in prop::collection::vec(0u8..16, 32 * 8),
        scale_codes in prop::collection::vec(0u8..16, 8),
        ceiling in 1.0f32..1000.0,
    ) {
        let perm: Vec<u32> = (0..32).collect();
        let weights = |scale_max: f32| {
            let group =
                GroupCodes { bits: 4, codes: &codes, scale_codes: &scale_codes, scale_max: f16::from_f32(scale_max) };
            view(&Exl2Tensors::pack(8, &[group], &perm).unwrap(), &perm).dequantize()
        };
        let ceiling = f16::from_f32(ceiling).to_f32();
        for (once, twice) in weights(ceiling).into_iter().zip(weights(2.0 * ceiling)) {
            prop_assert_eq!(2.0 * once.to_f32(), twice.to_f32());
        }
    }

    #[test]
    fn permuting_rows_with_their_order_leaves_the_matrix_alone(
        codes in prop::collection::vec(0u8..8, 64 * 8),
        scale_codes in prop::collection::vec(0u8..16, 8),
        perm in Just((0..64u32).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let group = |codes| GroupCodes { bits: 3, codes, scale_codes: &scale_codes, scale_max: f16::ONE };
        let identity: Vec<u32> = (0..64).collect();
        let plain = Exl2Tensors::pack(8, &[group(&codes[..])], &identity).unwrap();
        let moved: Vec<u8> =
            perm.iter().flat_map(|row| codes[*row as usize * 8..][..8].to_vec()).collect();
        let permuted = Exl2Tensors::pack(8, &[group(&moved[..])], &perm).unwrap();
        prop_assert_eq!(view(&plain, &identity).dequantize(), view(&permuted, &perm).dequantize());
    }
}
