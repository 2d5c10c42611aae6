//! The scale search against values computed in numpy.

use pagella_formats::exl2::scale;

use super::*;
use crate::scale::exact_scales;

/// 32 rows of 8 columns of growing size.
fn weights() -> Vec<f32> {
    let element = |row: u32, column: u32| {
        let hash = (row * 8 + column + 1).wrapping_mul(0x9e37_79b1);
        let uniform = f64::from(hash) / 4_294_967_296.0 - 0.5;
        (uniform * 0.1 * f64::from(column + 1) / 8.0) as f32
    };
    (0..32).flat_map(|row| (0..8).map(move |column| element(row, column))).collect()
}

/// The same columns, filled up with zeros to a whole vector.
fn padded(weights: &[f32]) -> Vec<f32> {
    let row = |row: &[f32]| row.iter().copied().chain([0.0; 8]).collect::<Vec<f32>>();
    weights.chunks_exact(8).flat_map(row).collect()
}

fn codes(weights: &[f32], scales: &[f32], bits: u8) -> Vec<u32> {
    let zero = (1u32 << (bits - 1)) as f32;
    let code =
        |(weight, scale): (&f32, &f32)| nearest(weight / scale).clamp(-zero, zero - 1.0) + zero;
    weights.iter().zip(scales).map(|pair| code(pair) as u32).collect()
}

/// Computed in numpy from the definition, not by this code.
#[test]
fn the_search_finds_what_numpy_finds() {
    let weights = weights();
    let bits: Vec<u32> = weights[..8].iter().map(|x| x.to_bits()).collect();
    assert_eq!(
        bits,
        [
            0x3ac1_630b,
            0xbbd8_368f,
            0x3c59_8f6c,
            0xbab6_9c20,
            0xbcd1_d53f,
            0x3c7f_d74a,
            0xbc79_1af7,
            0x3d35_f949
        ]
    );
    for (bits, best, ceiling, step, first, last) in [
        (2, 52, 0x281e, 0x081e, [2, 1, 3, 2, 1, 3, 1, 3], [3, 2, 1, 3, 2, 3, 2, 1]),
        (3, 59, 0x2352, 0x03a9, [5, 2, 6, 4, 1, 5, 3, 7], [6, 4, 1, 6, 3, 7, 5, 2]),
        (4, 60, 0x1ede, 0x01b8, [10, 4, 13, 8, 1, 11, 5, 15], [13, 8, 3, 12, 6, 15, 9, 4]),
        (5, 71, 0x1b06, 0x00e1, [19, 8, 26, 15, 3, 22, 11, 29], [26, 16, 6, 24, 12, 30, 19, 8]),
        (6, 69, 0x16d8, 0x006e, [38, 16, 52, 30, 5, 44, 22, 58], [53, 33, 11, 47, 23, 60, 38, 15]),
        (
            8,
            76,
            0x0eff,
            0x001c,
            [153, 66, 208, 121, 21, 176, 88, 232],
            [209, 130, 44, 189, 92, 238, 151, 62],
        ),
    ] {
        let largest: Vec<f32> = (0..8)
            .map(|column| {
                weights.iter().skip(column).step_by(8).fold(0.0, |a: f32, x| a.max(x.abs()))
            })
            .collect();
        let found = ScaleCodes::new(&largest, bits);
        assert_eq!(found.codes, [5, 7, 9, 10, 11, 13, 14, 15], "{bits} bits");

        let mut scales: Vec<f32> = (0..8).map(|column| found.scale(column)).collect();
        scales.resize(LANES, 1.0);
        let sums = isa::run(Harm {
            columns: Columns { weights: &padded(&weights), count: LANES },
            scales: &scales,
            bits,
        });
        assert_eq!(least(&sums), best, "{bits} bits");

        let stored = stored_ceiling(found.ceiling * factor(best));
        assert_eq!(stored.to_bits(), ceiling, "{bits} bits");
        assert_eq!(scale::group_step(stored, 1.0).to_bits(), step, "{bits} bits");
        let exact = exact_scales(&GroupScales { ceiling: stored, codes: found.codes });
        assert_eq!(codes(&weights[..8], &exact, bits), first, "{bits} bits");
        assert_eq!(codes(&weights[31 * 8..], &exact, bits), last, "{bits} bits");
    }
}

#[test]
fn columns_of_zeros_get_the_smallest_scale() {
    let found = ScaleCodes::new(&[0.0, 1.0, 0.0], 4);
    assert_eq!(found.codes, [0, 15, 0]);
    assert!(ScaleCodes::new(&[0.0; 4], 4).ceiling > 0.0);
}

#[test]
fn one_outlier_sets_the_ceiling_and_spares_the_other_columns() {
    let found = ScaleCodes::new(&[0.01, 60000.0], 2);
    assert_eq!(found.codes, [0, 15]);
    assert!(stored_ceiling(found.ceiling * FACTOR_MAX).is_finite());
    assert!(stored_ceiling(f32::MAX).is_finite());
}
