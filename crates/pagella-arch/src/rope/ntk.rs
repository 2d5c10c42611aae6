//! NTK alpha: the user's change of the rotary base, before any method of the config.

use super::stretched_base;
use crate::config::Config;
use crate::error::ArchError;

/// Largest base after all changes; above it f32 powers would overflow.
const BASE_MAX: f64 = 1e30;

pub(super) fn base(config: &Config, base: f64, alpha: f64, dim: usize) -> Result<f64, ArchError> {
    checked(config, stretched_base(base, alpha, dim), dim)
}

/// Refuses a stretched base that is out of range; a rotated width of 2 has only one frequency,
/// which no change of base can move.
pub(super) fn checked(config: &Config, base: f64, dim: usize) -> Result<f64, ArchError> {
    if dim > 2 && (1.0..=BASE_MAX).contains(&base) {
        return Ok(base);
    }
    Err(config.inconsistent(format!(
        "scaling changes the rotary base to {base:e} for a rotated width of {dim}, \
         allowed is 1 to {BASE_MAX:e} and a width above 2"
    )))
}
