//! What `/set` can change: the engine's table of sampling parameters, the seed and the length.

use anyhow::Result;
use pagella::{Complete, SampleOptions};
use pagella_engine::params::{Param, ParamError, ParamKind, Place, SAMPLING};
use serde_json::Value;

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
#[derive(Clone, Copy)]
enum Setting {
    /// A row of the engine's table.
    Sampling(&'static Param),
    Seed,
    MaxNewTokens,
}

impl Setting {
    /// Everything that can be changed, in the order in which it is shown.
    fn all() -> impl Iterator<Item = Setting> {
        let scalar = |param: &&Param| matches!(param.place, Place::Sampling { .. });
        // Guidance needs a second prompt, which a conversation does not have.
        let offered = |param: &&Param| param.offered && param.name != "cfg_scale";
        let rows = SAMPLING.iter().filter(scalar).filter(offered).map(Setting::Sampling);
        rows.chain([Setting::Seed, Setting::MaxNewTokens])
    }

    fn name(self) -> &'static str {
        match self {
            Setting::Sampling(param) => param.name,
            Setting::Seed => "seed",
            Setting::MaxNewTokens => "max_new_tokens",
        }
    }

    fn is_called(self, name: &str) -> bool {
        match self {
            Setting::Sampling(param) => param.is_called(name),
            _ => self.name() == name,
        }
    }

    fn show(self, settings: &Settings) -> String {
        match self {
            Setting::Sampling(param) => match param.place {
                Place::Sampling { get, .. } => shown(param, get(&settings.sampling)),
                _ => String::new(),
            },
            Setting::Seed => settings.seed.map_or("random".into(), |seed| seed.to_string()),
            Setting::MaxNewTokens => settings.max_new_tokens.to_string(),
        }
    }

    fn set(self, settings: &mut Settings, value: &str) -> Result<(), String> {
        let wrong = || format!("{value:?} is no value for {}", self.name());
        match self {
            Setting::Sampling(param) => {
                let number = read(param, value).ok_or_else(wrong)?;
                let number = number.map_err(|error| format!("{} {error}", param.name))?;
                if let Place::Sampling { set, .. } = param.place {
                    set(&mut settings.sampling, number);
                }
            }
            Setting::Seed => settings.seed = optional(value, "random").ok_or_else(wrong)?,
            Setting::MaxNewTokens => {
                let tokens = value.parse::<usize>().ok().filter(|tokens| *tokens > 0);
                settings.max_new_tokens = tokens.ok_or_else(wrong)?;
            }
        }
        Ok(())
    }
}

/// A scalar for people.
fn shown(param: &Param, number: f64) -> String {
    match param.to_json(number) {
        Value::String(word) => word,
        _ if param.name == "penalty_range" && number < 0.0 => "all".to_owned(),
        Value::Number(_) if matches!(param.kind, ParamKind::Number(..)) => {
            (number as f32).to_string()
        }
        other => other.to_string(),
    }
}

/// What a person typed; `None` where it is no value at all.
fn read(param: &Param, value: &str) -> Option<Result<f64, ParamError>> {
    let json = match (param.kind, value) {
        (ParamKind::Choice(_), word) => Value::String(word.to_owned()),
        (_, "all") if param.name == "penalty_range" => Value::from(-1),
        (_, "off") => Value::from(param.off.first().copied()?),
        (_, text) => serde_json::from_str(text).ok().filter(|v: &Value| !v.is_string())?,
    };
    Some(param.scalar(&json))
}

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
        let Some(setting) = Setting::all().find(|setting| setting.is_called(name)) else {
            let names: Vec<&str> = Setting::all().map(Setting::name).collect();
            return Err(format!("there is no setting {name}: choose one of {}", names.join(", ")));
        };
        let mut changed = self.clone();
        setting.set(&mut changed, value.trim())?;
        changed.sampling.validate().map_err(|error| error.to_string())?;
        *self = changed;
        Ok(format!("{} is {}", setting.name(), setting.show(self)))
    }

    fn show(&self) -> String {
        let width = Setting::all().map(|setting| setting.name().len()).max().unwrap_or(0);
        let line =
            |setting: Setting| format!("  {:width$}  {}", setting.name(), setting.show(self));
        let lines: Vec<String> = Setting::all().map(line).collect();
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
        for setting in Setting::all() {
            let mut settings = settings();
            let (name, shown) = (setting.name(), setting.show(&settings));
            let said = settings.take(&format!("{name} {shown}")).unwrap();
            assert_eq!(said, format!("{name} is {shown}"));
        }
        assert_eq!(settings().take("").unwrap().lines().count(), Setting::all().count());
    }

    #[test]
    fn wrong_values_change_nothing() {
        let mut settings = settings();
        for line in ["temperature -1", "temperature x", "top_p 2", "top_k -2", "nonsense 1", "seed"]
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
