//! Gathering rows from embedding and position tables that stay mapped from their files.

use pagella_backend::{BackendError, StepPlan, TableDtype, TableSource};

use super::lanes::{load_part, load_part_bf16, load_part_f16, store_part};
use crate::Tensor;
use crate::simd::{Isa, Kernel, LANES, Simd};
use crate::threads::{Pool, Shares};

/// A table whose bytes were checked to hold all its rows.
pub struct CpuTable {
    source: TableSource,
}

impl CpuTable {
    pub(crate) fn new(source: TableSource) -> Result<Self, BackendError> {
        let row_bytes = source.width.checked_mul(source.dtype.bytes());
        let expected = row_bytes.and_then(|b| b.checked_mul(source.rows)).unwrap_or(usize::MAX);
        let found = (*source.bytes).as_ref().len();
        if found != expected {
            return Err(BackendError::Size { what: "table bytes", expected, found });
        }
        Ok(CpuTable { source })
    }

    /// Bytes of row `index`, which must exist.
    fn row(&self, index: usize) -> &[u8] {
        let row_bytes = self.source.width * self.source.dtype.bytes();
        &(*self.source.bytes).as_ref()[index * row_bytes..(index + 1) * row_bytes]
    }

    /// Checks that row `index` exists and is `width` wide.
    fn expect(&self, what: &'static str, index: usize, width: usize) -> Result<(), BackendError> {
        if self.source.width != width {
            return Err(BackendError::Size { what, expected: width, found: self.source.width });
        }
        if index >= self.source.rows {
            return Err(BackendError::Size { what, expected: index + 1, found: self.source.rows });
        }
        Ok(())
    }
}

/// `out[i] = scale · table[ids[i]]`, plus `positions[position(i)]` when given.
pub(crate) fn embed(
    isa: Isa,
    pool: &Pool,
    plan: &StepPlan,
    table: &CpuTable,
    scale: f32,
    positions: Option<&CpuTable>,
    out: &mut Tensor,
) -> Result<(), BackendError> {
    let rows: Vec<usize> = (0..plan.rows()).collect();
    embed_rows(isa, pool, plan, &rows, table, scale, positions, out)
}

/// [`embed`] for some rows of the plan, each named once.
#[allow(clippy::too_many_arguments)]
pub(crate) fn embed_rows(
    isa: Isa,
    pool: &Pool,
    plan: &StepPlan,
    rows: &[usize],
    table: &CpuTable,
    scale: f32,
    positions: Option<&CpuTable>,
    out: &mut Tensor,
) -> Result<(), BackendError> {
    let width = out.width;
    out.expect("embedding output", plan.tokens(), width)?;
    let largest = plan.ids().iter().copied().max().unwrap_or(0);
    table.expect("embedding table", largest as usize, width)?;
    if let Some(positions) = positions {
        let reach = |r| plan.past(r) + plan.token_range(r).len() - 1;
        let largest = (0..plan.rows()).map(reach).max().unwrap_or(0);
        positions.expect("position table", largest, width)?;
    }
    let shares = Shares::new(&mut out.data);
    pool.run(rows.len(), &|task| {
        let r = rows[task];
        for (i, token) in plan.token_range(r).enumerate() {
            // SAFETY: every token has its own row, and every task its own tokens.
            let out = unsafe { shares.part(token * width..(token + 1) * width) };
            let row = table.row(plan.ids()[token] as usize);
            isa.run(Gather { dtype: table.source.dtype, row, scale, add: false, out });
            if let Some(positions) = positions {
                let (dtype, row) = (positions.source.dtype, positions.row(plan.past(r) + i));
                isa.run(Gather { dtype, row, scale: 1.0, add: true, out });
            }
        }
    })
}

/// `out (+)= scale · row`.
struct Gather<'a> {
    dtype: TableDtype,
    /// Exactly `out.len()` elements, unaligned.
    row: &'a [u8],
    scale: f32,
    add: bool,
    out: &'a mut [f32],
}

impl Kernel for Gather<'_> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let (len, out) = (self.out.len(), self.out.as_mut_ptr());
        for start in (0..len).step_by(LANES) {
            let n = len - start;
            // SAFETY: `start + min(n, 16)` stays within both slices; vector loads and the copies
            // of partial ones need no alignment.
            unsafe {
                let x = match self.dtype {
                    TableDtype::F16 => {
                        load_part_f16::<S>(self.row.as_ptr().cast::<u16>().add(start), n)
                    }
                    TableDtype::BF16 => {
                        load_part_bf16::<S>(self.row.as_ptr().cast::<u16>().add(start), n)
                    }
                    TableDtype::F32 => load_unaligned::<S>(self.row.as_ptr().add(4 * start), n),
                };
                let mut y = S::mul(x, S::splat(self.scale));
                if self.add {
                    y = S::add(load_part::<S>(out.add(start), n, 0.0), y);
                }
                store_part::<S>(out.add(start), n, y);
            }
        }
    }
}

/// Loads `n` f32 from any address, at most 16; missing lanes are 0.
///
/// # Safety
/// As for [`Simd`]; `p` points to `4 · n` readable bytes.
#[inline(always)]
unsafe fn load_unaligned<S: Simd>(p: *const u8, n: usize) -> S::F {
    let mut lanes = [0.0f32; LANES];
    // SAFETY: bytes need no alignment; at most 64 of them are copied.
    unsafe {
        std::ptr::copy_nonoverlapping(p, lanes.as_mut_ptr().cast(), 4 * n.min(LANES));
        S::load(lanes.as_ptr())
    }
}

#[cfg(test)]
mod tests;
