//! The settings of sampling, as plain data, and the ranges they must keep.
//!
//! The defaults are neutral: temperature 1 and everything else off, i.e. the model's own
//! distribution. Models recommend values in `generation_config.json`; callers decide which win.

use super::steps::penalty::Penalties;

/// How the next id is chosen. Immutable while a generation runs; holds no state.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleOptions {
    /// Divides the logits; below 0.01 the most likely id is taken.
    pub temperature: f32,
    /// Keeps the k most likely ids; 0 is off.
    pub top_k: usize,
    /// Keeps the shortest list of most likely ids with this mass; 0 or 1 is off.
    pub top_p: f32,
    /// Keeps ids with at least this share of the highest probability; 0 or 1 is off.
    pub min_p: f32,
    /// Lowers ids that occurred before, prompt included; 1 is off.
    pub repetition_penalty: f32,
    /// How many of the newest ids the three penalties look at; `None` means all.
    pub penalty_range: Option<usize>,
    /// Subtracted from a logit for every earlier occurrence; 0 is off.
    pub frequency_penalty: f32,
    /// Subtracted from a logit when the id occurred before; 0 is off.
    pub presence_penalty: f32,
    /// Same seed, prompt and settings: same text. Ignored where nothing is drawn.
    pub seed: u64,
}

/// A setting outside its range.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{name} is {value}, allowed is {allowed}: correct the value")]
pub struct OptionsError {
    /// Name of the setting.
    pub name: &'static str,
    /// What was given.
    pub value: f32,
    /// The range, for people.
    pub allowed: &'static str,
}

impl Default for SampleOptions {
    fn default() -> Self {
        SampleOptions {
            temperature: 1.0,
            top_k: 0,
            top_p: 0.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            penalty_range: None,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            seed: 0,
        }
    }
}

impl SampleOptions {
    /// Always the most likely id; ties go to the lowest.
    pub fn greedy() -> Self {
        SampleOptions { temperature: 0.0, ..SampleOptions::default() }
    }

    /// Checks every range.
    pub fn validate(&self) -> Result<(), OptionsError> {
        let within = |name, value: f32, min: f32, max: f32, allowed| {
            if (min..=max).contains(&value) {
                Ok(())
            } else {
                Err(OptionsError { name, value, allowed })
            }
        };
        within("temperature", self.temperature, 0.0, 100.0, "0 to 100")?;
        within("top_p", self.top_p, 0.0, 1.0, "0 to 1")?;
        within("min_p", self.min_p, 0.0, 1.0, "0 to 1")?;
        let repetition = self.repetition_penalty;
        within("repetition_penalty", repetition, 0.01, 100.0, "0.01 to 100, 1 is off")?;
        within("frequency_penalty", self.frequency_penalty, -100.0, 100.0, "-100 to 100")?;
        within("presence_penalty", self.presence_penalty, -100.0, 100.0, "-100 to 100")
    }

    /// The three penalties together.
    pub fn penalties(&self) -> Penalties {
        Penalties {
            repetition: self.repetition_penalty,
            frequency: self.frequency_penalty,
            presence: self.presence_penalty,
            range: self.penalty_range,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_range_are_named() {
        let bad = |options: SampleOptions| options.validate().unwrap_err().name;
        let neutral = SampleOptions::default();
        assert_eq!(neutral.validate(), Ok(()));
        assert_eq!(bad(SampleOptions { temperature: -0.5, ..neutral.clone() }), "temperature");
        assert_eq!(bad(SampleOptions { temperature: f32::NAN, ..neutral.clone() }), "temperature");
        assert_eq!(bad(SampleOptions { top_p: 1.5, ..neutral.clone() }), "top_p");
        assert_eq!(bad(SampleOptions { min_p: -0.1, ..neutral.clone() }), "min_p");
        assert_eq!(
            bad(SampleOptions { repetition_penalty: 0.0, ..neutral.clone() }),
            "repetition_penalty"
        );
        assert_eq!(
            bad(SampleOptions { presence_penalty: f32::INFINITY, ..neutral }),
            "presence_penalty"
        );
    }
}
