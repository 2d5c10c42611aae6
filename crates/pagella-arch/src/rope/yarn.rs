//! YaRN: low frequencies interpolated, high ones kept, a ramp between, and a factor on sin and cos.
//!
//! The ramp is placed by the original length, not by the configured context, and the method
//! is active whenever the config asks for it.

use std::f64::consts::TAU;

use super::{Frequencies, Rotation, wavelengths};
use crate::error::ArchError;
use crate::limits;

/// The method of a config.
pub(super) fn frequencies(rotation: &Rotation<'_>) -> Result<Frequencies, ArchError> {
    let params = rotation.params;
    let factor = params.required_float(&["factor"], limits::ROPE_FACTOR)?;
    let yarn = Yarn {
        factor,
        beta_fast: params.float(&["beta_fast"], limits::ROPE_BETA)?.unwrap_or(BETA_FAST),
        beta_slow: params.float(&["beta_slow"], limits::ROPE_BETA)?.unwrap_or(BETA_SLOW),
        truncate: params.flag(&["truncate"])?.unwrap_or(true),
        attention_factor: attention_factor(rotation, factor)?,
        score_factor: score_factor(rotation, factor)?,
    };
    Ok(yarn.frequencies(rotation))
}

/// The method with the user's factor and defaults for everything else. Latent attention rotates a
/// part of its heads only and takes the factor of sin and cos, squared, on whole scores.
pub(super) fn with_factor(rotation: &Rotation<'_>, factor: f64, latent: bool) -> Frequencies {
    let scale = mscale(factor, 1.0);
    let (attention_factor, score_factor) = if latent { (1.0, scale * scale) } else { (scale, 1.0) };
    let yarn = Yarn {
        factor,
        beta_fast: BETA_FAST,
        beta_slow: BETA_SLOW,
        truncate: true,
        attention_factor,
        score_factor,
    };
    yarn.frequencies(rotation)
}

/// Rotations over the original length above which a frequency is kept.
const BETA_FAST: f64 = 32.0;
/// Rotations over the original length below which a frequency is interpolated in full.
const BETA_SLOW: f64 = 1.0;

struct Yarn {
    factor: f64,
    beta_fast: f64,
    beta_slow: f64,
    truncate: bool,
    attention_factor: f64,
    score_factor: f64,
}

impl Yarn {
    fn frequencies(&self, rotation: &Rotation<'_>) -> Frequencies {
        let (low, high) = self.ramp_bounds(rotation);
        let blend = |(i, wave): (usize, f32)| {
            let ramp = ((i as f32 - low as f32) / (high - low) as f32).clamp(0.0, 1.0);
            let kept = 1.0 - ramp;
            let interpolated = 1.0 / (self.factor as f32 * wave);
            interpolated * (1.0 - kept) + 1.0 / wave * kept
        };
        let waves = wavelengths(rotation.base, rotation.dim);
        Frequencies {
            inv_freq: waves.enumerate().map(blend).collect(),
            attention_factor: self.attention_factor as f32,
            score_factor: self.score_factor,
        }
    }

    /// Pair indices between which the ramp rises; `high > low`.
    fn ramp_bounds(&self, rotation: &Rotation<'_>) -> (f64, f64) {
        let dim = rotation.dim as f64;
        // The index whose wave fits `turns` times into the original length.
        let index = |turns: f64| {
            dim * (rotation.original as f64 / (turns * TAU)).ln() / (2.0 * rotation.base.ln())
        };
        let (low, high) = (index(self.beta_fast), index(self.beta_slow));
        let (low, high) = if self.truncate { (low.floor(), high.ceil()) } else { (low, high) };
        let (low, high) = (low.max(0.0), high.min(dim - 1.0));
        // Keeps the ramp's slope finite.
        if low == high { (low, high + 0.001) } else { (low, high) }
    }
}

/// Stated, else the ratio of the two mscales (DeepSeek), else by the paper's formula.
fn attention_factor(rotation: &Rotation<'_>, factor: f64) -> Result<f64, ArchError> {
    let params = rotation.params;
    if let Some(stated) = params.float(&["attention_factor"], limits::ROPE_ATTENTION_FACTOR)? {
        return Ok(stated);
    }
    Ok(match (weight(rotation, "mscale")?, weight(rotation, "mscale_all_dim")?) {
        (Some(scale), Some(all_dim)) => mscale(factor, scale) / mscale(factor, all_dim),
        _ => mscale(factor, 1.0),
    })
}

/// The square of the mscale of all dimensions, where one is stated.
fn score_factor(rotation: &Rotation<'_>, factor: f64) -> Result<f64, ArchError> {
    let all_dim = weight(rotation, "mscale_all_dim")?;
    Ok(all_dim.map_or(1.0, |weight| mscale(factor, weight).powi(2)))
}

fn weight(rotation: &Rotation<'_>, key: &str) -> Result<Option<f64>, ArchError> {
    let stated = rotation.params.float(&[key], limits::ROPE_MSCALE)?;
    Ok(stated.filter(|value| *value > 0.0))
}

fn mscale(factor: f64, weight: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * weight * factor.ln() + 1.0 }
}
