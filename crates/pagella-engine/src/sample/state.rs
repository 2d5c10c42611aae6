//! What a job carries from one token to the next; never part of the options.
//!
//! Everything else a step needs is computed from the history, so going back to an earlier token
//! means no more than taking back a copy of this.

use super::steps::adaptive_p::Average;
use super::{Mt19937, Rng, SampleOptions};

/// The sampler's memory within one job. A clone is a fork.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SamplerState {
    /// Mirostat's μ, once a token was chosen with it.
    pub(super) mirostat_mu: Option<f64>,
    /// What adaptive-p has seen, once a token was chosen with it.
    pub(super) adaptive: Option<Average>,
    /// Only with that generator.
    pub(super) mt19937: Option<Mt19937>,
}

impl SamplerState {
    /// The state before the first token.
    pub fn new(options: &SampleOptions) -> Self {
        let mt19937 = (options.rng == Rng::Mt19937).then(|| Mt19937::new(options.seed));
        SamplerState { mt19937, ..SamplerState::default() }
    }

    /// Goes back to an earlier state of the same job. Draws of the Mersenne twister stay consumed, as
    /// in ExLlamaV2; all others are keyed by position and attempt.
    pub fn rewind_to(&mut self, earlier: &SamplerState) {
        self.mirostat_mu = earlier.mirostat_mu;
        self.adaptive = earlier.adaptive;
    }

    /// Mirostat's μ; `None` before the first token that changed it.
    pub fn mirostat_mu(&self) -> Option<f64> {
        self.mirostat_mu
    }
}
