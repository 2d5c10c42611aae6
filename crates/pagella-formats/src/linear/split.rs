//! How a fused tensor is cut into the linear asked for.

use std::ops::Range;

use super::{Columns, Found, LinearRequest};
use crate::error::{FormatError, Result};

/// Quantised tensors pack eight scale or zero codes per word, so cuts fall on multiples of this.
const PACKED_COLUMNS: usize = 8;

/// Stored matrices may be padded to a multiple of this many columns.
const PADDED_COLUMNS: usize = 32;

/// What a request takes of the tensor that was found.
pub(crate) struct Cut {
    /// Outputs of the stored tensor, padding excluded.
    pub declared: usize,
    /// Ranges of them that make the linear, in order.
    pub ranges: Vec<Range<usize>>,
}

impl Cut {
    /// The cut of a request, checked to lie inside and to give `features` outputs in all.
    pub(crate) fn new(
        request: &LinearRequest<'_>,
        found: &Found<'_>,
        features: usize,
    ) -> Result<Self> {
        let (declared, ranges) = match (found.fused, request.fused) {
            (true, Some(part)) => (part.total_out, stepped(part.rows, part.step)),
            _ => (features, vec![Range { start: 0, end: features }]),
        };
        let mut taken = 0usize;
        for range in &ranges {
            if range.start >= range.end || range.end > declared {
                return Err(refused(found, range, "the range is empty or leaves the tensor"));
            }
            taken = taken.saturating_add(range.len());
        }
        if taken != features {
            let whole = Range { start: 0, end: declared };
            return Err(refused(found, &whole, "the parts do not add up to the linear's width"));
        }
        Ok(Self { declared, ranges })
    }

    /// The cut as columns of a packed matrix that has `stored` of them.
    pub(crate) fn packed_columns(&self, found: &Found<'_>, stored: usize) -> Result<Columns> {
        let padded = self.declared.checked_next_multiple_of(PADDED_COLUMNS);
        let width_fits = stored == self.declared || Some(stored) == padded;
        if !width_fits || !stored.is_multiple_of(PACKED_COLUMNS) {
            let declared = self.declared;
            return Err(found.weight.wrong_shape(format!(
                "{declared} columns, or {declared} rounded up to a multiple of {PADDED_COLUMNS},"
            )));
        }
        if found.fused {
            let odd = |range: &&Range<usize>| {
                !range.start.is_multiple_of(PACKED_COLUMNS)
                    || !range.end.is_multiple_of(PACKED_COLUMNS)
            };
            if let Some(range) = self.ranges.iter().find(odd) {
                let reason = "packed tensors can only be cut at multiples of 8 columns";
                return Err(refused(found, range, reason));
            }
        }
        let whole =
            || refused(found, &Range { start: 0, end: self.declared }, "it leaves the tensor");
        Columns::new(stored, self.ranges.clone()).ok_or_else(whole)
    }
}

/// Every `step`-th index of each range, as ranges.
fn stepped(rows: &[Range<usize>], step: usize) -> Vec<Range<usize>> {
    if step <= 1 {
        return rows.to_vec();
    }
    let single = |index| Range { start: index, end: index + 1 };
    rows.iter().flat_map(|range| range.clone().step_by(step).map(single)).collect()
}

/// The error for a range that cannot be taken.
fn refused(found: &Found<'_>, range: &Range<usize>, reason: &'static str) -> FormatError {
    FormatError::FusedSplit {
        path: found.weight.file.to_owned(),
        tensor: found.weight.name.to_owned(),
        begin: range.start,
        end: range.end,
        reason,
    }
}
