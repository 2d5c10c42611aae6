//! What the next step takes over from the cache and what it computes: one token of every job that
//! writes, with the guesses behind it, then prompts in order of start.
//!
//! Planning looks at pages and sequences and changes nothing; `step.rs` carries a plan out. A row
//! starts where its sequence stands in the cache and never writes what someone else writes in the
//! same step or has written before: shared pages are skipped as far as they are filled, and a chunk
//! ends in front of a shared page that another row fills.

use pagella_backend::{LogitUse, PAGE_TOKENS, PlanError, StepPlan, StepRow};

use crate::job::{Job, Sequence};
use crate::pages::{PageIdx, PageTable, Parent};
use crate::schedule::GeneratorOptions;

/// Rows of logits of one step that score one prompt, at most: each is as long as the vocabulary.
const SCORED_ROWS_MAX: usize = 32;

/// What one step does: first all of `reuse`, in order, then `step`.
#[derive(Debug)]
pub(crate) struct Plan {
    pub reuse: Vec<Reuse>,
    /// `None`: there is nothing to compute.
    pub step: Option<PlannedStep>,
}

/// What a sequence finds in the cache instead of computing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reuse {
    /// Index among the active jobs.
    pub job: usize,
    /// Index among the job's sequences.
    pub sequence: usize,
    /// Next tokens of the sequence that others have put into its pages.
    pub filled: usize,
    /// After those, the beginning of a page that someone else filled differently further on.
    pub copy: Option<PageCopy>,
}

/// The first `tokens` tokens of a page, to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageCopy {
    pub from: PageIdx,
    pub to: PageIdx,
    pub tokens: usize,
}

/// What is computed, and whose it is.
#[derive(Debug)]
pub(crate) struct PlannedStep {
    pub plan: StepPlan,
    pub rows: Vec<PlannedRow>,
}

/// A sequence's share of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlannedRow {
    /// Index among the active jobs.
    pub job: usize,
    /// Index among the job's sequences.
    pub sequence: usize,
    /// New tokens.
    pub tokens: usize,
    /// Whether they are a chunk of a prompt, and not what the job has written.
    pub is_prompt: bool,
    /// What their logits are for.
    pub logits: LogitUse,
}

impl PlannedRow {
    /// Rows of logits.
    pub fn logit_rows(&self) -> usize {
        self.logits.wanted(self.tokens)
    }

    /// How many of its tokens, the last ones, are guesses.
    pub fn guesses(&self) -> usize {
        match self.logits {
            LogitUse::Check { drafted } => drafted,
            LogitUse::None | LogitUse::Choice | LogitUse::Mix | LogitUse::Score { .. } => 0,
        }
    }
}

impl PlannedStep {
    /// Tokens of prompts.
    pub fn prefill_tokens(&self) -> usize {
        self.rows.iter().filter(|row| row.is_prompt).map(|row| row.tokens).sum()
    }

    /// Whether a job has a row.
    pub fn has_job(&self, job: usize) -> bool {
        self.rows.iter().any(|row| row.job == job)
    }
}

/// A job as planning sees it.
#[derive(Clone, Debug)]
pub(crate) struct Runnable<'a> {
    /// Index among the active jobs.
    job: usize,
    sequences: Vec<Cursor<'a>>,
    /// Its newest id and guesses of those after it; empty without guesses.
    guessed: &'a [u32],
    /// Whether the ids of its prompt are scored.
    scores: bool,
}

impl<'a> Runnable<'a> {
    /// The jobs that do not rest.
    pub fn of(active: &'a [Job]) -> Vec<Self> {
        let awake = active.iter().enumerate().filter(|(_, job)| !job.resting);
        let runnable = |(idx, job): (usize, &'a Job)| {
            let scores = job.options.return_prompt_logprobs.is_some() && job.new_tokens == 0;
            Runnable { guessed: job.draft.fed(), ..Self::new(idx, &job.sequences, scores) }
        };
        awake.map(runnable).collect()
    }

    fn new(job: usize, sequences: &'a [Sequence], scores: bool) -> Self {
        let sequences = sequences.iter().map(|sequence| Cursor { sequence, kv: sequence.kv });
        Runnable { job, sequences: sequences.collect(), guessed: &[], scores }
    }

    /// All sequences have everything but their newest id in the cache.
    fn is_ready(&self) -> bool {
        self.sequences.iter().all(|cursor| cursor.kv + 1 >= cursor.sequence.ids.len())
    }
}

/// A sequence, and where it stands once the plan is carried out so far.
#[derive(Clone, Copy, Debug)]
struct Cursor<'a> {
    sequence: &'a Sequence,
    kv: usize,
}

impl<'a> Cursor<'a> {
    /// Whether the page for the newest id is missing; the job then waits for one.
    fn lacks_page(&self) -> bool {
        self.sequence.pages.len() < Sequence::pages_for(self.sequence.ids.len())
    }

    /// The page that the next id of a prompt goes to, and all ids that belong there; the last id of
    /// the prompt is not among them, because it must be computed.
    fn unfinished_page(&self) -> Option<(PageIdx, &'a [u32])> {
        let Sequence { ids, pages, .. } = self.sequence;
        let last = ids.len().saturating_sub(1);
        let idx = self.kv / PAGE_TOKENS;
        let page = *pages.get(idx)?;
        let begins = idx * PAGE_TOKENS;
        (self.kv < last).then(|| (page, &ids[begins..last.min(begins + PAGE_TOKENS)]))
    }

    /// Indices of the pages that the next tokens go to.
    fn page_range(&self, tokens: usize) -> std::ops::Range<usize> {
        self.kv / PAGE_TOKENS..(self.kv + tokens).div_ceil(PAGE_TOKENS)
    }
}

/// Collects what one step does.
pub(crate) struct Planner<'a> {
    table: &'a PageTable,
    options: &'a GeneratorOptions,
    /// Tokens that still fit.
    budget: usize,
    /// Rows of logits that still fit besides one of every sequence.
    spare_rows: usize,
    reuse: Vec<Reuse>,
    rows: Vec<PlannedRow>,
    /// The same for the model.
    step_rows: Vec<StepRow<'a>>,
    /// Pages with a key that some row of this step writes.
    filling: Vec<PageIdx>,
    /// What the prompts of this step put into pages: what comes before a page, and its ids.
    coming: Vec<(Parent, &'a [u32])>,
}

impl<'a> Planner<'a> {
    pub fn new(table: &'a PageTable, options: &'a GeneratorOptions) -> Self {
        Planner {
            table,
            options,
            budget: options.step_tokens.unwrap_or(usize::MAX),
            spare_rows: 0,
            reuse: Vec::new(),
            rows: Vec::new(),
            step_rows: Vec::new(),
            filling: Vec::new(),
            coming: Vec::new(),
        }
    }

    /// Plans a step of these jobs, which are in the order of their start.
    pub fn plan(mut self, mut jobs: Vec<Runnable<'a>>) -> Result<Plan, PlanError> {
        let sequences: usize = jobs.iter().map(|job| job.sequences.len()).sum();
        self.spare_rows = self.options.logit_rows_max().saturating_sub(sequences);
        let mut spare = self.guesses_max(&jobs);
        let ready = jobs.iter().filter(|job| job.is_ready());
        ready.for_each(|job| self.add_decode(job, &mut spare));
        if let (Some(limit), false) =
            (self.options.prefill_tokens_while_decoding, self.rows.is_empty())
        {
            self.budget = self.budget.min(limit.max(1));
        }
        let n_writing = self.rows.len();
        for job in &mut jobs {
            let writing = &self.rows[..n_writing];
            if writing.binary_search_by_key(&job.job, |row| row.job).is_err() {
                self.add_prefill(job);
            }
        }
        let Planner { reuse, rows, step_rows, .. } = self;
        let step = match rows.is_empty() {
            true => None,
            false => Some(PlannedStep { plan: StepPlan::new(&step_rows)?, rows }),
        };
        Ok(Plan { reuse, step })
    }

    /// Tokens of guesses: what is left when everyone who writes has a token. Where prompts wait, half of
    /// the step is theirs.
    fn guesses_max(&self, jobs: &[Runnable<'a>]) -> usize {
        let ready = || jobs.iter().filter(|job| job.is_ready());
        let writing: usize = ready().map(|job| job.sequences.len()).sum();
        let share = if ready().count() == jobs.len() { 1 } else { 2 };
        (self.budget / share).saturating_sub(writing).min(self.spare_rows / share)
    }

    /// Adds the newest id of a job, and as many guesses as pages and `spare` tokens have room for.
    fn add_decode(&mut self, job: &Runnable<'a>, spare: &mut usize) {
        let n_sequences = job.sequences.len();
        if self.budget < n_sequences || job.sequences.iter().any(Cursor::lacks_page) {
            return;
        }
        let room = job.sequences.iter().map(|cursor| cursor.sequence.room()).min().unwrap_or(0);
        let drafted = job.guessed.len().saturating_sub(1).min(room).min(*spare / n_sequences);
        *spare -= drafted * n_sequences;
        self.spare_rows -= drafted * n_sequences;
        let logits = match (drafted, n_sequences) {
            (0, 1) => LogitUse::Choice,
            (0, _) => LogitUse::Mix,
            _ => LogitUse::Check { drafted },
        };
        for (sequence, cursor) in job.sequences.iter().enumerate() {
            let (job_idx, tokens, is_prompt) = (job.job, 1 + drafted, false);
            let row = PlannedRow { job: job_idx, sequence, tokens, is_prompt, logits };
            match drafted {
                0 => self.add(cursor, row),
                _ => self.add_ids(cursor, row, &job.guessed[..tokens]),
            }
        }
    }

    fn add_prefill(&mut self, job: &mut Runnable<'a>) {
        let alone = job.sequences.len() == 1;
        for (sequence, cursor) in job.sequences.iter_mut().enumerate() {
            if self.budget == 0 {
                return;
            }
            self.find_cached(job.job, sequence, cursor);
            if self.is_coming(cursor) {
                continue;
            }
            let len = cursor.sequence.ids.len();
            // Several prompts need their logits in one step, so each waits before its last id.
            let tokens = self.chunk(cursor, len - usize::from(!alone));
            let scored_max = SCORED_ROWS_MAX.min(1 + self.spare_rows);
            let tokens = if job.scores { tokens.min(scored_max) } else { tokens };
            if tokens == 0 {
                continue;
            }
            if job.scores {
                self.spare_rows -= tokens - 1;
            }
            let choice = cursor.kv + tokens == len;
            let logits = match (job.scores, choice) {
                (true, choice) => LogitUse::Score { choice },
                (false, true) => LogitUse::Choice,
                (false, false) => LogitUse::None,
            };
            self.note_coming(cursor, tokens);
            let (job, is_prompt) = (job.job, true);
            self.add(cursor, PlannedRow { job, sequence, tokens, is_prompt, logits });
        }
        if job.is_ready() && !self.rows.iter().any(|row| row.job == job.job) {
            self.add_decode(job, &mut 0);
        }
    }

    /// Adds a row of the sequence's own ids.
    fn add(&mut self, cursor: &Cursor<'a>, row: PlannedRow) {
        let Cursor { sequence, kv } = *cursor;
        self.add_ids(cursor, row, &sequence.ids[kv..kv + row.tokens]);
    }

    fn add_ids(&mut self, cursor: &Cursor<'a>, row: PlannedRow, ids: &'a [u32]) {
        let Cursor { sequence, kv } = *cursor;
        let shared = cursor.page_range(row.tokens).filter(|idx| *idx < sequence.keys.len());
        self.filling.extend(shared.map(|idx| sequence.pages[idx]));
        self.budget -= row.tokens;
        let step_row = StepRow::new(ids, kv, &sequence.pages, row.logits);
        self.step_rows.push(StepRow { adapters: &sequence.adapters, ..step_row });
        self.rows.push(row);
    }

    /// Moves over what the cache has.
    fn find_cached(&mut self, job: usize, sequence: usize, cursor: &mut Cursor<'a>) {
        let end = cursor.sequence.filled_until(cursor.kv, |page| self.fill(page));
        let filled = end - cursor.kv;
        cursor.kv = end;
        let copy = self.find_copy(cursor);
        if let Some(copy) = copy {
            cursor.kv += copy.tokens - end % PAGE_TOKENS;
        }
        if filled > 0 || copy.is_some() {
            self.reuse.push(Reuse { job, sequence, filled, copy });
        }
    }

    fn find_copy(&self, cursor: &Cursor<'a>) -> Option<PageCopy> {
        let (to, ids) = cursor.unfinished_page()?;
        if self.filling.contains(&to) {
            return None;
        }
        // What earlier copies of this plan bring is no better than where they take it from.
        let (from, tokens) = self.table.partial_match(to, ids)?;
        let enough = cursor.kv % PAGE_TOKENS + self.copy_tokens_min();
        (tokens >= enough).then_some(PageCopy { from, to, tokens })
    }

    /// Valid slots of a page once all copies so far are made.
    fn fill(&self, page: PageIdx) -> usize {
        let copies = self.reuse.iter().filter_map(|reuse| reuse.copy);
        let newest = copies.rev().find(|copy| copy.to == page);
        newest.map_or_else(|| self.table.fill(page), |copy| copy.tokens)
    }

    /// Whether another prompt computes, in this very step, what the sequence needs next, so that it can
    /// be copied in the next step.
    fn is_coming(&self, cursor: &Cursor<'a>) -> bool {
        let Some((own, ids)) = cursor.unfinished_page() else { return false };
        let parent = self.table.parent(own);
        let enough = cursor.kv % PAGE_TOKENS + self.copy_tokens_min();
        let common = |coming: &[u32]| coming.iter().zip(ids).take_while(|(a, b)| a == b).count();
        self.coming.iter().any(|(other, coming)| *other == parent && common(coming) >= enough)
    }

    fn copy_tokens_min(&self) -> usize {
        self.options.copy_tokens_min.max(1)
    }

    /// How many tokens the sequence may feed, up to position `end`.
    fn chunk(&self, cursor: &Cursor<'a>, end: usize) -> usize {
        let Cursor { sequence, kv: start } = *cursor;
        let cap = self.options.chunk_tokens.unwrap_or(usize::MAX).max(1).min(self.budget);
        let mut stop = end.min(start.saturating_add(cap)).min(sequence.pages.len() * PAGE_TOKENS);
        for idx in start / PAGE_TOKENS..sequence.keys.len().min(stop.div_ceil(PAGE_TOKENS)) {
            let page = sequence.pages[idx];
            let begins = idx * PAGE_TOKENS;
            let someone_filled = begins > start && self.fill(page) > 0;
            if self.filling.contains(&page) || someone_filled {
                stop = stop.min(begins.max(start));
                break;
            }
        }
        stop.saturating_sub(start)
    }

    /// Remembers what the row puts into pages whose place is known.
    fn note_coming(&mut self, cursor: &Cursor<'a>, tokens: usize) {
        let Cursor { sequence, kv } = *cursor;
        for idx in cursor.page_range(tokens) {
            let parent = self.table.parent(sequence.pages[idx]);
            if parent != Parent::Detached {
                let end = (kv + tokens).min((idx + 1) * PAGE_TOKENS);
                self.coming.push((parent, &sequence.ids[idx * PAGE_TOKENS..end]));
            }
        }
    }
}

#[cfg(test)]
mod tests;
