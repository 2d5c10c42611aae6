//! `JobDraft`: what one job's next ids are guessed to be, and how guesses fared.
//!
//! Guesses change nothing but how many ids a step writes: each is checked against what the job itself
//! chooses there.

use std::time::Duration;

use super::acceptance::{Acceptance, Source};
use super::lookup::{Cursor, History, MATCH_IDS_MAX, SuffixAutomaton};
use super::rehearsal::Rehearsal;
use super::{DraftDepth, DraftOptions};
use crate::job::JobOptions;

/// Shortest match that a guess is taken from, in ids.
const MATCH_IDS_MIN: usize = 2;

/// The guesses of one job.
pub(crate) struct JobDraft {
    /// How many ids it wants guessed; `None`: what the engine was told.
    pub depth: Option<DraftDepth>,
    /// The newest id and guesses of those after it; empty without guesses.
    fed: Vec<u32>,
    /// Where the guesses came from.
    source: Source,
    /// A guess that was not checked: its place among the ids, itself, and where it came from.
    unchecked: Option<(usize, u32, Source)>,
    /// What was found right or wrong since the engine last asked.
    judged: Vec<(Source, bool)>,
    acceptance: Acceptance,
    /// The job's own ids, once lookups begin.
    history: Option<History>,
    indexed: usize,
    prediction: Option<History>,
    /// Its place in the texts of recent jobs.
    cursor: Cursor,
    pub rehearsal: Option<Rehearsal>,
    /// Guesses that were right.
    pub accepted: usize,
    /// Guesses that were wrong, and those behind them.
    pub rejected: usize,
    /// Those of the two that came from its prediction.
    pub predicted: (usize, usize),
    /// Steps that checked guesses.
    pub steps: usize,
    /// Its share of the time that guessing took.
    pub time: Duration,
}

impl JobDraft {
    /// Takes what the options say of guesses out of them.
    pub fn new(options: &mut JobOptions) -> Self {
        let prediction = std::mem::take(&mut options.prediction);
        let history = |ids: Vec<u32>| {
            let mut history = History::new(MATCH_IDS_MIN);
            history.push(&ids);
            history
        };
        JobDraft {
            depth: options.draft_depth,
            fed: Vec::new(),
            source: Source::Forced,
            unchecked: None,
            judged: Vec::new(),
            acceptance: Acceptance::default(),
            history: None,
            indexed: 0,
            prediction: (!prediction.is_empty()).then(|| history(prediction)),
            cursor: Cursor::default(),
            rehearsal: options.rehearsal.take(),
            accepted: 0,
            rejected: 0,
            predicted: (0, 0),
            steps: 0,
            time: Duration::ZERO,
        }
    }

    /// The newest id and the guesses after it; empty without guesses.
    pub fn fed(&self) -> &[u32] {
        &self.fed
    }

    /// The guesses.
    pub fn guesses(&self) -> &[u32] {
        self.fed.get(1..).unwrap_or_default()
    }

    /// Forgets guesses that were checked or never will be.
    pub fn clear(&mut self) {
        self.fed.clear();
    }

    /// These guesses are to be checked behind `newest`.
    pub fn set(&mut self, newest: u32, guesses: &[u32], source: Source) {
        self.fed.clear();
        if !guesses.is_empty() {
            self.fed.push(newest);
            self.fed.extend_from_slice(guesses);
        }
        self.source = source;
    }

    /// A guess for the id at index `at` that will not be checked. What comes tells how good it was.
    pub fn set_unchecked(&mut self, at: usize, guess: Option<u32>, source: Source) {
        self.unchecked = guess.map(|id| (at, id, source));
    }

    /// Ids from `len` on were taken back.
    pub fn go_back(&mut self, len: usize) {
        if let Some(history) = &mut self.history {
            history.truncate(len);
            self.indexed = self.indexed.min(len);
        }
        self.cursor = Cursor::default();
        self.unchecked = None;
    }

    /// Of the guesses that a step checked, the first `right` were right; `wrong`: the next was not.
    pub fn checked(&mut self, checked: usize, right: usize, wrong: bool) {
        let rejected = if wrong { checked - right } else { 0 };
        self.steps += usize::from(checked > 0);
        (self.accepted, self.rejected) = (self.accepted + right, self.rejected + rejected);
        if let Source::Prediction(_) = self.source {
            self.predicted = (self.predicted.0 + right, self.predicted.1 + rejected);
        }
        self.judged.extend((0..right).map(|_| (self.source, true)));
        if wrong {
            self.judged.push((self.source, false));
        }
    }

    /// Learns from what was judged, and from what came where a guess was not checked, and lets all
    /// jobs learn, too.
    pub fn learn(&mut self, ids: &[u32], others: &mut Acceptance) {
        if let Some((at, guess, source)) = self.unchecked
            && let Some(&id) = ids.get(at)
        {
            self.judged.push((source, id == guess));
            self.unchecked = None;
        }
        for (source, right) in self.judged.drain(..) {
            self.acceptance.note(source, right);
            others.note(source, right);
        }
    }

    /// How likely a guess from this source is right.
    pub fn likely(&self, source: Source, others: &Acceptance) -> f64 {
        self.acceptance.likely(source, others)
    }

    /// Looks for the job's newest ids in its prediction, in its own ids and in `recent` texts: the
    /// longest match wins. Puts what followed it into `out`. What was predicted counts as predicted
    /// wherever it stands, too.
    pub fn look_up(
        &mut self,
        ids: &[u32],
        own: bool,
        recent: Option<&SuffixAutomaton>,
        max: usize,
        out: &mut Vec<u32>,
    ) -> Option<Source> {
        let max = max.min(DraftOptions::GUESSES_MAX);
        let tail = &ids[ids.len().saturating_sub(MATCH_IDS_MAX)..];
        out.clear();
        let mut best = match &self.prediction {
            Some(prediction) => prediction.propose_for(tail, max, out),
            None => 0,
        };
        let mut source = Source::Prediction(best);
        let mut found = Vec::new();
        let mut keep_longer = |matched: usize, found: &mut Vec<u32>| {
            if matched <= best || found.is_empty() {
                return;
            }
            best = matched;
            source = match source {
                Source::Prediction(_) if out.starts_with(found) => Source::Prediction(matched),
                _ => {
                    std::mem::swap(out, found);
                    Source::Lookup(matched)
                }
            };
        };
        if own {
            let history = self.history.get_or_insert_with(|| History::new(MATCH_IDS_MIN));
            history.push(ids.get(self.indexed..).unwrap_or_default());
            self.indexed = ids.len();
            let matched = history.propose(max, &mut found);
            keep_longer(matched, &mut found);
        }
        if let Some(recent) = recent {
            let matched = recent.propose(&mut self.cursor, ids, max, &mut found);
            if matched >= MATCH_IDS_MIN {
                keep_longer(matched, &mut found);
            }
        }
        (best > 0 && !out.is_empty()).then_some(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(prediction: &[u32]) -> JobDraft {
        let prediction = prediction.to_vec();
        JobDraft::new(&mut JobOptions { prediction, ..JobOptions::default() })
    }

    #[test]
    fn the_longest_match_wins_wherever_it_is() {
        let mut out = Vec::new();
        let mut recent = SuffixAutomaton::new(1024);
        [1, 2, 3, 4, 5, 6].iter().for_each(|id| recent.push(*id));
        recent.end_text();
        let ids = [3, 4, 9, 9, 2, 3, 4];
        let mut alone = draft(&[]);
        assert_eq!(alone.look_up(&ids, true, None, 3, &mut out), Some(Source::Lookup(2)));
        assert_eq!(out, [9, 9, 2]);
        assert_eq!(alone.look_up(&ids, true, Some(&recent), 3, &mut out), Some(Source::Lookup(3)));
        assert_eq!(out, [5, 6]);
        let mut told = draft(&[9, 2, 3, 4, 7, 7]);
        let found = told.look_up(&ids, true, Some(&recent), 1, &mut out);
        assert_eq!((found, &out[..]), (Some(Source::Prediction(4)), &[7][..]));
        // Two ids of the prediction, three of another text that goes on in the same way, or in its own.
        for (prediction, source) in
            [([3, 4, 5, 6], Source::Prediction(3)), ([3, 4, 8, 6], Source::Lookup(3))]
        {
            let found = draft(&prediction).look_up(&ids, true, Some(&recent), 2, &mut out);
            assert_eq!((found, &out[..]), (Some(source), &[5, 6][..]));
        }
        assert_eq!(draft(&[]).look_up(&[8], true, Some(&recent), 1, &mut out), None);
    }

    #[test]
    fn a_job_that_went_back_is_as_if_it_had_not_written() {
        let (mut out, mut expected) = (Vec::new(), Vec::new());
        let mut job = draft(&[]);
        job.look_up(&[1, 2, 3, 1, 2, 7, 1, 2], true, None, 2, &mut out);
        assert_eq!(out, [7, 1]);
        job.go_back(5);
        job.look_up(&[1, 2, 3, 1, 2, 8, 1, 2], true, None, 2, &mut out);
        let ids = [1, 2, 3, 1, 2, 8, 1, 2];
        assert_eq!(draft(&[]).look_up(&ids, true, None, 2, &mut expected), Some(Source::Lookup(2)));
        assert_eq!(out, expected);
    }

    #[test]
    fn guesses_behind_a_wrong_one_are_rejected_and_unused_ones_are_neither() {
        let mut job = draft(&[]);
        job.set(5, &[6, 7, 8, 9], Source::Lookup(3));
        assert_eq!((job.fed(), job.guesses()), (&[5, 6, 7, 8, 9][..], &[6, 7, 8, 9][..]));
        job.checked(4, 1, true);
        assert_eq!((job.accepted, job.rejected), (1, 3));
        job.checked(4, 2, false);
        assert_eq!((job.accepted, job.rejected, job.steps), (3, 3, 2));
        assert_eq!(job.predicted, (0, 0), "none of them was predicted");
        job.set(5, &[6, 7], Source::Prediction(3));
        job.checked(2, 1, true);
        assert_eq!((job.accepted, job.rejected, job.predicted), (4, 4, (1, 1)));
        let mut all = Acceptance::default();
        job.set_unchecked(2, Some(7), Source::Model);
        job.learn(&[1, 2], &mut all);
        assert_eq!(all.likely(Source::Model, &Acceptance::default()), 0.6);
        job.learn(&[1, 2, 3], &mut all);
        assert!(all.likely(Source::Model, &Acceptance::default()) < 0.6);
    }
}
