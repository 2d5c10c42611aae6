//! The rest of the sampling settings, and settings from a file.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use pagella::SampleOptions;
use pagella_engine::sample::Rng;

use crate::usage::Usage;

/// Largest file of settings that is read, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// A starting point in place of the model's recommendation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Preset {
    /// Temperature 1 and everything else off
    Neutral,
    /// ExLlamaV2's defaults: temperature 0.8, top-k 50, top-p 0.8, repetition penalty 1.025
    Exl2,
}

/// Where draws come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Draws {
    /// A function of seed and position
    Philox,
    /// The Mersenne Twister, one draw after the other
    Mt19937,
}

/// Settings that fewer people need.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "More sampling")]
pub struct MoreSampling {
    /// Start from these settings instead of the model's recommendation
    #[arg(long, value_enum)]
    preset: Option<Preset>,
    /// Start from the settings in this JSON file; flags override them
    #[arg(long, value_name = "FILE", conflicts_with = "preset")]
    sampling: Option<PathBuf>,
    /// Keep tokens with A times the square of the highest probability; 0 is off
    #[arg(long, value_name = "A")]
    top_a: Option<f32>,
    /// Tail-free: cut where probabilities become flat; 0 or 1 is off
    #[arg(long, value_name = "Z")]
    tfs: Option<f32>,
    /// Keep tokens of ordinary surprise until this mass; 0 or 1 is off
    #[arg(long, value_name = "P")]
    typical: Option<f32>,
    /// Keep tokens with at least this probability; 0 is off
    #[arg(long, value_name = "P")]
    epsilon_cutoff: Option<f32>,
    /// Like --epsilon-cutoff, lower where the entropy is high; 0 is off
    #[arg(long, value_name = "P")]
    eta_cutoff: Option<f32>,
    /// Keep tokens within N standard deviations of the highest logit; 0 is off
    #[arg(long, value_name = "N")]
    top_n_sigma: Option<f32>,
    /// How many tokens the cuts leave at least
    #[arg(long, value_name = "N")]
    min_keep: Option<usize>,
    /// Apply the temperature after all cuts
    #[arg(long)]
    temperature_last: bool,
    /// Quadratic smoothing; 0 is off
    #[arg(long, value_name = "F")]
    smoothing_factor: Option<f32>,
    /// Cubic share of the smoothing, 1 to 3
    #[arg(long, value_name = "C", requires = "smoothing_factor")]
    smoothing_curve: Option<f32>,
    /// Temperature between LOW and HIGH by the entropy, bent by EXP
    #[arg(long, value_name = "LOW,HIGH[,EXP]", value_parser = dynatemp)]
    dynatemp: Option<Dynatemp>,
    /// Keep the surprise near TAU bits by an adaptive cut
    #[arg(long)]
    mirostat: bool,
    /// Wanted surprise in bits
    #[arg(long, value_name = "TAU", requires = "mirostat")]
    mirostat_tau: Option<f32>,
    /// How fast the cut adapts
    #[arg(long, value_name = "ETA", requires = "mirostat")]
    mirostat_eta: Option<f32>,
    /// How often likely tokens are excluded; 0 is off
    #[arg(long, value_name = "P")]
    xtc_probability: Option<f32>,
    /// From which probability a token counts as likely
    #[arg(long, value_name = "P", requires = "xtc_probability")]
    xtc_threshold: Option<f32>,
    /// Bend the draw: above 0 toward unlikely tokens, below toward likely ones
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    skew: Option<f32>,
    /// Over how many older tokens the penalties fade
    #[arg(long, value_name = "N")]
    penalty_decay: Option<usize>,
    /// Strength of DRY, which lowers tokens that extend a repetition; 0 is off
    #[arg(long, value_name = "M")]
    dry_multiplier: Option<f32>,
    /// Factor for every further token of the repetition
    #[arg(long, value_name = "B", requires = "dry_multiplier")]
    dry_base: Option<f32>,
    /// Repetitions shorter than this are free
    #[arg(long, value_name = "N", requires = "dry_multiplier")]
    dry_allowed_length: Option<usize>,
    /// How far back repetitions are looked for; 0 is everything
    #[arg(long, value_name = "N", requires = "dry_multiplier")]
    dry_range: Option<usize>,
    /// Longer repetitions count as this long
    #[arg(long, value_name = "N", requires = "dry_multiplier")]
    dry_max_ngram: Option<usize>,
    /// No group of N tokens occurs twice; 0 is off
    #[arg(long, value_name = "N")]
    no_repeat_ngram: Option<usize>,
    /// Add V to the logit of a token; inf and -inf decide and deny; can be repeated
    #[arg(long, value_name = "ID=V", value_parser = bias)]
    bias: Vec<(u32, f32)>,
    /// Where draws come from
    #[arg(long, value_enum)]
    rng: Option<Draws>,
}

/// Settings to start from.
pub struct Base {
    pub options: SampleOptions,
    /// The seed that a file states.
    pub seed: Option<u64>,
}

impl MoreSampling {
    /// What flags override: a file, a preset or the model's recommendation.
    pub fn base(&self, recommended: &SampleOptions) -> Result<Base> {
        if let Some(path) = &self.sampling {
            return read(path);
        }
        let options = match self.preset {
            None => recommended.clone(),
            Some(Preset::Neutral) => SampleOptions::default(),
            Some(Preset::Exl2) => SampleOptions::exl2_default(),
        };
        Ok(Base { options, seed: None })
    }

    /// Puts the given flags on top.
    pub fn apply(&self, options: &mut SampleOptions) {
        let set = |target: &mut f32, given: Option<f32>| *target = given.unwrap_or(*target);
        set(&mut options.top_a, self.top_a);
        set(&mut options.tfs, self.tfs);
        set(&mut options.typical, self.typical);
        set(&mut options.epsilon_cutoff, self.epsilon_cutoff);
        set(&mut options.eta_cutoff, self.eta_cutoff);
        set(&mut options.top_n_sigma, self.top_n_sigma);
        set(&mut options.smoothing_factor, self.smoothing_factor);
        set(&mut options.smoothing_curve, self.smoothing_curve);
        set(&mut options.mirostat_tau, self.mirostat_tau);
        set(&mut options.mirostat_eta, self.mirostat_eta);
        set(&mut options.xtc_probability, self.xtc_probability);
        set(&mut options.xtc_threshold, self.xtc_threshold);
        set(&mut options.skew, self.skew);
        set(&mut options.dry_multiplier, self.dry_multiplier);
        set(&mut options.dry_base, self.dry_base);
        let set = |target: &mut usize, given: Option<usize>| *target = given.unwrap_or(*target);
        set(&mut options.min_keep, self.min_keep);
        set(&mut options.penalty_decay, self.penalty_decay);
        set(&mut options.dry_allowed_length, self.dry_allowed_length);
        set(&mut options.dry_range, self.dry_range);
        set(&mut options.dry_max_ngram, self.dry_max_ngram);
        set(&mut options.no_repeat_ngram, self.no_repeat_ngram);
        options.temperature_last |= self.temperature_last;
        options.mirostat |= self.mirostat;
        options.logit_bias.extend(self.bias.iter().copied());
        if let Some(Dynatemp { low, high, exponent }) = self.dynatemp {
            (options.min_temp, options.max_temp, options.temp_exponent) = (low, high, exponent);
        }
        match self.rng {
            None => {}
            Some(Draws::Philox) => options.rng = Rng::Philox,
            Some(Draws::Mt19937) => options.rng = Rng::Mt19937,
        }
    }
}

/// Bounds of a dynamic temperature.
#[derive(Clone, Copy, Debug)]
struct Dynatemp {
    low: f32,
    high: f32,
    exponent: f32,
}

fn dynatemp(text: &str) -> Result<Dynatemp, String> {
    let numbers: Option<Vec<f32>> = text.split(',').map(|part| part.trim().parse().ok()).collect();
    let (low, high, exponent) = match numbers.as_deref() {
        Some([low, high]) => (*low, *high, 1.0),
        Some([low, high, exponent]) => (*low, *high, *exponent),
        _ => return Err("give LOW,HIGH or LOW,HIGH,EXP".to_owned()),
    };
    // Otherwise it would silently be off.
    match low < high {
        true => Ok(Dynatemp { low, high, exponent }),
        false => Err("HIGH must be above LOW".to_owned()),
    }
}

fn bias(text: &str) -> Result<(u32, f32), String> {
    let pair = text.split_once('=').and_then(|(id, value)| {
        let value: f32 = value.trim().parse().ok()?;
        Some((id.trim().parse().ok()?, value))
    });
    pair.filter(|(_, value)| !value.is_nan())
        .ok_or_else(|| "give a token id and a number, such as 42=-1.5 or 42=-inf".to_owned())
}

fn read(path: &Path) -> Result<Base> {
    let shown = path.display();
    let file = std::fs::File::open(path).with_context(|| format!("cannot read {shown}"))?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    anyhow::ensure!(bytes.len() as u64 <= FILE_BYTES_MAX, "{shown} is larger than 16 MiB");
    let wrong = |error: serde_json::Error| Usage::error(format!("{shown}: {error}"));
    let options: SampleOptions = serde_json::from_slice(&bytes).map_err(wrong)?;
    #[derive(serde::Deserialize)]
    struct Seed {
        seed: Option<u64>,
    }
    let Seed { seed } = serde_json::from_slice(&bytes).map_err(wrong)?;
    Ok(Base { options, seed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_and_ranges_are_read_or_refused() {
        assert_eq!(bias("5=-1.5"), Ok((5, -1.5)));
        assert_eq!(bias("5=-inf"), Ok((5, f32::NEG_INFINITY)));
        for text in ["", "5", "=1", "x=1", "5=x", "5=nan", "-1=2"] {
            assert!(bias(text).is_err(), "{text}");
        }
        let bent = dynatemp("0.5, 1.5,2").unwrap();
        assert_eq!((bent.low, bent.high, bent.exponent), (0.5, 1.5, 2.0));
        for text in ["", "1", "1,1", "2,1", "1,2,3,4", "a,b"] {
            assert!(dynatemp(text).is_err(), "{text}");
        }
    }
}
