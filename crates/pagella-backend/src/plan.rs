//! `StepPlan`: what one step computes, as plain data.
//!
//! A ragged batch: rows are sequences, each brings one or more new tokens. Prompt chunks, decode
//! rows and drafted ids share a plan. It can be logged, replayed and uploaded to a device in one copy.

mod continued;

use crate::PAGE_TOKENS;

/// One step of work, validated; see the invariants on the fields.
#[derive(Clone, Debug, PartialEq)]
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
    /// What else rows say. `[rows]`.
    extras: Vec<RowExtras>,
    /// The ids only keep the places of others, which the step before finds.
    awaits_ids: bool,
}

/// What a row says besides its ids and their place.
#[derive(Clone, Debug, PartialEq)]
struct RowExtras {
    logits: LogitUse,
    adapters: Vec<AdapterUse>,
    positions: Option<Vec<u32>>,
    embeddings: Option<Vec<f32>>,
}

/// Slots that a model has for adapters.
pub const ADAPTER_SLOTS_MAX: usize = 256;

/// Most adapters of one row.
pub const ROW_ADAPTERS_MAX: usize = 16;

/// One adapter of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdapterUse {
    /// Where the model keeps it; below [`ADAPTER_SLOTS_MAX`].
    pub slot: u32,
    /// Multiplies what it adds; finite.
    pub scale: f32,
}

/// What the logits of a row are for, and so of which of its new tokens they are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogitUse {
    /// Nothing: the row fills the cache.
    #[default]
    None,
    /// Sampling: one id is chosen by the last token's.
    Choice,
    /// Sampling: one id is chosen by the mix of the last token's of all rows of a job.
    Mix,
    /// Speculation: the last `drafted` ids are guesses. Each of them, and one id after them, is
    /// sampled anew from the token before it; rows of one job are mixed.
    Check {
        /// How many of the row's ids are guesses.
        drafted: usize,
    },
    /// Every token's score the id that is known to follow it.
    Score {
        /// Nothing is known to follow the last token: one id is chosen by its logits.
        choice: bool,
    },
}

impl LogitUse {
    /// The use of whoever reads the logits of the last `n` tokens.
    pub fn last(n: usize) -> Self {
        match n {
            0 => LogitUse::None,
            1 => LogitUse::Choice,
            _ => LogitUse::Check { drafted: n - 1 },
        }
    }

    /// How many logits are wanted of a row of `tokens` new tokens; those of the last.
    pub fn wanted(self, tokens: usize) -> usize {
        match self {
            LogitUse::None => 0,
            LogitUse::Choice | LogitUse::Mix => 1,
            LogitUse::Check { drafted } => drafted.saturating_add(1),
            LogitUse::Score { .. } => tokens,
        }
    }

    /// How many of a row's `tokens` new tokens score a known id; the first.
    pub fn scored(self, tokens: usize) -> usize {
        match self {
            LogitUse::Score { choice } => tokens - usize::from(choice),
            LogitUse::None | LogitUse::Choice | LogitUse::Mix | LogitUse::Check { .. } => 0,
        }
    }

    /// Whether an id is chosen by the last token's.
    pub fn chooses(self) -> bool {
        !matches!(self, LogitUse::None | LogitUse::Score { choice: false })
    }
}

/// One sequence's share of a step, as the caller describes it.
///
/// No backend takes explicit positions or embeddings yet, and not all take adapters;
/// [`crate::Backend::accept_plan`] refuses them.
#[derive(Clone, Copy, Debug)]
pub struct StepRow<'a> {
    /// New ids; not empty.
    pub ids: &'a [u32],
    /// Tokens already in the cache.
    pub past: usize,
    /// Pages of the sequence, in order; at least enough for `past + ids.len()` tokens.
    pub pages: &'a [u32],
    /// What its logits are for.
    pub logits: LogitUse,
    /// Adapters that its linears have, in the order in which they are added, each once; none: the
    /// model as it is.
    pub adapters: &'a [AdapterUse],
    /// Positions to rotate by, `[ids]`, where they are not `past` and the following.
    pub positions: Option<&'a [u32]>,
    /// Vectors in the place of those of the ids, `[ids, hidden]`, which then only stand for them.
    pub embeddings: Option<&'a [f32]>,
}

impl<'a> StepRow<'a> {
    /// A row of ids at the positions from `past` on.
    pub fn new(ids: &'a [u32], past: usize, pages: &'a [u32], logits: LogitUse) -> Self {
        StepRow { ids, past, pages, logits, adapters: &[], positions: None, embeddings: None }
    }
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
    /// Positions or embeddings of another number than there are new tokens.
    #[error("row {row} has {found} {what} for {tokens} tokens")]
    Uneven {
        /// Index of the row.
        row: usize,
        /// What there is of every token.
        what: &'static str,
        /// New tokens.
        tokens: usize,
        /// How many there are.
        found: usize,
    },
    /// Lists of pages for another number of rows than the plan has.
    #[error("{found} lists of pages are given for {rows} rows")]
    OtherRows {
        /// Rows of the plan.
        rows: usize,
        /// Lists given.
        found: usize,
    },
    /// A row goes on in other pages than it began in.
    #[error("row {row} has other pages than before")]
    OtherPages {
        /// Index of the row.
        row: usize,
    },
    /// Adapters that no model could have.
    #[error(
        "row {row} has {adapters} adapters: allowed are {ROW_ADAPTERS_MAX}, each once, in slots below {ADAPTER_SLOTS_MAX}, with finite scales"
    )]
    BadAdapters {
        /// Index of the row.
        row: usize,
        /// How many it has.
        adapters: usize,
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
    /// use pagella_backend::{LogitUse, StepPlan, StepRow};
    /// let row = StepRow::new(&[5, 6, 7], 0, &[0], LogitUse::Choice);
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
            extras: Vec::with_capacity(rows.len()),
            awaits_ids: false,
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
        let wanted = row.logits.wanted(new);
        if wanted > new {
            return Err(PlanError::TooManyLogits { row: index, wanted, tokens: new });
        }
        let positions = row.positions.map_or(new, <[u32]>::len);
        if positions != new {
            let what = "positions";
            return Err(PlanError::Uneven { row: index, what, tokens: new, found: positions });
        }
        if let Some(values) = row.embeddings
            && (values.is_empty() || !values.len().is_multiple_of(new))
        {
            let (what, found) = ("elements of embeddings", values.len());
            return Err(PlanError::Uneven { row: index, what, tokens: new, found });
        }
        if !are_adapters(row.adapters) {
            let adapters = row.adapters.len();
            return Err(PlanError::BadAdapters { row: index, adapters });
        }
        self.ids.extend_from_slice(row.ids);
        let end = self.ids.len();
        self.logit_tokens.extend((end - wanted..end).map(|i| i as u32));
        self.starts.push(end as u32);
        self.past.push(row.past as u32);
        self.pages.extend_from_slice(&row.pages[..needed]);
        self.page_starts.push(self.pages.len() as u32);
        self.extras.push(RowExtras {
            logits: row.logits,
            adapters: row.adapters.to_vec(),
            positions: row.positions.map(<[u32]>::to_vec),
            embeddings: row.embeddings.map(<[f32]>::to_vec),
        });
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

    /// For every row the index into `logit_tokens` of its last token, if it wants logits at all.
    pub fn last_logit_rows(&self) -> impl Iterator<Item = Option<usize>> {
        let mut end = 0;
        (0..self.rows()).map(move |row| {
            let wanted = self.logit_use(row).wanted(self.token_range(row).len());
            end += wanted;
            (wanted > 0).then(|| end - 1)
        })
    }

    /// What the logits of row `r` are for.
    pub fn logit_use(&self, r: usize) -> LogitUse {
        self.extras[r].logits
    }

    /// The adapters of row `r`, in the order in which they are added.
    pub fn adapters(&self, r: usize) -> &[AdapterUse] {
        &self.extras[r].adapters
    }

    /// Whether any row has adapters.
    pub fn has_adapters(&self) -> bool {
        self.extras.iter().any(|row| !row.adapters.is_empty())
    }

    /// Positions of row `r` where they are not those from `past` on, `[tokens]`.
    pub fn positions(&self, r: usize) -> Option<&[u32]> {
        self.extras[r].positions.as_deref()
    }

    /// Vectors that row `r` brings in the place of those of its ids, `[tokens, hidden]`.
    pub fn embeddings(&self, r: usize) -> Option<&[f32]> {
        self.extras[r].embeddings.as_deref()
    }

    /// What of this plan is beyond ids in a row: the first such thing by name, adapters aside. A
    /// backend that has none of them refuses by it.
    pub fn special(&self) -> Option<&'static str> {
        let of_row = |row: &RowExtras| match row {
            RowExtras { positions: Some(_), .. } => Some("explicit positions"),
            RowExtras { embeddings: Some(_), .. } => Some("embeddings in the place of ids"),
            RowExtras { positions: None, embeddings: None, .. } => None,
        };
        self.extras.iter().find_map(of_row)
    }
}

/// Whether a row may have these adapters.
fn are_adapters(adapters: &[AdapterUse]) -> bool {
    let is_fine = |(index, adapter): (usize, &AdapterUse)| {
        let earlier = &adapters[..index];
        (adapter.slot as usize) < ADAPTER_SLOTS_MAX
            && adapter.scale.is_finite()
            && earlier.iter().all(|other| other.slot != adapter.slot)
    };
    adapters.len() <= ROW_ADAPTERS_MAX && adapters.iter().enumerate().all(is_fine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ragged_plan_keeps_rows_apart() {
        let rows = [
            StepRow::new(&[1, 2, 3], 254, &[7, 9], LogitUse::None),
            StepRow::new(&[4], 0, &[3, 8], LogitUse::Choice),
        ];
        let plan = StepPlan::new(&rows).unwrap();
        assert_eq!(plan.token_range(1), 3..4);
        assert_eq!(plan.pages(0), &[7, 9]);
        assert_eq!(plan.pages(1), &[3], "spare pages are not part of the step");
        assert_eq!(plan.logit_tokens(), &[3]);
        assert_eq!((plan.logit_use(0), plan.logit_use(1)), (LogitUse::None, LogitUse::Choice));
        assert_eq!(plan.special(), None);
    }

    #[test]
    fn impossible_rows_are_refused() {
        let row =
            |ids, past, pages, logits| StepPlan::new(&[StepRow::new(ids, past, pages, logits)]);
        let none = LogitUse::None;
        assert_eq!(StepPlan::new(&[]), Err(PlanError::Empty));
        assert_eq!(row(&[], 0, &[0], none), Err(PlanError::EmptyRow { row: 0 }));
        let few = row(&[1], 256, &[0], none);
        assert!(matches!(few, Err(PlanError::TooFewPages { needed: 2, .. })));
        let many = row(&[1], 0, &[0], LogitUse::Check { drafted: 1 });
        assert!(matches!(many, Err(PlanError::TooManyLogits { wanted: 2, .. })));
        let plain = StepRow::new(&[1, 2], 0, &[0], none);
        let uneven = StepRow { positions: Some(&[7]), ..plain };
        assert!(matches!(StepPlan::new(&[uneven]), Err(PlanError::Uneven { found: 1, .. })));
        let uneven = StepRow { embeddings: Some(&[0.5; 5]), ..plain };
        assert!(matches!(StepPlan::new(&[uneven]), Err(PlanError::Uneven { found: 5, .. })));
        let adapter = |slot, scale| AdapterUse { slot, scale };
        for adapters in [
            vec![adapter(256, 1.0)],
            vec![adapter(0, f32::NAN)],
            vec![adapter(7, 1.0), adapter(8, 1.0), adapter(7, 2.0)],
            (0..17).map(|slot| adapter(slot, 1.0)).collect(),
        ] {
            let row = StepRow { adapters: &adapters, ..plain };
            assert!(matches!(StepPlan::new(&[row]), Err(PlanError::BadAdapters { row: 0, .. })));
        }
    }

    #[test]
    fn the_use_of_logits_says_which_tokens_have_them() {
        let cases = [
            (LogitUse::None, &[][..], 0, false),
            (LogitUse::Choice, &[2], 0, true),
            (LogitUse::Mix, &[2], 0, true),
            (LogitUse::Check { drafted: 1 }, &[1, 2], 0, true),
            (LogitUse::Score { choice: false }, &[0, 1, 2], 3, false),
            (LogitUse::Score { choice: true }, &[0, 1, 2], 2, true),
        ];
        for (logits, tokens, scored, chooses) in cases {
            let plan = StepPlan::new(&[StepRow::new(&[4, 5, 6], 0, &[0], logits)]).unwrap();
            assert_eq!(plan.logit_tokens(), tokens, "{logits:?}");
            assert_eq!((logits.scored(3), logits.chooses()), (scored, chooses), "{logits:?}");
        }
    }

    #[test]
    fn what_rows_say_besides_ids_is_kept_and_named() {
        let plain = StepRow::new(&[1, 2], 0, &[0], LogitUse::None);
        let moved = StepRow { positions: Some(&[7, 9]), ..plain };
        let used = [AdapterUse { slot: 3, scale: 0.5 }, AdapterUse { slot: 1, scale: -1.0 }];
        let adapted = StepRow { adapters: &used, ..plain };
        let embedded = StepRow { embeddings: Some(&[0.5; 4]), ..plain };
        let plan = StepPlan::new(&[plain, moved, adapted, embedded]).unwrap();
        assert_eq!((plan.positions(0), plan.positions(1)), (None, Some(&[7, 9][..])));
        assert_eq!((plan.adapters(1), plan.adapters(2)), (&[][..], &used[..]));
        assert!(plan.has_adapters());
        assert_eq!((plan.embeddings(2), plan.embeddings(3)), (None, Some(&[0.5; 4][..])));
        let special = |row| StepPlan::new(&[plain, row]).unwrap().special();
        assert_eq!(special(moved), Some("explicit positions"));
        assert_eq!(special(adapted), None);
        assert_eq!(special(embedded), Some("embeddings in the place of ids"));
    }
}
