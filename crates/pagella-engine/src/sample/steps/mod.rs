//! The steps of sampling, one file each, and the one list of them.
//!
//! On logits: [`penalty`], [`bias`], [`dry`], and the masks of [`mask`], which come after everything
//! additive. On probabilities, after the softmax: [`temperature`] and all others. Truncations give a
//! renormalised subset that is never empty. A step on probabilities is one item, a `ProbabilityStep`:
//! adding one takes its file, its line in the list and the rows of its parameters in [`crate::params`].

pub mod adaptive_p;
pub mod bias;
pub mod dry;
pub mod epsilon_cutoff;
pub mod eta_cutoff;
pub mod mask;
pub mod min_p;
pub mod mirostat;
pub mod penalty;
pub mod post_temperature;
pub mod skew;
pub mod temperature;
pub mod tfs;
pub mod top_a;
pub mod top_k;
pub mod top_n_sigma;
pub mod top_p;
pub mod typical;
pub mod xtc;

use super::chain::Moment;
use super::cut::Reach;
use super::spread::Spread;
use super::{Candidates, SampleOptions, SamplerState};

/// A step on probabilities.
pub(crate) trait ProbabilityStep {
    /// Whether it does anything with these settings.
    fn is_on(options: &SampleOptions) -> bool;

    /// What it needs of a row where it is the first behind the softmax. Anything but
    /// [`Reach::All`] is the step itself, which is then not applied again.
    fn reach(_options: &SampleOptions, _state: &SamplerState) -> Reach {
        Reach::All
    }

    /// Changes the candidates.
    fn apply(moment: &mut Moment<'_>, candidates: &mut Candidates);

    /// Changes candidates that are too many for a list; false, and nothing has happened, if that takes a
    /// list.
    fn apply_to_spread(_moment: &mut Moment<'_>, _spread: &mut Spread<'_>) -> bool {
        false
    }
}

macro_rules! steps {
    (
        logits: $($(#[doc = $logit_doc:literal])+
            $logit:ident = $logit_name:literal $(| $logit_alias:literal)* in $logit_file:ident;)+
        probabilities: $($(#[doc = $doc:literal])+
            $step:ident = $name:literal $(| $alias:literal)* in $file:ident;)+
    ) => {
        /// A step of sampling.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Step {
            $($(#[doc = $logit_doc])+ $logit,)+
            $($(#[doc = $doc])+ $step,)+
        }

        impl Step {
            /// All steps in the default order.
            pub const ALL: &[Step] = &[$(Step::$logit,)+ $(Step::$step),+];

            /// The name in lists.
            pub fn name(self) -> &'static str {
                match self { $(Step::$logit => $logit_name,)+ $(Step::$step => $name),+ }
            }

            /// Names that other programs have for it.
            pub fn aliases(self) -> &'static [&'static str] {
                match self {
                    $(Step::$logit => &[$($logit_alias),*],)+
                    $(Step::$step => &[$($alias),*]),+
                }
            }

            /// What an order without this step lacks.
            pub(super) fn missing(self) -> &'static str {
                match self {
                    $(Step::$logit => concat!("a list with ", $logit_name, ", whose setting is on"),)+
                    $(Step::$step => concat!("a list with ", $name, ", whose setting is on")),+
                }
            }

            /// Whether the step changes logits rather than probabilities.
            pub fn is_on_logits(self) -> bool {
                matches!(self, $(Step::$logit)|+)
            }

            /// Whether it does anything with these settings.
            pub(super) fn is_on(self, options: &SampleOptions) -> bool {
                match self {
                    $(Step::$logit => $logit_file::is_on(options),)+
                    $(Step::$step => $file::$step::is_on(options)),+
                }
            }

            /// See [`ProbabilityStep::reach`].
            pub(super) fn reach(self, options: &SampleOptions, state: &SamplerState) -> Reach {
                match self {
                    $(Step::$step => $file::$step::reach(options, state),)+
                    _ => Reach::All,
                }
            }

            /// See [`ProbabilityStep::apply`].
            pub(super) fn apply(self, moment: &mut Moment<'_>, candidates: &mut Candidates) {
                match self {
                    $(Step::$step => $file::$step::apply(moment, candidates),)+
                    _ => {}
                }
            }

            /// See [`ProbabilityStep::apply_to_spread`].
            pub(super) fn apply_to_spread(
                self,
                moment: &mut Moment<'_>,
                spread: &mut Spread<'_>,
            ) -> bool {
                match self {
                    $(Step::$step => $file::$step::apply_to_spread(moment, spread),)+
                    _ => false,
                }
            }
        }
    };
}

steps! {
logits:
    /// Repetition, frequency and presence penalties, on logits.
    Penalties = "penalties" | "repetition_penalty" | "frequency_penalty" | "presence_penalty" in penalty;
    /// The bias of single ids, on logits.
    Bias = "bias" | "logit_bias" in bias;
    /// The penalty for extending a repetition, on logits.
    Dry = "dry" in dry;
probabilities:
    /// Temperature or smoothing.
    Temperature = "temperature" | "temp" | "quadratic_sampling" | "quadratic" in temperature;
    /// Ids within standard deviations of the most likely.
    TopNSigma = "top_n_sigma" | "top_nsigma" | "nsigma" in top_n_sigma;
    /// The k most likely.
    TopK = "top_k" in top_k;
    /// The most likely with a given mass.
    TopP = "top_p" in top_p;
    /// Ids near the square of the highest probability.
    TopA = "top_a" in top_a;
    /// Ids near the highest probability.
    MinP = "min_p" in min_p;
    /// Tail-free.
    Tfs = "tfs" | "tfs_z" in tfs;
    /// Ids of ordinary surprise.
    Typical = "typical" | "typ_p" | "typical_p" in typical;
    /// A lowest probability.
    EpsilonCutoff = "epsilon_cutoff" in epsilon_cutoff;
    /// A lowest probability that follows the entropy.
    EtaCutoff = "eta_cutoff" in eta_cutoff;
    /// The cut-off that adapts.
    Mirostat = "mirostat" in mirostat;
    /// The temperature when it is applied last, or follows the entropy.
    PostTemperature = "post_temperature" | "dynamic_temperature" in post_temperature;
    /// Exclusion of top choices.
    Xtc = "xtc" in xtc;
    /// Ids near a probability that adapts.
    AdaptiveP = "adaptive_p" in adaptive_p;
}

impl Step {
    /// The step of that name.
    pub fn from_name(name: &str) -> Option<Step> {
        let called = |step: &Step| step.name() == name || step.aliases().contains(&name);
        Step::ALL.iter().copied().find(called)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_steps_and_back() {
        let mut seen = std::collections::BTreeSet::new();
        for step in Step::ALL {
            for name in step.aliases().iter().chain([&step.name()]) {
                assert_eq!(Step::from_name(name), Some(*step));
                assert!(seen.insert(*name), "{name} names two steps");
            }
            assert!(step.missing().contains(step.name()));
        }
        assert_eq!(Step::from_name("softmax"), None);
    }
}

#[cfg(test)]
pub(crate) mod check {
    //! One way to state a step's test: probabilities in, surviving ids out.

    use crate::sample::{Candidate, Candidates};

    /// Candidates with ids in order of the list.
    pub fn candidates(ps: &[f64]) -> Candidates {
        let list = ps.iter().zip(0..).map(|(&p, id)| Candidate { id, p }).collect();
        Candidates::new(list).unwrap()
    }

    /// Applies `step`, checks that the result is a normalised subset, and compares the surviving
    /// ids.
    pub fn survivors(ps: &[f64], step: impl Fn(&mut Candidates), expected: &[u32]) {
        let mut c = candidates(ps);
        step(&mut c);
        let ids: Vec<u32> = c.as_slice().iter().map(|c| c.id).collect();
        assert_eq!(ids, expected, "{ps:?}");
        let sum: f64 = c.as_slice().iter().map(|c| c.p).sum();
        assert!((sum - 1.0).abs() < 1e-12, "sum {sum}");
    }

    /// Applies `step` and compares the probabilities by id, to the six digits of published values.
    pub fn probabilities(ps: &[f64], step: impl Fn(&mut Candidates), expected: &[f64]) {
        let mut c = candidates(ps);
        step(&mut c);
        let mut found = vec![0.0; expected.len()];
        c.unordered().iter().for_each(|c| found[c.id as usize] = c.p);
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        }
    }
}
