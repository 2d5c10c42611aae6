//! The rest of the sampling settings, and settings from a file.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use pagella::SampleOptions;

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
    /// Temperature between LOW and HIGH by the entropy, bent by EXP
    #[arg(long, value_name = "LOW,HIGH[,EXP]", value_parser = dynatemp)]
    dynatemp: Option<Dynatemp>,
    /// Add V to the logit of a token; inf and -inf decide and deny; can be repeated
    #[arg(long, value_name = "ID=V", value_parser = bias)]
    bias: Vec<(u32, f32)>,
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
        options.logit_bias.extend(self.bias.iter().copied());
        if let Some(Dynatemp { low, high, exponent }) = self.dynatemp {
            (options.min_temp, options.max_temp, options.temp_exponent) = (low, high, exponent);
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
