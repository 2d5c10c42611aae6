//! `embed`: gathering, scaling, adding positions.

use std::sync::Arc;

use half::{bf16, f16};

use super::compare::rows_close;
use super::fixture::{download, poisoned, step_of, text};
use super::{Case, Tolerances, noise};
use crate::{Backend, LogitUse, StepRow, TableDtype, TableSource};

const VOCAB: usize = 50;
const CONTEXT: usize = 400;

pub(super) fn cases<B: Backend>() -> Vec<Case<B>> {
    vec![
        Case { name: "embed/f16", run: |b, t| check(b, t, TableDtype::F16, 1.0, None) },
        Case { name: "embed/bf16", run: |b, t| check(b, t, TableDtype::BF16, 1.0, None) },
        Case { name: "embed/f32", run: |b, t| check(b, t, TableDtype::F32, 1.0, None) },
        Case { name: "embed/scaled", run: |b, t| check(b, t, TableDtype::F16, 14.75, None) },
        Case {
            name: "embed/positions",
            run: |b, t| check(b, t, TableDtype::F16, 1.0, Some(TableDtype::F16)),
        },
        Case {
            name: "embed/scaled_with_positions_of_another_type",
            run: |b, t| check(b, t, TableDtype::BF16, 0.5, Some(TableDtype::F32)),
        },
    ]
}

/// A table and its values.
struct Table {
    source: TableSource,
    values: Vec<f64>,
    width: usize,
}

impl Table {
    fn new(seed: u64, rows: usize, width: usize, dtype: TableDtype) -> Self {
        let mut bytes = Vec::new();
        let mut values = Vec::new();
        for x in noise::gaussian(seed, rows * width) {
            let value = match dtype {
                TableDtype::F16 => {
                    let x = f16::from_f32(x);
                    bytes.extend(x.to_le_bytes());
                    x.to_f64()
                }
                TableDtype::BF16 => {
                    let x = bf16::from_f32(x);
                    bytes.extend(x.to_le_bytes());
                    x.to_f64()
                }
                TableDtype::F32 => {
                    bytes.extend(x.to_le_bytes());
                    f64::from(x)
                }
            };
            values.push(value);
        }
        let source = TableSource { bytes: Arc::new(Unaligned::new(&bytes)), dtype, rows, width };
        Table { source, values, width }
    }

    fn row(&self, index: usize) -> &[f64] {
        &self.values[index * self.width..(index + 1) * self.width]
    }
}

/// A table in a backend's layout, and its width.
pub(super) fn table<B: Backend>(
    backend: &B,
    seed: u64,
    width: usize,
    dtype: TableDtype,
) -> Result<(B::Table, usize), String> {
    let table = Table::new(seed, VOCAB, width, dtype);
    Ok((backend.table(table.source).map_err(text)?, width))
}

/// Bytes at an odd address, as in a file with a header of odd length.
struct Unaligned {
    bytes: Vec<u8>,
    skip: usize,
}

impl Unaligned {
    fn new(bytes: &[u8]) -> Self {
        let mut shifted = Vec::with_capacity(bytes.len() + 2);
        let skip = if (shifted.as_ptr() as usize).is_multiple_of(2) { 1 } else { 2 };
        shifted.resize(skip, 0);
        shifted.extend_from_slice(bytes);
        Unaligned { bytes: shifted, skip }
    }
}

impl AsRef<[u8]> for Unaligned {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[self.skip..]
    }
}

/// Two rows, one of which has a past, at widths with and without a tail.
fn check<B: Backend>(
    backend: &B,
    tolerances: &Tolerances,
    dtype: TableDtype,
    scale: f32,
    positions: Option<TableDtype>,
) -> Result<(), String> {
    let (first, second) = ([7, 0, 49, 7, 23], [11, 48]);
    let rows = [
        StepRow::new(&first, 0, &[0], LogitUse::Choice),
        StepRow::new(&second, 300, &[1, 2], LogitUse::Choice),
    ];
    for width in [64, 200] {
        let table = Table::new(1, VOCAB, width, dtype);
        let positions = positions.map(|dtype| Table::new(2, CONTEXT, width, dtype));
        let mut expected = Vec::new();
        for row in &rows {
            for (i, id) in row.ids.iter().enumerate() {
                let position = positions.as_ref().map(|p| p.row(row.past + i));
                expected.extend(table.row(*id as usize).iter().enumerate().map(|(at, x)| {
                    f64::from(scale) * x + position.map_or(0.0, |position| position[at])
                }));
            }
        }
        let loaded = backend.table(table.source).map_err(text)?;
        let positions = positions.map(|p| backend.table(p.source)).transpose().map_err(text)?;
        let tokens = first.len() + second.len();
        let mut out = poisoned(backend, tokens, width)?;
        let step = step_of(backend, &rows)?;
        backend.embed(&step, &loaded, scale, positions.as_ref(), &mut out).map_err(text)?;
        let found = download(backend, &out, tokens)?;
        rows_close("embedding", &found, &expected, width, tolerances.embed)?;
    }
    Ok(())
}
