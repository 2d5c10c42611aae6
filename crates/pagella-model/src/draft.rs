//! Drafts: the likeliest ids after every row, several of them, found without asking the host.
//!
//! A draft is a step and then steps of one token per row, each of which takes as its ids what the one
//! before it has guessed. With one stage nothing is read until the last of them is enqueued; several
//! stages lie on different machines, so that ids pass through the host.

use pagella_arch::ModelSpec;
use pagella_backend::{Backend, GUESS_LEVELS_MAX, Guess, GuessLevels, StepPlan};

use crate::cache::Cache;
use crate::error::ModelError;
use crate::forward::TappedStates;
use crate::model::Model;

/// Refuses drafts of no ids or too many, and vocabularies that the model does not have.
pub fn check_draft(spec: &ModelSpec, n: usize, vocab: usize) -> Result<(), ModelError> {
    let within = |option, value, max| match (1..=max).contains(&value) {
        true => Ok(()),
        false => Err(ModelError::BadOption { option, value, min: 1, max }),
    };
    within("the number of drafted ids", n, GUESS_LEVELS_MAX)?;
    within("the vocabulary of a draft", vocab, spec.vocab)
}

impl<B: Backend> Model<B> {
    /// Runs the plan, of which every row asks for logits, and goes on for `n` ids: each is the
    /// likeliest of the first `vocab` after those before it. Replaces `out` by them, `[n, rows]`.
    ///
    /// `pages`: those of every row, in order, beginning with its pages in the plan. They reach far
    /// enough for all but the last of the ids, whose keys and values are not computed. Nothing runs
    /// if something does not fit. Afterwards there are no logits to read.
    pub fn draft(
        &mut self,
        plan: &StepPlan,
        pages: &[&[u32]],
        n: usize,
        vocab: usize,
        cache: &mut Cache<B>,
        out: &mut Vec<Guess>,
    ) -> Result<(), ModelError> {
        out.clear();
        self.clear_logits();
        check_draft(self.spec(), n, vocab)?;
        let mut later: Vec<StepPlan> = Vec::with_capacity(n - 1);
        for _ in 1..n {
            let next = later.last().unwrap_or(plan).continued(pages)?;
            later.push(next);
        }
        let logits = (plan.logit_tokens().len(), self.spec().vocab);
        GuessLevels::default().and_one(plan, logits, vocab)?;
        // The last plan reaches furthest, and is as wide as the others.
        self.check_plan(plan)?;
        later.last().map_or(Ok(()), |last| self.check_plan(last))?;
        let done = self.run_draft(plan, later, vocab, cache, out);
        self.clear_logits();
        if done.is_err() {
            out.clear();
            self.stages.iter_mut().for_each(|stage| stage.forget_guesses());
        }
        done
    }

    /// Runs plans that were checked, each of which follows the one before.
    fn run_draft(
        &mut self,
        first: &StepPlan,
        later: Vec<StepPlan>,
        vocab: usize,
        cache: &mut Cache<B>,
        out: &mut Vec<Guess>,
    ) -> Result<(), ModelError> {
        let mut states = TappedStates::new(&[], self.spec().layers.len())?;
        let passes_host = self.stages.len() > 1;
        self.run(first, cache, &mut states, Some(vocab))?;
        let mut level = Vec::new();
        for mut plan in later {
            if passes_host {
                self.read_guesses(&mut level)?;
                plan.fill_ids(&level.iter().map(|guess| guess.id).collect::<Vec<_>>())?;
                out.append(&mut level);
            }
            self.run(&plan, cache, &mut states, Some(vocab))?;
        }
        self.read_guesses(&mut level)?;
        out.append(&mut level);
        Ok(())
    }

    fn read_guesses(&mut self, out: &mut Vec<Guess>) -> Result<(), ModelError> {
        self.stages.last_mut().map_or(Ok(()), |last| last.read_guesses(out))
    }
}

#[cfg(test)]
mod tests {
    use pagella_backend::{KvFormat, LogitUse, StepRow};

    use crate::stage::tests::model;

    use super::*;

    #[test]
    fn stages_that_pass_ids_through_the_host_draft_the_same() {
        let draft = |stages: usize| {
            let mut model = model(stages);
            let mut kv = model.new_kv(KvFormat::F16, 512).unwrap();
            let rows = [
                StepRow::new(&[1, 2, 3, 4], 0, &[1], LogitUse::Choice),
                StepRow::new(&[9], 0, &[0], LogitUse::Choice),
            ];
            let plan = StepPlan::new(&rows).unwrap();
            let mut out = Vec::new();
            model.draft(&plan, &[&[1], &[0]], 6, 4000, &mut kv, &mut out).unwrap();
            out
        };
        let whole = draft(1);
        assert_eq!(whole.len(), 6 * 2);
        assert!(whole.iter().all(|guess| guess.probability > 0.0 && guess.probability <= 1.0));
        assert_eq!(draft(2), whole);
        assert_eq!(draft(3), whole);
    }
}
