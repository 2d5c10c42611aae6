//! The range of every setting by its row, and how settings relate.

use std::borrow::Cow;

use crate::params::{ParamKind, Place, SAMPLING, SampleOptions};
use crate::sample::{Breaker, OptionsError, Step};

/// Most ids that the lists and the bias may name; far above any vocabulary.
const LIST_IDS_MAX: usize = 1 << 22;
/// Most breakers.
const BREAKERS_MAX: usize = 4096;

impl SampleOptions {
    /// Checks every range and that no active setting is left out of the order.
    pub fn validate(&self) -> Result<(), OptionsError> {
        self.check_scalars()?;
        self.check_lists()?;
        self.check_bias()?;
        self.sampler_order.validate()?;
        match Step::ALL.iter().find(|s| self.uses(**s) && !self.sampler_order.contains(**s)) {
            None => Ok(()),
            Some(step) => Err(OptionsError {
                name: "sampler_order",
                value: self.sampler_order.to_string(),
                allowed: step.missing().into(),
            }),
        }
    }

    fn check_scalars(&self) -> Result<(), OptionsError> {
        for param in SAMPLING {
            let Place::Sampling { get, .. } = param.place else { continue };
            let number = get(self);
            let (min, max) = param.range().unwrap_or((0.0, 1.0));
            // A bound such as 0.01 is not an f32.
            let inside = (min as f32..=max as f32).contains(&(number as f32));
            let is_off = param.negative_is_off && number < 0.0;
            if !inside && !is_off {
                let value = match param.kind {
                    ParamKind::Number(..) => (number as f32).to_string(),
                    _ => number.to_string(),
                };
                return Err(OptionsError {
                    name: param.name,
                    value,
                    allowed: param.allowed().into(),
                });
            }
        }
        Ok(())
    }

    fn check_lists(&self) -> Result<(), OptionsError> {
        let named = |list: &Option<Vec<u32>>| list.as_ref().map_or(1, Vec::len);
        let empty_text = |b: &Breaker| matches!(b, Breaker::Text(text) if text.is_empty());
        let breakers = self.dry_breakers.as_deref().unwrap_or(&[]);
        let broken = breakers.iter().filter(|b| empty_text(b)).count();
        let length = self.dry_allowed_length;
        let ids = LIST_IDS_MAX;
        let counts = [
            ("dry_allowed_length", length, 1, self.dry_max_ngram, "1 to dry_max_ngram"),
            ("allow (ids)", named(&self.allow), 1, ids, "at least one id, or no list at all"),
            ("deny (ids)", self.deny.len(), 0, ids, "at most 4194304"),
            ("xtc_ignore (ids)", named(&self.xtc_ignore), 0, ids, "at most 4194304"),
            ("dry_breakers", breakers.len(), 0, BREAKERS_MAX, "at most 4096"),
            ("dry_breakers (empty ones)", broken, 0, 0, "texts that are not empty"),
        ];
        for (name, value, min, max, allowed) in counts {
            if !(min..=max).contains(&value) {
                let allowed = Cow::Borrowed(allowed);
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
                allowed: "any number, inf or -inf".into(),
            }),
        }
    }
}
