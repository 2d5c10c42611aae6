//! What `/set` can change: one table of names, each with its way in and out.

use anyhow::Result;
use pagella::{Complete, SampleOptions};

use crate::flags::SamplingFlags;

/// Tokens of an answer unless stated.
pub const MAX_NEW_TOKENS: usize = 1024;

/// Settings of all further answers.
#[derive(Clone, Debug)]
pub struct Settings {
    pub sampling: SampleOptions,
    /// Fixed seed; random when absent.
    pub seed: Option<u64>,
    pub max_new_tokens: usize,
    min_new_tokens: usize,
    stop: Vec<String>,
    ban: Vec<String>,
}

/// One name that `/set` knows.
struct Setting {
    name: &'static str,
    show: fn(&Settings) -> String,
    /// `None` when the value cannot be read.
    set: fn(&mut Settings, &str) -> Option<()>,
}

/// A setting that is a field of the sampling options.
macro_rules! sampling {
    ($field:ident) => {
        Setting {
            name: stringify!($field),
            show: |s| s.sampling.$field.to_string(),
            set: |s, value| {
                s.sampling.$field = value.parse().ok()?;
                Some(())
            },
        }
    };
}

const SETTINGS: &[Setting] = &[
    sampling!(temperature),
    sampling!(top_k),
    sampling!(top_p),
    sampling!(min_p),
    sampling!(repetition_penalty),
    sampling!(frequency_penalty),
    sampling!(presence_penalty),
    sampling!(top_a),
    sampling!(tfs),
    sampling!(typical),
    sampling!(top_n_sigma),
    sampling!(smoothing_factor),
    sampling!(mirostat),
    sampling!(mirostat_tau),
    sampling!(mirostat_eta),
    sampling!(xtc_probability),
    sampling!(xtc_threshold),
    sampling!(skew),
    sampling!(dry_multiplier),
    sampling!(dry_base),
    sampling!(dry_allowed_length),
    Setting {
        name: "penalty_range",
        show: |s| s.sampling.penalty_range.map_or("all".into(), |range| range.to_string()),
        set: |s, value| {
            s.sampling.penalty_range = optional(value, "all")?;
            Some(())
        },
    },
    Setting {
        name: "seed",
        show: |s| s.seed.map_or("random".into(), |seed| seed.to_string()),
        set: |s, value| {
            s.seed = optional(value, "random")?;
            Some(())
        },
    },
    Setting {
        name: "max_new_tokens",
        show: |s| s.max_new_tokens.to_string(),
        set: |s, value| {
            s.max_new_tokens = value.parse().ok().filter(|&tokens| tokens > 0)?;
            Some(())
        },
    },
];

/// A number, or a word that stands for its absence.
fn optional<T: std::str::FromStr>(value: &str, absent: &str) -> Option<Option<T>> {
    if value == absent { Some(None) } else { value.parse().ok().map(Some) }
}

impl Settings {
    /// The model's recommendation with the command line on top.
    pub fn new(flags: &SamplingFlags, recommended: &SampleOptions) -> Result<Self> {
        flags.check()?;
        let (sampling, seed) = flags.options(recommended)?;
        Ok(Settings {
            sampling,
            seed,
            max_new_tokens: flags.max_new_tokens.unwrap_or(MAX_NEW_TOKENS),
            min_new_tokens: flags.min_new_tokens,
            stop: flags.stop.clone(),
            ban: flags.ban.clone(),
        })
    }

    /// Takes `NAME VALUE`, or shows everything when empty. The answer is for people.
    pub fn take(&mut self, line: &str) -> Result<String, String> {
        if line.is_empty() {
            return Ok(self.show());
        }
        let (name, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        // `temp` is what people type.
        let name = if name == "temp" { "temperature" } else { name };
        let Some(setting) = SETTINGS.iter().find(|setting| setting.name == name) else {
            let names: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
            return Err(format!("there is no setting {name}: choose one of {}", names.join(", ")));
        };
        let mut changed = self.clone();
        let value = value.trim();
        (setting.set)(&mut changed, value)
            .ok_or_else(|| format!("{value:?} is no value for {name}"))?;
        changed.sampling.validate().map_err(|error| error.to_string())?;
        *self = changed;
        Ok(format!("{name} is {}", (setting.show)(self)))
    }

    fn show(&self) -> String {
        let lines: Vec<String> =
            SETTINGS.iter().map(|s| format!("  {:18}  {}", s.name, (s.show)(self))).collect();
        lines.join("\n")
    }

    /// An answer with these settings; `attempt` counts how often the question was asked.
    pub fn apply(&self, complete: Complete, attempt: u64) -> Complete {
        let mut complete = complete.sampling(self.sampling.clone()).min_tokens(self.min_new_tokens);
        // A fixed seed gives the same answer to the same question; a new attempt wants another.
        if let Some(seed) = self.seed {
            complete = complete.seed(seed.wrapping_add(attempt));
        }
        complete = self.stop.iter().fold(complete, |complete, text| complete.stop(text));
        self.ban.iter().fold(complete, |complete, text| complete.ban(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings::new(&SamplingFlags::default(), &SampleOptions::default()).unwrap()
    }

    #[test]
    fn every_setting_can_be_shown_and_set_to_what_it_shows() {
        for setting in SETTINGS {
            let mut settings = settings();
            let shown = (setting.show)(&settings);
            let said = settings.take(&format!("{} {shown}", setting.name)).unwrap();
            assert_eq!(said, format!("{} is {shown}", setting.name));
        }
        assert_eq!(settings().take("").unwrap().lines().count(), SETTINGS.len());
    }

    #[test]
    fn wrong_values_change_nothing() {
        let mut settings = settings();
        for line in ["temperature -1", "temperature x", "top_p 2", "top_k -1", "nonsense 1", "seed"]
        {
            assert!(settings.take(line).is_err(), "{line}");
        }
        assert_eq!(settings.sampling, SampleOptions::default());
        settings.take("temp 0.5").unwrap();
        settings.take("seed 7").unwrap();
        assert_eq!((settings.sampling.temperature, settings.seed), (0.5, Some(7)));
        settings.take("seed random").unwrap();
        assert_eq!(settings.seed, None);
    }
}
