//! Group tables: real ones, each way to be wrong, and arbitrary bytes.

use proptest::prelude::*;

use super::*;
use crate::exl2::pack;

fn bytes(table: &[i16]) -> Vec<u8> {
    table.iter().flat_map(|entry| entry.to_le_bytes()).collect()
}

/// Parses a table with ceilings of one.
fn parse_ones(table: &[i16], word_rows: usize) -> Result<Vec<Exl2Group>, GroupTableError> {
    parse(&bytes(table), &f16::ONE.to_le_bytes().repeat(table.len() / 2), word_rows)
}

/// Groups as `(bits, rows)`.
fn sizes(groups: &[Exl2Group]) -> Vec<(u8, usize)> {
    groups.iter().map(|group| (group.bits, group.rows)).collect()
}

#[test]
fn the_last_group_takes_what_is_left() {
    // 11008 rows: 18 groups of 32 at 8 bits, 9 of 128 at 4, 72 of 128 at 3 and one of 64.
    let mut wanted = vec![(8, 32); 18];
    wanted.extend([(4, 128); 9]);
    wanted.extend([(3, 128); 72]);
    wanted.push((3, 64));
    let table = pack::group_table(&wanted).unwrap();
    let groups = parse_ones(&table, 1158).unwrap();
    assert_eq!(sizes(&groups), wanted);
    let last = groups.last().unwrap();
    assert_eq!(last.first_row + last.rows, 11008);
    assert_eq!(last.first_word + last.words(), 1158);
}

#[test]
fn one_group_and_mixed_sizes_are_fine() {
    assert_eq!(sizes(&parse_ones(&[5, 0], 5).unwrap()), [(5, 32)]);
    let wanted = [(6, 32), (5, 64), (4, 128), (4, 32), (2, 64)];
    let table = pack::group_table(&wanted).unwrap();
    assert_eq!(sizes(&parse_ones(&table, 6 + 10 + 16 + 4 + 4).unwrap()), wanted);
}

#[test]
fn every_contradiction_has_its_own_error() {
    use GroupTableError::*;
    let start = |group, begin, end, word_rows| Start { group, begin, end, word_rows };
    for (table, word_rows, expected) in [
        (vec![], 4, Length { table_bytes: 0, ceilings: 0 }),
        (vec![4, 0, 4], 4, Length { table_bytes: 6, ceilings: 1 }),
        (vec![7, 0], 7, Width { group: 0, bits: 7 }),
        (vec![0, 0], 4, Width { group: 0, bits: 0 }),
        (vec![-4, 0], 4, Width { group: 0, bits: 0xfffc }),
        (vec![4, 0, 5, 4], 9, Order { group: 1 }),
        (vec![4, 4], 8, start(0, 4, 8, 8)),
        (vec![4, 0, 4, 0], 8, start(0, 0, 0, 8)),
        (vec![4, 0, 4, 8, 4, 4], 12, start(1, 8, 4, 12)),
        (vec![4, 0, 4, 8], 8, start(1, 8, 8, 8)),
        (vec![4, 0, 4, 12], 8, start(0, 0, 12, 8)),
        (vec![4, 0, 4, -4], 8, start(0, 0, 0xfffc, 8)),
        (vec![4, 0], 0, start(0, 0, 0, 0)),
        (vec![4, 0], 5, Rows { group: 0, words: 5, bits: 4 }),
        (vec![3, 0], 2, Rows { group: 0, words: 2, bits: 3 }),
        (vec![2, 0, 2, 1], 4, Rows { group: 0, words: 1, bits: 2 }),
    ] {
        assert_eq!(parse_ones(&table, word_rows), Err(expected), "{table:?} of {word_rows}");
    }
}

#[test]
fn ceilings_are_finite_and_not_negative() {
    for bad in [f16::NAN, f16::INFINITY, f16::NEG_INFINITY, f16::from_f32(-1e-3)] {
        let error = parse(&bytes(&[4, 0]), &bad.to_le_bytes(), 4).unwrap_err();
        assert!(matches!(error, GroupTableError::Ceiling { group: 0, .. }), "{error}");
    }
    for good in [f16::ZERO, f16::NEG_ZERO, f16::MIN_POSITIVE_SUBNORMAL, f16::MAX] {
        assert!(parse(&bytes(&[4, 0]), &good.to_le_bytes(), 4).is_ok());
    }
}

proptest! {
    #[test]
    fn any_bytes_are_refused_or_give_groups_that_tile(
        table in prop::collection::vec(any::<u8>(), 0..40),
        ceilings in prop::collection::vec(any::<u8>(), 0..20),
        word_rows in prop_oneof![0usize..100, Just(usize::MAX), any::<usize>()],
    ) {
        check_tiling(&table, &ceilings, word_rows)?;
    }

    #[test]
    fn a_damaged_table_is_refused_or_still_tiles(
        at in 0usize..40,
        value in any::<u8>(),
        word_rows in 30usize..50,
    ) {
        let wanted = [(8, 32), (6, 32), (5, 32), (4, 64), (3, 32), (3, 64), (2, 32), (2, 32)];
        let mut table = bytes(&pack::group_table(&wanted).unwrap());
        if let Some(byte) = table.get_mut(at) {
            *byte = value;
        }
        check_tiling(&table, &f16::ONE.to_le_bytes().repeat(8), word_rows)?;
    }
}

fn check_tiling(table: &[u8], ceilings: &[u8], word_rows: usize) -> Result<(), TestCaseError> {
    let Ok(groups) = parse(table, ceilings, word_rows) else { return Ok(()) };
    let (mut row, mut word) = (0, 0);
    for group in groups {
        prop_assert_eq!((group.first_row, group.first_word), (row, word));
        prop_assert!(group.rows > 0 && group.rows.is_multiple_of(32));
        prop_assert!(group.scale_max.is_finite());
        row += group.rows;
        word += group.words();
    }
    prop_assert_eq!(word, word_rows);
    Ok(())
}
