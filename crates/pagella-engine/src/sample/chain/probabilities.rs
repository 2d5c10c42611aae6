//! The second half of the chain: softmax, steps on probabilities, and what is learned from a pick.

use super::{Moment, Sampler};
use crate::sample::cut::{Reach, cut};
use crate::sample::gather::{Gathered, Softmax};
use crate::sample::spread::Spread;
use crate::sample::steps::adaptive_p::Average;
use crate::sample::steps::temperature::{self, GREEDY_BELOW};
use crate::sample::steps::{mirostat, skew, top_k};
use crate::sample::{Candidate, Candidates, Draws, SamplerState, Scratch, Shape, Step};

/// Candidates, in the form that suits their number.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "one at a time, on the stack for one choice")]
pub(super) enum Kept<'a> {
    Few(Candidates),
    Many(Spread<'a>),
}

impl Kept<'_> {
    /// As a list, if they have become few.
    fn settled(self, scratch: &mut Scratch) -> Option<Self> {
        match self {
            Kept::Many(spread) if spread.fits_list() => spread.into_list(scratch).map(Kept::Few),
            kept => Some(kept),
        }
    }
}

impl Sampler {
    /// Whether the first step on probabilities leaves one id.
    pub(super) fn is_greedy(&self) -> bool {
        match self.probability_steps.first() {
            Some(Step::Temperature) if temperature::early(&self.options) < GREEDY_BELOW => true,
            Some(Step::Temperature) => self.is_top_1(self.probability_steps.get(1)),
            // Temperature applied last, below the limit, with nothing before it.
            Some(Step::PostTemperature) => {
                !self.options.has_dynamic_temperature() && self.options.temperature < GREEDY_BELOW
            }
            first => self.is_top_1(first),
        }
    }

    fn is_top_1(&self, step: Option<&Step>) -> bool {
        step == Some(&Step::TopK) && top_k::count(&self.options) == 1
    }

    /// What the softmax does with logits: the temperature, if that step comes first.
    pub(super) fn shape(&self) -> Shape {
        match self.probability_steps.first() {
            Some(Step::Temperature) => temperature::bend(&self.options),
            _ => Shape::UNCHANGED,
        }
    }

    /// The steps behind the softmax.
    pub(super) fn later_steps(&self) -> &[Step] {
        match self.probability_steps.split_first() {
            Some((Step::Temperature, later)) => later,
            _ => &self.probability_steps,
        }
    }

    /// What the first step behind the softmax needs of a row.
    pub(super) fn reach(&self, draws: Draws, state: &SamplerState) -> Reach {
        match self.later_steps().first() {
            None => Reach::Draw(skew::apply(self.options.skew, draws.id)),
            Some(step) => step.reach(&self.options, state),
        }
    }

    /// The softmax and its first step, and whether there were several candidates before that.
    pub(super) fn candidates<'a>(
        &self,
        logits: &'a [f32],
        max: f32,
        top: usize,
        reach: Reach,
        scratch: &mut Scratch,
    ) -> Option<(Kept<'a>, bool)> {
        let min_keep = self.options.min_keep;
        // Two, so that it shows whether there was a choice at all.
        let at_least = match reach {
            Reach::Count(_) => 0,
            _ => min_keep.max(top).max(2),
        };
        let softmax = Softmax { logits, max, shape: self.shape() };
        match softmax.gather(reach, at_least, min_keep, scratch) {
            Gathered::Many(spread) => Some((Kept::Many(spread).settled(scratch)?, true)),
            Gathered::Few(weights) => {
                let several = weights.list.len() > 1;
                Some((Kept::Few(cut(reach, min_keep, weights)?), several))
            }
        }
    }

    /// Applies the steps behind the first and returns the draw that picks among what they leave.
    /// `scratch.before` receives what adaptive-p found, of a list.
    pub(super) fn change_probabilities<'a>(
        &self,
        mut kept: Kept<'a>,
        state: &SamplerState,
        draws: Draws,
        scratch: &mut Scratch,
    ) -> Option<(Kept<'a>, f64)> {
        let steps = self.later_steps();
        // A cut was decided with the softmax; a step that is none has not been applied.
        let applied = usize::from(self.reach(draws, state) != Reach::All).min(steps.len());
        let xtc_ignored = self.xtc_ignored.as_ref().unwrap_or(&self.sets.xtc_ignored);
        let options = &self.options;
        let mut before = std::mem::take(&mut scratch.before);
        let before_adaptive = &mut before;
        let mut moment = Moment { options, state, draws, xtc_ignored, before_adaptive };
        for step in &steps[applied..] {
            if let Kept::Many(mut spread) = kept {
                kept = match step.apply_to_spread(&mut moment, &mut spread) {
                    true => Kept::Many(spread).settled(scratch)?,
                    false => {
                        let mut list = spread.into_list(scratch)?;
                        step.apply(&mut moment, &mut list);
                        Kept::Few(list)
                    }
                };
            } else if let Kept::Few(list) = &mut kept {
                step.apply(&mut moment, list);
            }
        }
        scratch.before = before;
        Some((kept, skew::apply(self.options.skew, draws.id)))
    }

    /// Lets steps adapt to a pick. Mirostat does not learn from choices that were forced.
    pub(super) fn learn(
        &self,
        state: &mut SamplerState,
        chosen: Candidate,
        several: bool,
        before: &[Candidate],
    ) {
        let o = &self.options;
        if several && self.probability_steps.contains(&Step::Mirostat) {
            let mu = mirostat::cut_off(o, state);
            let next = mirostat::update(mu, o.mirostat_tau, o.mirostat_eta, chosen.p);
            state.mirostat_mu = Some(next);
        }
        if self.probability_steps.contains(&Step::AdaptiveP) {
            let average = state.adaptive.unwrap_or_else(|| Average::start(o));
            let p = before.iter().find(|c| c.id == chosen.id).map_or(chosen.p, |c| c.p);
            state.adaptive = Some(average.after(o, p));
        }
    }
}
