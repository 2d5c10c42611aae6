//! The range of every setting, in one table each for numbers, counts and relations.

use super::{Breaker, SampleOptions};
use crate::sample::{OptionsError, Step};

/// Most ids that the lists and the bias may name; far above any vocabulary.
const LIST_IDS_MAX: usize = 1 << 22;

impl SampleOptions {
    /// Checks every range and that no active setting is left out of the order.
    pub fn validate(&self) -> Result<(), OptionsError> {
        self.check_numbers()?;
        self.check_counts()?;
        self.check_bias()?;
        self.sampler_order.validate()?;
        match Step::ALL.iter().find(|s| self.uses(**s) && !self.sampler_order.contains(**s)) {
            None => Ok(()),
            Some(step) => Err(OptionsError {
                name: "sampler_order",
                value: self.sampler_order.to_string(),
                allowed: step.missing(),
            }),
        }
    }

    fn check_numbers(&self) -> Result<(), OptionsError> {
        let mut tau_min = 0.0;
        if self.mirostat {
            tau_min = 0.01;
        }
        let numbers = [
            ("temperature", self.temperature, 0.0, 100.0, "0 to 100"),
            ("smoothing_factor", self.smoothing_factor, 0.0, 100.0, "0 to 100, 0 is off"),
            ("smoothing_curve", self.smoothing_curve, 1.0, 3.0, "1 to 3"),
            ("min_temp", self.min_temp, 0.0, 100.0, "0 to 100"),
            ("max_temp", self.max_temp, 0.0, 100.0, "0 to 100"),
            ("temp_exponent", self.temp_exponent, 0.0, 100.0, "0 to 100"),
            ("top_p", self.top_p, 0.0, 1.0, "0 to 1, both ends are off"),
            ("top_a", self.top_a, 0.0, 1e6, "0 to 1000000, 0 is off"),
            ("min_p", self.min_p, 0.0, 1.0, "0 to 1, both ends are off"),
            ("tfs", self.tfs, 0.0, 1.0, "0 to 1, both ends are off"),
            ("typical", self.typical, 0.0, 1.0, "0 to 1, both ends are off"),
            ("epsilon_cutoff", self.epsilon_cutoff, 0.0, 1.0, "0 to 1, 0 is off"),
            ("eta_cutoff", self.eta_cutoff, 0.0, 1.0, "0 to 1, 0 is off"),
            ("top_n_sigma", self.top_n_sigma, 0.0, 1e6, "0 to 1000000, 0 is off"),
            ("mirostat_tau", self.mirostat_tau, tau_min, 100.0, "0.01 to 100"),
            ("mirostat_eta", self.mirostat_eta, 0.0, 100.0, "0 to 100"),
            ("xtc_probability", self.xtc_probability, 0.0, 1.0, "0 to 1, 0 is off"),
            ("xtc_threshold", self.xtc_threshold, 0.0, 1.0, "0 to 1"),
            ("skew", self.skew, -100.0, 100.0, "-100 to 100, 0 is off"),
            ("repetition_penalty", self.repetition_penalty, 0.01, 100.0, "0.01 to 100, 1 is off"),
            ("frequency_penalty", self.frequency_penalty, -100.0, 100.0, "-100 to 100"),
            ("presence_penalty", self.presence_penalty, -100.0, 100.0, "-100 to 100"),
            ("dry_multiplier", self.dry_multiplier, 0.0, 1e4, "0 to 10000, 0 is off"),
            ("dry_base", self.dry_base, 1.0, 100.0, "1 to 100"),
            ("cfg_scale", self.cfg_scale.unwrap_or(1.0), -100.0, 100.0, "-100 to 100"),
        ];
        for (name, value, min, max, allowed) in numbers {
            if !(min..=max).contains(&value) {
                return Err(OptionsError { name, value: value.to_string(), allowed });
            }
        }
        Ok(())
    }

    fn check_counts(&self) -> Result<(), OptionsError> {
        let named = |list: &Option<Vec<u32>>| list.as_ref().map_or(1, Vec::len);
        let empty_text = |b: &Breaker| matches!(b, Breaker::Text(text) if text.is_empty());
        let breakers = self.dry_breakers.as_deref().unwrap_or(&[]);
        let broken = breakers.iter().filter(|b| empty_text(b)).count();
        let longest = self.dry_max_ngram;
        let ids = LIST_IDS_MAX;
        let counts = [
            ("min_keep", self.min_keep, 0, ids, "at most 4194304"),
            ("dry_allowed_length", self.dry_allowed_length, 1, longest, "1 to dry_max_ngram"),
            ("dry_max_ngram", longest, 1, 1 << 16, "1 to 65536"),
            ("allow (ids)", named(&self.allow), 1, ids, "at least one id, or no list at all"),
            ("deny (ids)", self.deny.len(), 0, ids, "at most 4194304"),
            ("xtc_ignore (ids)", named(&self.xtc_ignore), 0, ids, "at most 4194304"),
            ("dry_breakers", breakers.len(), 0, 4096, "at most 4096"),
            ("dry_breakers (empty ones)", broken, 0, 0, "texts that are not empty"),
        ];
        for (name, value, min, max, allowed) in counts {
            if !(min..=max).contains(&value) {
                return Err(OptionsError { name, value: value.to_string(), allowed });
            }
        }
        Ok(())
    }

    fn check_bias(&self) -> Result<(), OptionsError> {
        match self.logit_bias.iter().find(|(_, bias)| bias.is_nan()) {
            None => Ok(()),
            Some((id, bias)) => Err(OptionsError {
                name: "logit_bias",
                value: format!("{bias} for id {id}"),
                allowed: "any number, inf or -inf",
            }),
        }
    }
}
