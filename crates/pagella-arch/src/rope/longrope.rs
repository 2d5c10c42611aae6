//! LongRoPE (once called su): a divisor per frequency, one set for short and one for long contexts.
//!
//! The set follows the configured context and stays; the factor on sin and cos follows the
//! config's own lengths, whatever context the user chose.

use super::{Frequencies, Rotation, wavelengths};
use crate::error::ArchError;
use crate::limits;

pub(super) fn frequencies(rotation: &Rotation<'_>) -> Result<Frequencies, ArchError> {
    let is_long = rotation.context > rotation.original;
    // Both sets are checked, so that a broken file fails at any context.
    let short = divisors(rotation, "short_factor")?;
    let long = divisors(rotation, "long_factor")?;
    let divisors = if is_long { long } else { short };
    let waves = wavelengths(rotation.base, rotation.dim);
    let inv_freq =
        waves.zip(divisors).map(|(wave, divisor)| 1.0 / (divisor as f32 * wave)).collect();
    let attention_factor = attention_factor(rotation, is_long)? as f32;
    Ok(Frequencies { attention_factor, ..Frequencies::plain(inv_freq) })
}

fn divisors(rotation: &Rotation<'_>, key: &str) -> Result<Vec<f64>, ArchError> {
    let params = rotation.params;
    let list = params.floats(&[key], limits::ROPE_FACTOR)?.ok_or_else(|| params.missing(&[key]))?;
    let pairs = rotation.dim / 2;
    if list.len() != pairs {
        let (key, n) = (params.path(key), list.len());
        return Err(
            params.inconsistent(format!("`{key}` has {n} entries for {pairs} rotated pairs"))
        );
    }
    Ok(list)
}

fn attention_factor(rotation: &Rotation<'_>, is_long: bool) -> Result<f64, ArchError> {
    let params = rotation.params;
    let of_set = if is_long { "long_mscale" } else { "short_mscale" };
    let stated = params.float(&["attention_factor", of_set], limits::ROPE_ATTENTION_FACTOR)?;
    if let Some(stated) = stated {
        return Ok(stated);
    }
    let original = rotation.original as f64;
    let factor = params.float(&["factor"], limits::ROPE_FACTOR)?;
    let factor = factor.unwrap_or(rotation.positions as f64 / original);
    // An original length of 1 has no logarithm to divide by.
    if factor <= 1.0 || rotation.original < 2 {
        return Ok(1.0);
    }
    Ok((1.0 + factor.ln() / original.ln()).sqrt())
}
