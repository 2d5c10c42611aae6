//! What the next step computes: one token of every job that writes, then prompts in order of start.
//!
//! A row starts where its sequence stands in the cache and never writes what someone else writes in
//! the same step or has written before: shared pages are skipped as far as they are filled, and a
//! chunk ends in front of a shared page that another row fills.

use std::time::Instant;

use pagella_backend::{PAGE_TOKENS, PlanError, StepPlan, StepRow};

use crate::job::{Job, JobState, Sequence};
use crate::pages::{PageIdx, PageTable, Parent};
use crate::schedule::GeneratorOptions;
use crate::{EngineError, Forward};

/// Rows of logits of one step that score a prompt, at most: each is as long as the vocabulary.
const SCORED_ROWS_MAX: usize = 32;

/// A sequence's share of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlannedRow {
    /// Index among the active jobs.
    pub job: usize,
    /// Index among the job's sequences.
    pub sequence: usize,
    /// New tokens.
    pub tokens: usize,
    /// Whether the logits of the last one are wanted, to choose an id.
    pub logits: bool,
    /// How many logits are wanted besides, of the tokens before: they score ids of the prompt.
    pub scored: usize,
}

impl PlannedRow {
    /// Rows of logits.
    pub fn logit_rows(&self) -> usize {
        self.scored + usize::from(self.logits)
    }
}

/// A step and whose it is.
pub(crate) struct Planned {
    pub plan: StepPlan,
    pub rows: Vec<PlannedRow>,
    /// Tokens of prompts among the plan's.
    pub prefill_tokens: usize,
}

/// Collects the rows of one step.
pub(crate) struct Planner<'a> {
    table: &'a mut PageTable,
    forward: &'a mut dyn Forward,
    options: &'a GeneratorOptions,
    /// Tokens that still fit.
    budget: usize,
    rows: Vec<PlannedRow>,
    /// Pages with a key that some row of this step writes.
    filling: Vec<PageIdx>,
    /// What the prompts of this step put into pages: what comes before a page, and its ids.
    coming: Vec<(Parent, Vec<u32>)>,
    prefill_tokens: usize,
}

impl<'a> Planner<'a> {
    pub fn new(
        table: &'a mut PageTable,
        forward: &'a mut dyn Forward,
        options: &'a GeneratorOptions,
    ) -> Self {
        let most = forward.step_tokens_max();
        let budget = options.step_tokens.map_or(most, |tokens| tokens.min(most));
        Planner {
            table,
            forward,
            options,
            budget,
            rows: Vec::new(),
            filling: Vec::new(),
            coming: Vec::new(),
            prefill_tokens: 0,
        }
    }

    /// Plans a step of the jobs that do not rest. `None`: there is nothing to do.
    pub fn plan(mut self, active: &mut [Job]) -> Result<Option<Planned>, EngineError> {
        for (idx, job) in active.iter_mut().enumerate() {
            if !job.resting && job.is_ready() {
                self.add_decode(idx, job);
            }
        }
        if let (Some(limit), false) =
            (self.options.prefill_tokens_while_decoding, self.rows.is_empty())
        {
            self.budget = self.budget.min(limit.max(1));
        }
        let n_writing = self.rows.len();
        for (idx, job) in active.iter_mut().enumerate() {
            let writes = self.rows[..n_writing].binary_search_by_key(&idx, |row| row.job).is_ok();
            if !job.resting && !writes {
                self.add_prefill(idx, job)?;
            }
        }
        Ok(self.finish(active)?)
    }

    fn add_decode(&mut self, idx: usize, job: &mut Job) {
        if self.budget < job.sequences.len() || job.sequences.iter().any(lacks_page) {
            return;
        }
        job.state = JobState::Decode;
        job.clock.prefill.get_or_insert_with(Instant::now);
        self.budget -= job.sequences.len();
        job.sequences.iter().for_each(|sequence| self.note_writes(sequence, 1));
        let rows = (0..job.sequences.len()).map(|sequence| PlannedRow {
            job: idx,
            sequence,
            tokens: 1,
            logits: true,
            scored: 0,
        });
        self.rows.extend(rows);
    }

    fn add_prefill(&mut self, idx: usize, job: &mut Job) -> Result<(), EngineError> {
        let alone = job.sequences.len() == 1;
        for sequence_idx in 0..job.sequences.len() {
            if self.budget == 0 {
                return Ok(());
            }
            job.clock.prefill.get_or_insert_with(Instant::now);
            let sequence = &mut job.sequences[sequence_idx];
            // Several prompts need their logits in one step, so each waits before its last id.
            let end = sequence.ids.len() - usize::from(!alone);
            let found = self.reuse(sequence)?;
            if job.preemptions == 0 && job.new_tokens == 0 {
                job.cached_tokens += found;
            }
            if self.is_coming(sequence) {
                continue;
            }
            let scores = job.spec.return_prompt_logprobs.is_some() && job.new_tokens == 0;
            let tokens = self.chunk(sequence, end);
            let tokens = if scores { tokens.min(SCORED_ROWS_MAX) } else { tokens };
            if tokens == 0 {
                continue;
            }
            let logits = sequence.kv + tokens == sequence.ids.len();
            let scored = if scores { tokens - usize::from(logits) } else { 0 };
            self.note_writes(sequence, tokens);
            self.note_coming(sequence, tokens);
            self.budget -= tokens;
            self.prefill_tokens += tokens;
            self.rows.push(PlannedRow { job: idx, sequence: sequence_idx, tokens, logits, scored });
        }
        if job.is_ready() && !self.rows.iter().any(|row| row.job == idx) {
            self.add_decode(idx, job);
        }
        Ok(())
    }

    /// Moves over what the cache has: pages that others filled, then the beginning of a page that
    /// someone else filled differently further on. Returns the tokens gained.
    fn reuse(&mut self, sequence: &mut Sequence) -> Result<usize, EngineError> {
        let gained = sequence.skip_filled(self.table);
        let Some((own, ids)) = unfinished_page(sequence) else { return Ok(gained) };
        if self.filling.contains(&own) {
            return Ok(gained);
        }
        let at = sequence.kv % PAGE_TOKENS;
        let Some((from, common)) = self.table.partial_match(own, ids) else { return Ok(gained) };
        if common < at + self.copy_tokens_min() {
            return Ok(gained);
        }
        self.table.begin_write(own);
        self.forward.copy_page_prefix(from, own, common)?;
        sequence.commit(common - at, self.table);
        Ok(gained + common - at)
    }

    /// Whether another prompt computes, in this very step, what the sequence needs next, so that it can
    /// be copied in the next step.
    fn is_coming(&self, sequence: &Sequence) -> bool {
        let Some((own, ids)) = unfinished_page(sequence) else { return false };
        let parent = self.table.parent(own);
        let enough = sequence.kv % PAGE_TOKENS + self.copy_tokens_min();
        let common = |coming: &[u32]| coming.iter().zip(ids).take_while(|(a, b)| a == b).count();
        self.coming.iter().any(|(other, coming)| *other == parent && common(coming) >= enough)
    }

    fn copy_tokens_min(&self) -> usize {
        self.options.copy_tokens_min.max(1)
    }

    /// How many tokens the sequence may feed, up to position `end`.
    fn chunk(&self, sequence: &Sequence, end: usize) -> usize {
        let start = sequence.kv;
        let cap = self.options.chunk_tokens.unwrap_or(usize::MAX).max(1).min(self.budget);
        let mut stop = end.min(start.saturating_add(cap)).min(sequence.pages.len() * PAGE_TOKENS);
        for idx in start / PAGE_TOKENS..sequence.keys.len().min(stop.div_ceil(PAGE_TOKENS)) {
            let page = sequence.pages[idx];
            let begins = idx * PAGE_TOKENS;
            let someone_filled = begins > start && self.table.fill(page) > 0;
            if self.filling.contains(&page) || someone_filled {
                stop = stop.min(begins.max(start));
                break;
            }
        }
        stop.saturating_sub(start)
    }

    /// Remembers which pages the row writes, and among them the shared ones.
    fn note_writes(&mut self, sequence: &Sequence, tokens: usize) {
        let pages = sequence.kv / PAGE_TOKENS..(sequence.kv + tokens).div_ceil(PAGE_TOKENS);
        for idx in pages {
            let page = sequence.pages[idx];
            self.table.begin_write(page);
            if idx < sequence.keys.len() {
                self.filling.push(page);
            }
        }
    }

    /// Remembers what the row puts into pages whose place is known.
    fn note_coming(&mut self, sequence: &Sequence, tokens: usize) {
        let end = sequence.kv + tokens;
        for idx in sequence.kv / PAGE_TOKENS..end.div_ceil(PAGE_TOKENS) {
            let parent = self.table.parent(sequence.pages[idx]);
            if parent != Parent::Detached {
                let ids = &sequence.ids[idx * PAGE_TOKENS..end.min((idx + 1) * PAGE_TOKENS)];
                self.coming.push((parent, ids.to_vec()));
            }
        }
    }

    fn finish(self, active: &[Job]) -> Result<Option<Planned>, PlanError> {
        if self.rows.is_empty() {
            return Ok(None);
        }
        let rows: Vec<StepRow<'_>> = self
            .rows
            .iter()
            .map(|row| {
                let sequence = &active[row.job].sequences[row.sequence];
                StepRow {
                    ids: &sequence.ids[sequence.kv..sequence.kv + row.tokens],
                    past: sequence.kv,
                    pages: &sequence.pages,
                    logits_last: row.logit_rows(),
                }
            })
            .collect();
        let plan = StepPlan::new(&rows)?;
        Ok(Some(Planned { plan, rows: self.rows, prefill_tokens: self.prefill_tokens }))
    }
}

/// Whether the page for the newest id is missing; the job then waits for one.
fn lacks_page(sequence: &Sequence) -> bool {
    sequence.pages.len() < Sequence::pages_for(sequence.ids.len())
}

/// The page that the next id of a prompt goes to, and all ids that belong there; the last id of the
/// prompt is not among them, because it must be computed.
fn unfinished_page(sequence: &Sequence) -> Option<(PageIdx, &[u32])> {
    let last = sequence.ids.len().saturating_sub(1);
    let idx = sequence.kv / PAGE_TOKENS;
    let page = *sequence.pages.get(idx)?;
    let begins = idx * PAGE_TOKENS;
    (sequence.kv < last).then(|| (page, &sequence.ids[begins..last.min(begins + PAGE_TOKENS)]))
}
