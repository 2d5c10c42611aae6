//! Packing against worked examples, and both ways over random codes.

use half::f16;
use proptest::prelude::*;
use serde::Deserialize;

use super::*;
use crate::exl2::scale;

/// `testdata/packing/exl2_columns.json`.
#[derive(Deserialize)]
struct Columns {
    scale_max: String,
    scale_code: u8,
    cases: Vec<Column>,
}

#[derive(Deserialize)]
struct Column {
    bits: u8,
    codes: Vec<u8>,
    words: Vec<String>,
    weights: String,
}

fn hex(text: &str) -> u32 {
    u32::from_str_radix(text, 16).unwrap()
}

#[test]
fn worked_columns_of_every_width_pack_unpack_and_decode() {
    let text = include_str!("../../../../../testdata/packing/exl2_columns.json");
    let columns: Columns = serde_json::from_str(text).unwrap();
    let step = scale::group_step(f16::from_bits(hex(&columns.scale_max) as u16), 1.0);
    let column_scale = scale::column_scale(columns.scale_code, step);
    assert_eq!(columns.cases.iter().map(|case| case.bits).collect::<Vec<_>>(), [2, 3, 4, 5, 6, 8]);
    for Column { bits, codes, words, weights } in columns.cases {
        let words: Vec<u32> = words.iter().map(|word| hex(word)).collect();
        assert_eq!(pack_codes(&codes, 32, 1, bits).unwrap(), words, "{bits} bits");
        assert_eq!(unpack_codes(&words, 32, 1, bits).unwrap(), codes, "{bits} bits");
        let decoded: Vec<u32> = codes
            .iter()
            .map(|code| scale::weight(u32::from(*code), bits, column_scale).to_bits().into())
            .collect();
        assert_eq!(decoded, weights.split(' ').map(hex).collect::<Vec<_>>(), "{bits} bits");
    }
}

#[test]
fn codes_straddle_words_exactly_where_the_format_says() {
    // Width, index inside the unit, low bits in the earlier word, high bits in the next.
    let straddling: &[(u8, usize, u32, u32)] = &[
        (3, 10, 2, 1),
        (3, 21, 1, 2),
        (5, 6, 2, 3),
        (5, 12, 4, 1),
        (5, 19, 1, 4),
        (5, 25, 3, 2),
        (6, 5, 2, 4),
        (6, 10, 4, 2),
        (6, 21, 2, 4),
        (6, 26, 4, 2),
    ];
    for bits in WIDTHS {
        for index in 0..32 {
            let mut codes = [0u8; 32];
            codes[index] = u8::MAX >> (8 - bits);
            let words = pack_codes(&codes, 32, 1, bits).unwrap();
            let touched: Vec<u32> = words.into_iter().filter(|word| *word != 0).collect();
            let expected = straddling.iter().find(|case| (case.0, case.1) == (bits, index));
            match (expected, touched.as_slice()) {
                (Some((_, _, low, high)), [earlier, next]) => {
                    assert_eq!(*earlier, !0 << (32 - low), "{bits} bits, code {index}");
                    assert_eq!(*next, (1 << high) - 1, "{bits} bits, code {index}");
                }
                (None, [word]) => assert_eq!(word.count_ones(), u32::from(bits)),
                _ => panic!("{bits} bits, code {index}: {touched:x?}"),
            }
        }
    }
}

#[test]
fn bits_run_down_the_rows_and_stay_in_their_column() {
    for bits in WIDTHS {
        let zero = 1u8 << (bits - 1);
        let mut codes = vec![zero; 32 * 8];
        let blank = pack_codes(&codes, 32, 8, bits).unwrap();
        codes.iter_mut().skip(3).step_by(8).for_each(|code| *code = 1);
        let words = pack_codes(&codes, 32, 8, bits).unwrap();
        for (at, (word, blank)) in words.iter().zip(&blank).enumerate() {
            assert_eq!(word == blank, at % 8 != 3, "{bits} bits, word {at}");
        }
    }
}

#[test]
fn what_cannot_be_packed_is_refused() {
    assert_eq!(pack_codes(&[0; 32], 32, 1, 7), Err(PackError::Width { bits: 7 }));
    assert_eq!(pack_codes(&[0; 16], 16, 1, 2), Err(PackError::Rows { rows: 16 }));
    assert_eq!(pack_codes(&[], 0, 1, 2), Err(PackError::Rows { rows: 0 }));
    assert_eq!(pack_codes(&[0; 31], 32, 1, 2), Err(PackError::Length { expected: 32, found: 31 }));
    assert_eq!(pack_codes(&[4; 32], 32, 1, 2), Err(PackError::Code { code: 4, bits: 2 }));
    assert_eq!(unpack_codes(&[0; 3], 32, 2, 3), Err(PackError::Length { expected: 6, found: 3 }));
    assert_eq!(pack_nibbles(&[16; 8]), Err(PackError::Code { code: 16, bits: 4 }));
    assert_eq!(pack_nibbles(&[1; 7]), Err(PackError::Length { expected: 8, found: 7 }));
    assert_eq!(group_table(&[(4, 32), (5, 32)]), Err(PackError::Table { group: 1 }));
    assert_eq!(group_table(&[(8, 131_072), (8, 32)]), Err(PackError::Table { group: 1 }));
    assert_eq!(inverse_permutation(&[0, 2, 2]), Err(PackError::Permutation { index: 2 }));
    assert_eq!(inverse_permutation(&[0, u32::MAX]), Err(PackError::Permutation { index: 1 }));
}

#[test]
fn the_table_counts_word_rows() {
    let groups = [(8, 32), (5, 32), (4, 32), (3, 32), (2, 32)];
    assert_eq!(group_table(&groups).unwrap(), [8, 0, 5, 8, 4, 13, 3, 17, 2, 20]);
    assert_eq!(pack_nibbles(&[0, 1, 2, 3, 4, 5, 6, 7]).unwrap(), [0x7654_3210]);
    assert_eq!(inverse_permutation(&[2, 0, 1]).unwrap(), [1, 2, 0]);
}

proptest! {
    #[test]
    fn packing_is_a_bijection(
        bits in prop::sample::select(WIDTHS.to_vec()),
        units in 1usize..5,
        columns in 1usize..5,
        seed in any::<[u8; 32]>(),
    ) {
        let rows = units * 32;
        let random = |at: usize| seed[at % 32].wrapping_mul(at as u8 | 1).rotate_left(at as u32 / 7);
        let codes: Vec<u8> = (0..rows * columns).map(|at| random(at) >> (8 - bits)).collect();
        let words = pack_codes(&codes, rows, columns, bits).unwrap();
        prop_assert_eq!(words.len(), rows * usize::from(bits) / 32 * columns);
        prop_assert_eq!(&unpack_codes(&words, rows, columns, bits).unwrap(), &codes);
        let words: Vec<u32> =
            words.iter().enumerate().map(|(at, word)| word ^ u32::from(random(at)) << 13).collect();
        let codes = unpack_codes(&words, rows, columns, bits).unwrap();
        prop_assert_eq!(pack_codes(&codes, rows, columns, bits).unwrap(), words);
    }

    #[test]
    fn nibbles_survive_a_round_trip(words in prop::collection::vec(any::<u32>(), 0..20)) {
        prop_assert_eq!(pack_nibbles(&unpack_nibbles(&words)).unwrap(), words);
    }
}
