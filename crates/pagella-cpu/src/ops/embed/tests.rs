//! Gathering from tables of every type, at any address.

use std::sync::Arc;

use pagella_backend::{LogitUse, StepRow};

use super::*;

/// Bytes that start `shift` bytes into their allocation.
struct Shifted {
    bytes: Vec<u8>,
    shift: usize,
}

impl AsRef<[u8]> for Shifted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[self.shift..]
    }
}

fn value(i: usize) -> f32 {
    // Representable in every type: 7 significant bits.
    (i % 127) as f32 / 4.0 - 9.0
}

fn table(dtype: TableDtype, rows: usize, width: usize, shift: usize) -> CpuTable {
    let mut bytes = vec![0xAA; shift];
    for x in (0..rows * width).map(value) {
        match dtype {
            TableDtype::F16 => bytes.extend(half::f16::from_f32(x).to_le_bytes()),
            TableDtype::BF16 => bytes.extend(half::bf16::from_f32(x).to_le_bytes()),
            TableDtype::F32 => bytes.extend(x.to_le_bytes()),
        }
    }
    let bytes = Arc::new(Shifted { bytes, shift });
    CpuTable::new(TableSource { bytes, dtype, rows, width }).unwrap()
}

fn plan() -> StepPlan {
    let rows = [
        StepRow::new(&[5, 0, 9], 2, &[0], LogitUse::None),
        StepRow::new(&[1], 7, &[1], LogitUse::None),
    ];
    StepPlan::new(&rows).unwrap()
}

const DTYPES: [TableDtype; 3] = [TableDtype::F16, TableDtype::BF16, TableDtype::F32];

#[test]
fn rows_are_gathered_scaled_and_shifted_by_positions() {
    let pool = Pool::new(2, None);
    let (ids, positions) = ([5, 0, 9, 1], [2, 3, 4, 7]);
    for dtype in DTYPES {
        for (width, shift) in [(16, 0), (40, 1), (7, 3)] {
            let (words, places) = (table(dtype, 10, width, shift), table(dtype, 8, width, shift));
            for isa in Isa::available() {
                let mut out = Tensor::new(4, width).unwrap();
                embed(isa, &pool, &plan(), &words, 1.5, None, &mut out).unwrap();
                let word = |i: usize, j: usize| 1.5 * value(ids[i] * width + j);
                for i in 0..4 {
                    (0..width).for_each(|j| assert_eq!(out.row(i)[j], word(i, j)));
                }
                embed(isa, &pool, &plan(), &words, 1.5, Some(&places), &mut out).unwrap();
                for (i, position) in positions.into_iter().enumerate() {
                    let place = |j: usize| value(position * width + j);
                    (0..width).for_each(|j| assert_eq!(out.row(i)[j], word(i, j) + place(j)));
                }
            }
        }
    }
}

#[test]
fn missing_rows_and_wrong_sizes_are_errors() {
    let pool = Pool::new(1, None);
    let mut out = Tensor::new(4, 16).unwrap();
    let mut run = |words: &CpuTable, places: Option<&CpuTable>| {
        embed(Isa::best(), &pool, &plan(), words, 1.0, places, &mut out)
    };
    let words = table(TableDtype::F32, 10, 16, 0);
    assert!(run(&words, None).is_ok());
    assert!(run(&table(TableDtype::F32, 9, 16, 0), None).is_err());
    assert!(run(&table(TableDtype::F32, 10, 8, 0), None).is_err());
    assert!(run(&words, Some(&table(TableDtype::F32, 7, 16, 0))).is_err());
    let bytes = Arc::new(vec![0u8; 7]);
    let short = TableSource { bytes, dtype: TableDtype::F16, rows: 2, width: 2 };
    assert!(CpuTable::new(short).is_err());
}
