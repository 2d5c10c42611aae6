//! Exact weights of GPTQ: the worked matrix with and without activation order, zero points.

use half::f16;
use sha2::{Digest, Sha256};

use crate::dtype::Dtype;
use crate::gptq::{GptqLinear, ScaleMatrix};
use crate::linear::Columns;
use crate::registry::LinearKind;
use crate::words::WordMatrix;

fn sha256(values: &[f16]) -> String {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `K = 64`, `N = 8`, two groups of 32 rows; hands the linear to `check`.
fn with_worked_matrix(group_of_row: Vec<u32>, zero_offset: u8, check: impl Fn(GptqLinear<'_>)) {
    let words = (0..64u32).map(|at| at.wrapping_mul(2_654_435_761).wrapping_add(12345));
    let words: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
    let zeros: Vec<u8> =
        [0x7654_3210u32, 0xfedc_ba98].into_iter().flat_map(u32::to_le_bytes).collect();
    let scale = |at: u32| f16::from_f64(0.001 * f64::from(1 + at % 8) + 0.01 * f64::from(at / 8));
    let scales: Vec<u8> = (0..16).flat_map(|at| scale(at).to_le_bytes()).collect();
    check(GptqLinear {
        kind: LinearKind::Gptq,
        name: "test".to_owned(),
        bits: 4,
        in_features: 64,
        out_features: 8,
        columns: Columns::first(8, 8).unwrap(),
        groups: 2,
        group_rows: None,
        group_of_row,
        words: WordMatrix::new(&words, 8, 8).unwrap().into(),
        zeros: WordMatrix::new(&zeros, 2, 1).unwrap().into(),
        zero_offset,
        stored_zeros: true,
        scales: ScaleMatrix::new(&scales, 2, 8, Dtype::F16).unwrap(),
        rounded: false,
        bias: None,
        tensors: Vec::new(),
    });
}

fn check_rows(weights: &[f16], rows: &[(usize, [u16; 8])]) {
    for (row, expected) in rows {
        let bits: Vec<u16> = weights[row * 8..row * 8 + 8].iter().map(|w| w.to_bits()).collect();
        assert_eq!(bits, expected, "row {row}");
    }
}

#[test]
fn consecutive_groups_decode_bit_for_bit() {
    with_worked_matrix((0..64).map(|row| row / 32).collect(), 1, |linear| {
        let weights = linear.dequantize();
        check_rows(
            &weights,
            &[
                (0, [0x2019, 0x2419, 0x2625, 0x2819, 0x291f, 0x2a25, 0x2b2b, 0xac19]),
                (7, [0x9419, 0x232c, 0x0000, 0x289c, 0x211f, 0xa7ae, 0x272b, 0xa626]),
                (31, [0x2226, 0x211f, 0x9e25, 0x2626, 0x9d1f, 0x2a25, 0x1f2b, 0xaa26]),
                (32, [0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0xb49c]),
                (63, [0x0000, 0xad60, 0x26a8, 0xac7b, 0xb1c2, 0xaa26, 0xb170, 0xa89c]),
            ],
        );
        let expected = "c8ad666998c46fae72bb91892ad242779915c944d1764347b7ac29fe3e3ba560";
        assert_eq!(sha256(&weights), expected);
    });
}

#[test]
fn activation_order_decodes_bit_for_bit() {
    with_worked_matrix((0..64).map(|row| row >> 1 & 1).collect(), 1, |linear| {
        let weights = linear.dequantize();
        check_rows(
            &weights,
            &[
                (2, [0xae56, 0xa225, 0xaea8, 0x232b, 0xaeb8, 0xb32c, 0xad70, 0xb2ea]),
                (3, [0xac3a, 0x0000, 0xaf7d, 0xa960, 0xb1c2, 0xad1f, 0xb414, 0xb09c]),
            ],
        );
        let expected = "ef7ea4e607d85bed0179a56671e341723eed96b9ea57dd9d6c9fa50e897d6dc5";
        assert_eq!(sha256(&weights), expected);
    });
}

#[test]
fn a_stored_zero_of_fifteen_means_sixteen_and_v2_takes_it_as_it_is() {
    with_worked_matrix(vec![0; 64], 1, |linear| {
        assert_eq!(
            (0..8).map(|col| linear.zero(0, col)).collect::<Vec<_>>(),
            [1, 2, 3, 4, 5, 6, 7, 8]
        );
        assert_eq!(linear.zero(1, 7), 16);
    });
    with_worked_matrix(vec![0; 64], 0, |linear| {
        assert_eq!((linear.zero(0, 0), linear.zero(1, 7)), (0, 15));
    });
}
