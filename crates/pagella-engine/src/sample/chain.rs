//! The chain from a row to a choice: logits, masks, softmax, probabilities, draw.
//!
//! A row with NaN is an error that names position and count, never a silent choice. +∞ wins
//! outright. Greedy choices never look at the draw.

mod ask;
mod logits;
mod narrowed;
mod probabilities;

use std::sync::Arc;

use super::{
    Bitmask, Breaker, Candidate, Draws, Mt19937, NanPolicy, OptionsError, Rng, SampleError,
    SampleOptions, SamplerState, Scratch, Step, VocabSets, draws, scan,
};

pub use ask::{AskBuffer, Asked};
pub use narrowed::Narrowed;
use probabilities::Kept;

/// What a choice is made from.
#[derive(Debug)]
pub struct Row<'a> {
    /// Logits, shape `[vocab]`. Changed in place to what entered the softmax.
    pub logits: &'a mut [f32],
    /// Prompt and output; the choice is made for the position behind it.
    pub history: &'a [u32],
    /// How many ids of the history are the prompt.
    pub prompt_len: usize,
    /// The only ids that may be chosen; `None` means all.
    pub mask: Option<&'a Bitmask>,
    /// Ids that may not be chosen here: ends that come too early, beginnings of banned strings.
    pub denied: &'a [u32],
    /// How often this position was tried before; another attempt is another draw.
    pub attempt: u32,
    /// How many of the final candidates to report.
    pub top: usize,
}

/// What a step on probabilities may look at besides the candidates.
pub(crate) struct Moment<'a> {
    /// The settings.
    pub options: &'a SampleOptions,
    /// What the job carries from token to token.
    pub state: &'a SamplerState,
    /// The draws of this position.
    pub draws: Draws,
    /// Ids that exclusion of top choices leaves alone.
    pub xtc_ignored: &'a Bitmask,
    /// The candidates as adaptive-p found them, in no order.
    pub before_adaptive: &'a mut Vec<Candidate>,
}

/// A chosen id.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// Token id.
    pub id: u32,
    /// Its probability after every step; 1 for greedy and forced choices.
    pub p: f32,
    /// The most likely final candidates with their probabilities, at most as many as asked for.
    pub top: Vec<(u32, f32)>,
    /// The probability that the denied ids would have had otherwise, masks and temperature applied
    /// (temperature 1 where the choice is greedy); 0 without denied ids.
    pub denied_share: f32,
}

/// Options checked and resolved against a vocabulary. Immutable, so any number of jobs and threads
/// may use one.
#[derive(Clone, Debug)]
pub struct Sampler {
    options: SampleOptions,
    sets: Arc<VocabSets>,
    /// Steps on logits and on probabilities that do something, in their order.
    logit_steps: Vec<Step>,
    probability_steps: Vec<Step>,
    /// Ids that no row may choose: unused and denied ones.
    never: Vec<u32>,
    /// The options' own list of allowed ids.
    allowed: Option<Bitmask>,
    /// What replaces the vocabulary's own sets.
    dry_breakers: Option<Bitmask>,
    xtc_ignored: Option<Bitmask>,
}

impl Sampler {
    /// Checks the options and looks up what they name in the vocabulary.
    pub fn new(options: &SampleOptions, sets: Arc<VocabSets>) -> Result<Self, OptionsError> {
        options.validate()?;
        let vocab = sets.vocab;
        let set = |ids: &Vec<u32>| {
            let mut mask = Bitmask::new_none(vocab);
            ids.iter().for_each(|id| mask.allow(*id));
            mask
        };
        let steps = options.sampler_order.steps().iter().copied().filter(|s| options.uses(*s));
        let (logit_steps, probability_steps) = steps.partition(|step| step.is_on_logits());
        let denied = options.logit_bias.iter().filter(|(_, bias)| **bias == f32::NEG_INFINITY);
        let mut never = sets.unused.clone();
        never.extend(options.deny.iter().chain(denied.map(|(id, _)| id)));
        Ok(Sampler {
            logit_steps,
            probability_steps,
            never,
            allowed: options.allow.as_ref().map(set),
            dry_breakers: breakers(options, &sets)?,
            xtc_ignored: options.xtc_ignore.as_ref().map(set),
            options: options.clone(),
            sets,
        })
    }

    /// The options.
    pub fn options(&self) -> &SampleOptions {
        &self.options
    }

    /// Chooses the id at position `row.history.len()`.
    ///
    /// With denied ids, [`SampleError::NoCandidates`] means that nothing but those is left.
    pub fn pick(
        &self,
        state: &mut SamplerState,
        scratch: &mut Scratch,
        row: Row<'_>,
    ) -> Result<Choice, SampleError> {
        let draws = self.draw(state, row.history.len(), row.attempt);
        self.check_numbers(row.history.len(), row.logits)?;
        self.change_logits(row.history, row.prompt_len, row.logits, scratch);
        self.mask(row.mask, row.logits);
        let denied = self.deny(row.denied, row.logits, scratch);
        let max = scan::maxima(row.logits, scratch);
        let (position, vocab) = (row.history.len(), row.logits.len());
        if max == f32::NEG_INFINITY {
            return Err(SampleError::NoCandidates { position, vocab });
        }
        let denied_share = if denied { self.denied_share(row.logits, max, scratch) } else { 0.0 };
        let first = scan::first_of(row.logits, scratch, max);
        let sure = max == f32::INFINITY || self.is_greedy();
        if sure {
            let top = if row.top > 0 { vec![(first, 1.0)] } else { Vec::new() };
            return Ok(Choice { id: first, p: 1.0, top, denied_share });
        }
        let reach = self.reach(draws, state);
        let none = || SampleError::NoCandidates { position, vocab };
        let (kept, several) =
            self.candidates(row.logits, max, row.top, reach, scratch).ok_or_else(none)?;
        let choice = self.choose(kept, several, row.top, draws, state, scratch);
        Ok(Choice { denied_share, ..choice.ok_or_else(none)? })
    }

    /// The steps behind the first, and the draw.
    fn choose(
        &self,
        kept: Kept<'_>,
        several: bool,
        top: usize,
        draws: Draws,
        state: &mut SamplerState,
        scratch: &mut Scratch,
    ) -> Option<Choice> {
        let (kept, r) = self.change_probabilities(kept, state, draws, scratch)?;
        let (chosen, top) = match kept {
            Kept::Few(mut candidates) => {
                let chosen = candidates.pick(r);
                let top = candidates.first(top).to_vec();
                scratch.list = candidates.into_list();
                (chosen, top)
            }
            Kept::Many(mut spread) => {
                let chosen = spread.pick(r)?;
                if let Some(p) = spread.p_before_fall(chosen.id) {
                    scratch.before.clear();
                    scratch.before.push(Candidate { p, ..chosen });
                }
                let top = spread.first(top);
                scratch.spread = spread.into_buffers();
                (chosen, top)
            }
        };
        self.learn(state, chosen, several, &scratch.before);
        let top = top.iter().map(|c| (c.id, c.p as f32)).collect();
        Some(Choice { id: chosen.id, p: chosen.p as f32, top, denied_share: 0.0 })
    }

    /// One draw per position, needed or not, so that the Mersenne Twister stays in step.
    fn draw(&self, state: &mut SamplerState, position: usize, attempt: u32) -> Draws {
        let keyed = draws(self.options.seed, position as u64, attempt);
        match self.options.rng {
            Rng::Philox => keyed,
            Rng::Mt19937 => {
                let new = || Mt19937::new(self.options.seed);
                Draws { id: state.mt19937.get_or_insert_with(new).draw(), ..keyed }
            }
        }
    }

    fn check_numbers(&self, position: usize, logits: &mut [f32]) -> Result<(), SampleError> {
        let count = scan::count_nan(logits);
        if count == 0 {
            return Ok(());
        }
        if self.options.nan_policy == NanPolicy::Error {
            return Err(SampleError::NotANumber { position, count, vocab: logits.len() });
        }
        let numbers = |l: &mut f32| *l = if l.is_nan() { f32::NEG_INFINITY } else { *l };
        logits.iter_mut().for_each(numbers);
        Ok(())
    }
}

/// The breakers that the options name; `None` for the vocabulary's own.
fn breakers(options: &SampleOptions, sets: &VocabSets) -> Result<Option<Bitmask>, OptionsError> {
    let Some(listed) = &options.dry_breakers else { return Ok(None) };
    let mut mask = Bitmask::new_none(sets.vocab);
    for breaker in listed {
        match breaker {
            Breaker::Id(id) => mask.allow(*id),
            Breaker::Text(text) => {
                let ids = sets.ids_containing(text).ok_or_else(|| OptionsError {
                    name: "dry_breakers",
                    value: format!("{text:?}"),
                    allowed: "ids, because no tokenizer is loaded".into(),
                })?;
                ids.iter().for_each(|id| mask.allow(*id));
            }
        }
    }
    Ok(Some(mask))
}
