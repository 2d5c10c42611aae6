//! The second half of the chain: softmax, steps on probabilities, and what is learned from a pick.

use super::Sampler;
use crate::sample::cut::{Reach, cut};
use crate::sample::gather::Softmax;
use crate::sample::steps::temperature::GREEDY_BELOW;
use crate::sample::steps::{
    cutoff, min_p, mirostat, skew, temperature, tfs, top_a, top_k, top_n_sigma, top_p, typical, xtc,
};
use crate::sample::{Candidates, Draws, SamplerState, Scratch, Shape, Step, XtcMode};

impl Sampler {
    /// Whether the first step on probabilities leaves one id.
    pub(super) fn is_greedy(&self) -> bool {
        match self.probability_steps.first() {
            Some(Step::Temperature) if self.temperature() < GREEDY_BELOW => true,
            Some(Step::Temperature) => self.is_top_1(self.probability_steps.get(1)),
            // Temperature applied last, below the limit, with nothing before it.
            Some(Step::PostTemperature) => {
                !self.options.has_dynamic_temperature() && self.options.temperature < GREEDY_BELOW
            }
            first => self.is_top_1(first),
        }
    }

    fn is_top_1(&self, step: Option<&Step>) -> bool {
        step == Some(&Step::TopK) && self.options.top_k == 1
    }

    /// The temperature of the early step: 1 where it is applied last or follows the entropy.
    fn temperature(&self) -> f32 {
        let elsewhere = self.options.temperature_last || self.options.has_dynamic_temperature();
        if elsewhere { 1.0 } else { self.options.temperature }
    }

    /// What the softmax does with logits: the temperature, if that step comes first.
    pub(super) fn shape(&self) -> Shape {
        match self.probability_steps.first() {
            Some(Step::Temperature) => self.bend(),
            _ => Shape::UNCHANGED,
        }
    }

    fn bend(&self) -> Shape {
        let (factor, curve) = (self.options.smoothing_factor, self.options.smoothing_curve);
        Shape::new(self.temperature().max(GREEDY_BELOW), factor, curve)
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
        let o = &self.options;
        match self.later_steps().first() {
            None => Reach::Draw(skew::apply(o.skew, draws.id)),
            Some(Step::TopK) => Reach::Count(o.top_k),
            Some(Step::TopP) => Reach::Mass(f64::from(o.top_p)),
            Some(Step::TopA) => Reach::SquareOfMax(f64::from(o.top_a)),
            Some(Step::MinP) => Reach::Share(f64::from(o.min_p)),
            Some(Step::EpsilonCutoff) => Reach::Probability(f64::from(o.epsilon_cutoff)),
            Some(Step::Mirostat) => Reach::Probability((-self.mu(state)).exp2()),
            Some(_) => Reach::All,
        }
    }

    /// The softmax and its first step, and whether there were several candidates before that.
    pub(super) fn candidates(
        &self,
        logits: &[f32],
        max: f32,
        top: usize,
        reach: Reach,
        scratch: &mut Scratch,
    ) -> Option<(Candidates, bool)> {
        // Two, so that it shows whether there was a choice at all.
        let at_least = match reach {
            Reach::Count(_) => 0,
            _ => self.options.min_keep.max(top).max(2),
        };
        let weights = Softmax { logits, max, shape: self.shape() }.gather(reach, at_least, scratch);
        let several = weights.list.len() > 1;
        Some((cut(reach, self.options.min_keep, weights)?, several))
    }

    /// Applies the steps behind the first and returns the draw that picks among what they leave.
    pub(super) fn change_probabilities(
        &self,
        candidates: &mut Candidates,
        state: &SamplerState,
        draws: Draws,
    ) -> f64 {
        let steps = self.later_steps();
        // A cut was decided with the softmax; a step that is none has not been applied.
        let applied = usize::from(self.reach(draws, state) != Reach::All).min(steps.len());
        for step in &steps[applied..] {
            self.apply(*step, candidates, state, draws);
        }
        skew::apply(self.options.skew, draws.id)
    }

    fn apply(&self, step: Step, c: &mut Candidates, state: &SamplerState, draws: Draws) {
        let o = &self.options;
        let min_keep = o.min_keep;
        match step {
            Step::Penalties | Step::Bias | Step::Dry => {}
            Step::Temperature if self.temperature() < GREEDY_BELOW => c.keep(1),
            Step::Temperature => temperature::apply(self.bend(), c),
            Step::TopNSigma => top_n_sigma::apply(o.top_n_sigma, min_keep, c),
            Step::TopK => top_k::apply(o.top_k, c),
            Step::TopP => top_p::apply(o.top_p, min_keep, c),
            Step::TopA => top_a::apply(o.top_a, min_keep, c),
            Step::MinP => min_p::apply(o.min_p, min_keep, c),
            Step::Tfs => tfs::apply(o.tfs, min_keep, c),
            Step::Typical => typical::apply(o.typical, min_keep, c),
            Step::EpsilonCutoff => cutoff::epsilon(o.epsilon_cutoff, min_keep, c),
            Step::EtaCutoff => cutoff::eta(o.eta_cutoff, min_keep, c),
            Step::Mirostat => mirostat::apply(self.mu(state), min_keep, c),
            Step::PostTemperature => {
                let t = match o.has_dynamic_temperature() {
                    true => temperature::dynamic(o.min_temp, o.max_temp, o.temp_exponent, c),
                    false => f64::from(o.temperature),
                };
                temperature::apply_post(t, c);
            }
            Step::Xtc => {
                let ignored = self.xtc_ignored.as_ref().unwrap_or(&self.sets.xtc_ignored);
                match o.xtc_mode {
                    XtcMode::Mixture => {
                        xtc::mixture(o.xtc_probability, o.xtc_threshold, ignored, c)
                    }
                    XtcMode::Draw => {
                        xtc::drawn(o.xtc_probability, o.xtc_threshold, ignored, draws.xtc, c);
                    }
                }
            }
        }
    }

    fn mu(&self, state: &SamplerState) -> f64 {
        state.mirostat_mu.unwrap_or_else(|| mirostat::start(self.options.mirostat_tau))
    }

    /// Lets mirostat adapt to a pick among several candidates (S15: not to forced ones).
    pub(super) fn learn(&self, state: &mut SamplerState, p: f64) {
        if self.probability_steps.contains(&Step::Mirostat) {
            let (tau, eta) = (self.options.mirostat_tau, self.options.mirostat_eta);
            state.mirostat_mu = Some(mirostat::update(self.mu(state), tau, eta, p));
        }
    }
}
