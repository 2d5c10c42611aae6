//! The first half of the chain: steps on logits, then everything that masks ids.

use super::Sampler;
use crate::sample::gather::Softmax;
use crate::sample::steps::dry::{self, Dry};
use crate::sample::steps::penalty::{self, Penalties};
use crate::sample::steps::{bias, mask};
use crate::sample::{Bitmask, PenaltyScope, Scratch, Shape, Step};

impl Sampler {
    pub(super) fn change_logits(
        &self,
        history: &[u32],
        prompt_len: usize,
        logits: &mut [f32],
        scratch: &mut Scratch,
    ) {
        for step in &self.logit_steps {
            match step {
                Step::Penalties => {
                    let scope = self.scope(history, prompt_len);
                    penalty::apply(&self.penalties(), scope, logits, &mut scratch.seen);
                }
                Step::Bias => bias::apply(&self.options.logit_bias, logits),
                Step::Dry => {
                    let breakers = self.dry_breakers.as_ref().unwrap_or(&self.sets.dry_breakers);
                    dry::apply(&self.dry(), breakers, self.sets.vocab, history, logits, scratch);
                }
                _ => {}
            }
        }
        if self.options.no_repeat_ngram > 0 {
            dry::deny_repeated_ngrams(self.options.no_repeat_ngram, history, logits, scratch);
        }
    }

    /// Masks what no token, no option and no constraint allows.
    pub(super) fn mask(&self, allowed: Option<&Bitmask>, logits: &mut [f32]) {
        mask::end_at(self.sets.vocab, logits);
        mask::deny(&self.never, logits);
        for allowed in self.allowed.iter().chain(allowed) {
            mask::allow_only(allowed, logits);
        }
    }

    /// Masks the ids denied at this position and remembers what they had. Whether there were any.
    pub(super) fn deny(&self, denied: &[u32], logits: &mut [f32], scratch: &mut Scratch) -> bool {
        scratch.denied.clear();
        for &id in denied {
            if let Some(logit) = logits.get_mut(id as usize) {
                scratch.denied.push((id, *logit));
                *logit = f32::NEG_INFINITY;
            }
        }
        !scratch.denied.is_empty()
    }

    /// The probability that the denied ids would have had; `max` is the highest logit of the rest.
    pub(super) fn denied_share(&self, logits: &[f32], max: f32, scratch: &mut Scratch) -> f32 {
        // An id denied twice was masked the second time and adds nothing.
        let top = scratch.denied.iter().map(|(_, l)| *l).fold(max, f32::max);
        if top == f32::INFINITY {
            return if max == top { 0.0 } else { 1.0 };
        }
        let shape = if self.is_greedy() { Shape::UNCHANGED } else { self.shape() };
        let weight = |l: f32| shape.log_weight(f64::from(l) - f64::from(top)).exp();
        let finite = scratch.denied.iter().filter(|(_, l)| *l > f32::NEG_INFINITY);
        let of_denied: f64 = finite.map(|(_, l)| weight(*l)).sum();
        // The rest relative to the same maximum, which the denied ids may have raised.
        let rest = Softmax { logits, max: top, shape }.total(scratch);
        (of_denied / (of_denied + rest)) as f32
    }

    pub(super) fn penalties(&self) -> Penalties {
        Penalties {
            repetition: self.options.repetition_penalty,
            frequency: self.options.frequency_penalty,
            presence: self.options.presence_penalty,
            range: self.options.penalty_range,
            decay: self.options.penalty_decay,
        }
    }

    pub(super) fn scope<'a>(&self, history: &'a [u32], prompt_len: usize) -> &'a [u32] {
        let (prompt, output) = history.split_at(prompt_len.min(history.len()));
        match self.options.penalty_scope {
            PenaltyScope::All => history,
            PenaltyScope::Output => output,
            PenaltyScope::Prompt => prompt,
        }
    }

    fn dry(&self) -> Dry {
        Dry {
            multiplier: self.options.dry_multiplier,
            base: self.options.dry_base,
            allowed_length: self.options.dry_allowed_length,
            max_ngram: self.options.dry_max_ngram,
            range: self.options.dry_range,
            count_scaling: self.options.dry_count_scaling,
        }
    }
}
