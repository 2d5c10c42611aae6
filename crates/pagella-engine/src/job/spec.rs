//! `JobSpec`: the prompts of a job, none of them empty, with its options.

use crate::EngineError;
use crate::job::JobOptions;

/// A prompt of a job and its weight in the mix of log-probabilities.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightedPrompt {
    /// Token ids, not empty.
    pub ids: Vec<u32>,
    /// Share of this prompt's log-probabilities; the weights of a job sum to 1.
    pub weight: f32,
}

/// What to generate.
#[derive(Clone)]
pub struct JobSpec {
    /// At least one, each with at least one id.
    pub(super) prompts: Vec<WeightedPrompt>,
    /// How to go on from them.
    pub options: JobOptions,
}

impl JobSpec {
    /// Continues one prompt.
    pub fn new(ids: Vec<u32>, options: JobOptions) -> Result<Self, EngineError> {
        Self::mixed(vec![WeightedPrompt { ids, weight: 1.0 }], options)
    }

    /// Continues several prompts with the same ids, chosen from the mix of their predictions.
    pub fn mixed(prompts: Vec<WeightedPrompt>, options: JobOptions) -> Result<Self, EngineError> {
        if prompts.is_empty() || prompts.iter().any(|prompt| prompt.ids.is_empty()) {
            return Err(EngineError::EmptyPrompt);
        }
        Ok(JobSpec { prompts, options })
    }

    /// Steers away from `negative`: log-probabilities are `scale · this + (1 − scale) · negative`.
    pub fn guided_by(mut self, negative: Vec<u32>, scale: f32) -> Result<Self, EngineError> {
        self.prompts[0].weight = scale;
        self.prompts.push(WeightedPrompt { ids: negative, weight: 1.0 - scale });
        Self::mixed(self.prompts, self.options)
    }

    /// One prompt, or several whose predictions are mixed.
    pub fn prompts(&self) -> &[WeightedPrompt] {
        &self.prompts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_job_has_an_empty_prompt() {
        let options = JobOptions::default;
        let prompt = |ids: &[u32]| WeightedPrompt { ids: ids.to_vec(), weight: 0.5 };
        for refused in [
            JobSpec::new(Vec::new(), options()),
            JobSpec::mixed(Vec::new(), options()),
            JobSpec::mixed(vec![prompt(&[1]), prompt(&[])], options()),
            JobSpec::new(vec![1], options()).and_then(|job| job.guided_by(Vec::new(), 1.5)),
        ] {
            assert!(matches!(refused, Err(EngineError::EmptyPrompt)));
        }
    }
}
