//! `DraftModel`: a small model that guesses, with a cache of its own under the same page table.
//!
//! It writes to the pages of the sequences it follows, and keeps a record of which ids lie in each of
//! its pages and what came before them. What a sequence finds of itself there is used, whoever wrote
//! it, and anything else is computed again: so nobody has to tell it about preemption, rewinds,
//! copies or wrong guesses, and what it knows can be wrong about nothing.

use std::time::Instant;

use pagella_backend::{LogitUse, PAGE_TOKENS, StepPlan, StepRow};
use pagella_text::Tokenizer;

use super::{Vocabularies, VocabularyError};
use crate::job::Sequence;
use crate::pages::{PageIdx, Parent};
use crate::{EngineError, Forward};

/// Rows that bring at most this many tokens want logits of all of them: a device then runs their step
/// from a recording.
const RECORDED_TOKENS: usize = 8;
/// Tokens of the largest step that a device records. In larger ones rows want the logits they need only:
/// each is as long as the vocabulary.
const RECORDED_STEP_TOKENS: usize = 128;

/// A model that guesses for another.
pub struct DraftModel {
    forward: Box<dyn Forward>,
    vocabularies: Vocabularies,
    /// What lies in each page of its cache.
    pages: Vec<DraftPage>,
}

/// The leading slots of a page.
#[derive(Clone, Debug, Default)]
struct DraftPage {
    /// What came before the page when it was written; `None`: that is not known.
    before: Option<Parent>,
    /// Ids of the model that is drafted for.
    ids: Vec<u32>,
}

/// A sequence that wants guesses.
pub(crate) struct DraftRow<'a> {
    pub sequence: &'a Sequence,
    /// How many.
    pub depth: usize,
    /// The answer; empty where the draft model has to catch up first.
    pub guesses: Vec<u32>,
}

/// What guessing took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Drafted {
    /// Rows that were guessed for.
    pub rows: usize,
    /// Steps of the draft model.
    pub levels: usize,
    /// Seconds of all of them, where they were all of few tokens.
    pub seconds: Option<f64>,
}

/// A row of the draft model's steps.
struct Following {
    /// Index among the asking rows.
    row: usize,
    /// Its newest ids, as the draft model's, that are not in the cache.
    fresh: Vec<u32>,
    /// Tokens in the cache.
    past: usize,
}

impl DraftModel {
    /// A draft model for the model with tokenizer `model`. Its cache must be at least as
    /// large as that model's.
    pub fn new(
        forward: Box<dyn Forward>,
        draft: &Tokenizer,
        model: &Tokenizer,
    ) -> Result<Self, VocabularyError> {
        let vocabularies = Vocabularies::new(draft, model)?.within(forward.spec().vocab);
        let n_pages = forward.cache_tokens() / PAGE_TOKENS;
        Ok(DraftModel { forward, vocabularies, pages: vec![DraftPage::default(); n_pages] })
    }

    /// The model inside.
    pub fn forward(&self) -> &dyn Forward {
        self.forward.as_ref()
    }

    /// Whether ids are translated between the two models.
    pub fn translates(&self) -> bool {
        self.vocabularies.translates()
    }

    /// Longest sequence that it can follow, in tokens.
    pub(crate) fn capacity(&self) -> usize {
        self.forward.spec().context.min(self.pages.len() * PAGE_TOKENS)
    }

    /// Guesses for every row, until its best id is less likely than `probability_min`. A row with more
    /// to catch up with than a step takes gets a part of that and no guesses.
    pub(crate) fn draft(
        &mut self,
        rows: &mut [DraftRow<'_>],
        probability_min: f32,
    ) -> Result<Drafted, EngineError> {
        let started = Instant::now();
        let (behind, following) = self.sort(rows);
        if !behind.is_empty() {
            let plan = plan_of(rows, &behind, |_| LogitUse::None)?;
            behind.iter().for_each(|of| self.begin_write(rows, of, 0));
            self.forward.launch(&plan)?;
            behind.iter().for_each(|row| self.note(rows, row));
        }
        if following.is_empty() {
            return Ok(Drafted::default());
        }
        let few =
            behind.is_empty() && following.iter().all(|row| row.fresh.len() <= RECORDED_TOKENS);
        let n_rows = following.len();
        let levels = match self.forward.narrows() {
            true => self.draft_at_once(rows, following, probability_min)?,
            false => self.draft_by_level(rows, following, probability_min)?,
        };
        let seconds = few.then(|| started.elapsed().as_secs_f64());
        Ok(Drafted { rows: n_rows, levels, seconds })
    }

    /// Which rows have to catch up, with the next tokens of each, and which can be guessed for.
    fn sort(&self, rows: &[DraftRow<'_>]) -> (Vec<Following>, Vec<Following>) {
        let mut budget = self.forward.step_tokens_max();
        let (mut behind, mut following) = (Vec::new(), Vec::new());
        let mut written: Vec<PageIdx> = Vec::new();
        // Any row may go as far as the one that goes furthest.
        let depth = rows.iter().map(|row| row.depth).max().unwrap_or(0);
        for (row, DraftRow { sequence, .. }) in rows.iter().enumerate() {
            let past = self.held(sequence);
            let missing = sequence.ids.len() - past;
            let tokens = missing.min(budget);
            let end = past + if tokens == missing { missing + depth } else { tokens };
            let pages = past / PAGE_TOKENS..end.div_ceil(PAGE_TOKENS).min(sequence.pages.len());
            let pages = &sequence.pages[pages];
            // A page that two rows of one step would write waits for the next step.
            if tokens == 0 || pages.iter().any(|page| written.contains(page)) {
                continue;
            }
            written.extend_from_slice(pages);
            budget -= tokens;
            let fresh = sequence.ids[past..past + tokens].iter();
            let fresh = fresh.map(|id| self.vocabularies.to_draft(*id)).collect();
            let next = Following { row, fresh, past };
            if tokens == missing { &mut following } else { &mut behind }.push(next);
        }
        (behind, following)
    }

    /// Runs every level without asking in between, as a device likes it. Rows run together whose pages
    /// have room for the deepest of them, and keep as many guesses as each wants.
    fn draft_at_once(
        &mut self,
        rows: &mut [DraftRow<'_>],
        mut following: Vec<Following>,
        probability_min: f32,
    ) -> Result<usize, EngineError> {
        let mut all_levels = 0;
        while let Some(levels) = following.iter().map(|of| rows[of.row].depth).max() {
            let has_room = |of: &Following| {
                let DraftRow { sequence, depth, .. } = &rows[of.row];
                let len = sequence.ids.len() + levels - 1;
                *depth == levels || (levels - 1 <= sequence.room() && len <= self.capacity())
            };
            let (together, later) = following.into_iter().partition(has_room);
            self.draft_levels(rows, together, levels, probability_min)?;
            all_levels += levels;
            following = later;
        }
        Ok(all_levels)
    }

    /// Runs so many levels of rows that have room for them.
    fn draft_levels(
        &mut self,
        rows: &mut [DraftRow<'_>],
        following: Vec<Following>,
        levels: usize,
        probability_min: f32,
    ) -> Result<(), EngineError> {
        let plan = plan_of(rows, &following, wanted(&following))?;
        let pages: Vec<&[u32]> =
            following.iter().map(|of| rows[of.row].sequence.pages.as_slice()).collect();
        following.iter().for_each(|of| self.begin_write(rows, of, levels - 1));
        let mut guesses = Vec::new();
        let vocab = self.vocabularies.draft_tokens();
        self.forward.draft(&plan, &pages, levels, vocab, &mut guesses)?;
        for (idx, of) in following.iter().enumerate() {
            let by_level = guesses.iter().skip(idx).step_by(following.len());
            let likely = by_level.take_while(|guess| guess.probability >= probability_min);
            let ids = likely.map(|guess| self.vocabularies.to_model(guess.id));
            rows[of.row].guesses = ids.take(rows[of.row].depth).collect();
            self.note(rows, of);
            // What was fed beyond the guesses that are kept is not recorded, and so never used.
            self.note_guesses(&rows[of.row], levels - 1);
        }
        Ok(())
    }

    /// Runs level by level, without the rows whose best id is not likely enough.
    fn draft_by_level(
        &mut self,
        rows: &mut [DraftRow<'_>],
        mut following: Vec<Following>,
        probability_min: f32,
    ) -> Result<usize, EngineError> {
        let vocab = self.vocabularies.draft_tokens();
        let (mut guesses, mut levels) = (Vec::new(), 0);
        while !following.is_empty() {
            let plan = plan_of(rows, &following, wanted(&following))?;
            let pages: Vec<&[u32]> =
                following.iter().map(|of| rows[of.row].sequence.pages.as_slice()).collect();
            following.iter().for_each(|of| self.begin_write(rows, of, 0));
            self.forward.draft(&plan, &pages, 1, vocab, &mut guesses)?;
            let mut next = Vec::new();
            for (of, guess) in following.into_iter().zip(&guesses) {
                match levels {
                    0 => self.note(rows, &of),
                    _ => self.note_guesses(&rows[of.row], levels),
                }
                let row = &mut rows[of.row];
                if guess.probability < probability_min {
                    continue;
                }
                row.guesses.push(self.vocabularies.to_model(guess.id));
                if row.guesses.len() < row.depth {
                    let past = of.past + of.fresh.len();
                    next.push(Following { row: of.row, fresh: vec![guess.id], past });
                }
            }
            following = next;
            levels += 1;
        }
        Ok(levels)
    }

    /// How many leading ids of a sequence are in the cache; never the newest, which must be fed.
    fn held(&self, sequence: &Sequence) -> usize {
        let mut held = 0;
        for (idx, page) in sequence.pages.iter().enumerate() {
            let Some(known) = self.pages.get(*page as usize) else { break };
            if known.before.is_none() || known.before != sequence.parent(idx) {
                break;
            }
            let own = sequence.ids.get(idx * PAGE_TOKENS..).unwrap_or_default();
            let same = known.ids.iter().zip(own).take_while(|(a, b)| a == b).count();
            held += same;
            if same < PAGE_TOKENS {
                break;
            }
        }
        held.min(sequence.ids.len().saturating_sub(1))
    }

    /// Forgets what lies where the fresh ids of a row and `more` after them are about to be written, and
    /// behind that: it is not there any more once a step was launched, whatever becomes of it.
    fn begin_write(&mut self, rows: &[DraftRow<'_>], of: &Following, more: usize) {
        let pages = &rows[of.row].sequence.pages;
        let end = of.past + of.fresh.len() + more;
        let touched = of.past / PAGE_TOKENS..end.div_ceil(PAGE_TOKENS);
        for (idx, page) in pages.iter().enumerate().filter(|(idx, _)| touched.contains(idx)) {
            if let Some(known) = self.pages.get_mut(*page as usize) {
                known.ids.truncate(of.past.saturating_sub(idx * PAGE_TOKENS));
            }
        }
    }

    /// Records that the fresh ids of a row are in the cache.
    fn note(&mut self, rows: &[DraftRow<'_>], of: &Following) {
        let sequence = rows[of.row].sequence;
        let end = of.past + of.fresh.len();
        self.record(sequence, of.past, &sequence.ids[of.past..end]);
    }

    /// Records that the first `fed` guesses of a row are in the cache.
    fn note_guesses(&mut self, row: &DraftRow<'_>, fed: usize) {
        let fed = &row.guesses[..fed.min(row.guesses.len())];
        self.record(row.sequence, row.sequence.ids.len(), fed);
    }

    fn record(&mut self, sequence: &Sequence, mut at: usize, mut ids: &[u32]) {
        while !ids.is_empty() {
            let (idx, offset) = (at / PAGE_TOKENS, at % PAGE_TOKENS);
            let (now, later) = ids.split_at(ids.len().min(PAGE_TOKENS - offset));
            let Some(page) = sequence.pages.get(idx) else { return };
            let Some(known) = self.pages.get_mut(*page as usize) else { return };
            if offset == 0 {
                known.before = sequence.parent(idx);
            }
            known.ids.truncate(offset);
            known.ids.extend_from_slice(now);
            (at, ids) = (at + now.len(), later);
        }
    }
}

/// What logits a row of the first step wants: the last, or all of few.
fn wanted(following: &[Following]) -> impl Fn(usize) -> LogitUse {
    let few = following.iter().map(|of| of.fresh.len()).sum::<usize>() <= RECORDED_STEP_TOKENS;
    move |tokens| match few && tokens <= RECORDED_TOKENS {
        true => LogitUse::last(tokens),
        false => LogitUse::Choice,
    }
}

fn plan_of(
    rows: &[DraftRow<'_>],
    following: &[Following],
    logits: impl Fn(usize) -> LogitUse,
) -> Result<StepPlan, EngineError> {
    let of_row = |of: &Following| rows[of.row].sequence.pages.as_slice();
    let rows: Vec<StepRow<'_>> = following
        .iter()
        .map(|of| StepRow::new(&of.fresh, of.past, of_row(of), logits(of.fresh.len())))
        .collect();
    Ok(StepPlan::new(&rows)?)
}

#[cfg(test)]
mod tests;
