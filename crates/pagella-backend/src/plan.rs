//! `StepPlan`: what one step computes, as plain data.
//!
//! A ragged batch: rows are sequences, each brings one or more new tokens. Prompt chunks and decode
//! rows share a plan. It can be logged, replayed and uploaded to a device in one copy.

use crate::PAGE_TOKENS;

/// One step of work, validated; see the invariants on the fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepPlan {
    /// New token ids of all rows, back to back. Shape `[t]`, not empty.
    ids: Vec<u32>,
    /// Row `r` owns `ids[starts[r]..starts[r + 1]]`. Shape `[rows + 1]`, strictly increasing.
    starts: Vec<u32>,
    /// Tokens of row `r` already in the cache, i.e. the position of its first new token. `[rows]`.
    past: Vec<u32>,
    /// Physical pages of all rows, back to back; enough for `past + new` tokens of each row.
    pages: Vec<u32>,
    /// Row `r` owns `pages[page_starts[r]..page_starts[r + 1]]`. Shape `[rows + 1]`.
    page_starts: Vec<u32>,
    /// Indices into `ids` whose logits are wanted, strictly increasing.
    logit_tokens: Vec<u32>,
}

/// One sequence's share of a step, as the caller describes it.
#[derive(Clone, Debug)]
pub struct StepRow<'a> {
    /// New ids; not empty.
    pub ids: &'a [u32],
    /// Tokens already in the cache.
    pub past: usize,
    /// Pages of the sequence, in order; at least enough for `past + ids.len()` tokens.
    pub pages: &'a [u32],
    /// How many of the last new tokens need logits.
    pub logits_last: usize,
}

/// Why a plan cannot be built; always a defect of the caller.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanError {
    /// No row at all.
    #[error("a step needs at least one row")]
    Empty,
    /// A row without new tokens.
    #[error("row {row} brings no tokens")]
    EmptyRow {
        /// Index of the row.
        row: usize,
    },
    /// A row has fewer pages than its tokens need.
    #[error("row {row} has {found} pages, its {tokens} tokens need {needed}")]
    TooFewPages {
        /// Index of the row.
        row: usize,
        /// Tokens after the step.
        tokens: usize,
        /// Pages needed.
        needed: usize,
        /// Pages given.
        found: usize,
    },
    /// More logits asked for than there are new tokens.
    #[error("row {row} asks for logits of {wanted} tokens but brings {tokens}")]
    TooManyLogits {
        /// Index of the row.
        row: usize,
        /// Logits wanted.
        wanted: usize,
        /// New tokens.
        tokens: usize,
    },
    /// Counts beyond 32 bits.
    #[error("a step of {tokens} tokens is too large")]
    TooLarge {
        /// Tokens in all rows.
        tokens: usize,
    },
}

impl StepPlan {
    /// Builds a plan from its rows.
    ///
    /// ```
    /// use pagella_backend::{StepPlan, StepRow};
    /// let row = StepRow { ids: &[5, 6, 7], past: 0, pages: &[0], logits_last: 1 };
    /// let plan = StepPlan::new(&[row]).unwrap();
    /// assert_eq!(plan.tokens(), 3);
    /// assert_eq!(plan.logit_tokens(), &[2]);
    /// ```
    pub fn new(rows: &[StepRow<'_>]) -> Result<Self, PlanError> {
        if rows.is_empty() {
            return Err(PlanError::Empty);
        }
        let total: usize = rows.iter().map(|r| r.ids.len()).sum();
        let reach = rows.iter().map(|r| r.past.saturating_add(r.ids.len())).max().unwrap_or(0);
        if u32::try_from(total).is_err() || u32::try_from(reach).is_err() {
            return Err(PlanError::TooLarge { tokens: total.max(reach) });
        }
        let mut plan = StepPlan {
            ids: Vec::with_capacity(total),
            starts: vec![0],
            past: Vec::with_capacity(rows.len()),
            pages: Vec::new(),
            page_starts: vec![0],
            logit_tokens: Vec::new(),
        };
        for (index, row) in rows.iter().enumerate() {
            plan.push(index, row)?;
        }
        Ok(plan)
    }

    fn push(&mut self, index: usize, row: &StepRow<'_>) -> Result<(), PlanError> {
        let new = row.ids.len();
        if new == 0 {
            return Err(PlanError::EmptyRow { row: index });
        }
        let tokens = row.past + new;
        let needed = tokens.div_ceil(PAGE_TOKENS);
        if row.pages.len() < needed {
            return Err(PlanError::TooFewPages {
                row: index,
                tokens,
                needed,
                found: row.pages.len(),
            });
        }
        if row.logits_last > new {
            return Err(PlanError::TooManyLogits {
                row: index,
                wanted: row.logits_last,
                tokens: new,
            });
        }
        self.ids.extend_from_slice(row.ids);
        let end = self.ids.len();
        self.logit_tokens.extend((end - row.logits_last..end).map(|i| i as u32));
        self.starts.push(end as u32);
        self.past.push(row.past as u32);
        self.pages.extend_from_slice(&row.pages[..needed]);
        self.page_starts.push(self.pages.len() as u32);
        Ok(())
    }

    /// Number of sequences.
    pub fn rows(&self) -> usize {
        self.past.len()
    }

    /// New tokens of all rows.
    pub fn tokens(&self) -> usize {
        self.ids.len()
    }

    /// New ids of all rows.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Token indices of row `r`.
    pub fn token_range(&self, r: usize) -> std::ops::Range<usize> {
        self.starts[r] as usize..self.starts[r + 1] as usize
    }

    /// Tokens of row `r` in the cache before this step.
    pub fn past(&self, r: usize) -> usize {
        self.past[r] as usize
    }

    /// Physical pages of row `r`, exactly enough for its tokens after the step.
    pub fn pages(&self, r: usize) -> &[u32] {
        &self.pages[self.page_starts[r] as usize..self.page_starts[r + 1] as usize]
    }

    /// Indices of the tokens whose logits are wanted.
    pub fn logit_tokens(&self) -> &[u32] {
        &self.logit_tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ragged_plan_keeps_rows_apart() {
        let rows = [
            StepRow { ids: &[1, 2, 3], past: 254, pages: &[7, 9], logits_last: 0 },
            StepRow { ids: &[4], past: 0, pages: &[3, 8], logits_last: 1 },
        ];
        let plan = StepPlan::new(&rows).unwrap();
        assert_eq!(plan.token_range(1), 3..4);
        assert_eq!(plan.pages(0), &[7, 9]);
        assert_eq!(plan.pages(1), &[3], "spare pages are not part of the step");
        assert_eq!(plan.logit_tokens(), &[3]);
    }

    #[test]
    fn impossible_rows_are_refused() {
        let row = |ids, past, pages, logits_last| {
            StepPlan::new(&[StepRow { ids, past, pages, logits_last }])
        };
        assert_eq!(StepPlan::new(&[]), Err(PlanError::Empty));
        assert_eq!(row(&[], 0, &[0], 0), Err(PlanError::EmptyRow { row: 0 }));
        assert!(matches!(row(&[1], 256, &[0], 0), Err(PlanError::TooFewPages { needed: 2, .. })));
        assert!(matches!(row(&[1], 0, &[0], 2), Err(PlanError::TooManyLogits { .. })));
    }
}
