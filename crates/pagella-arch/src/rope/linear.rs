//! Linear scaling: positions divided by a factor.

use super::{Frequencies, Rotation, default};
use crate::error::ArchError;
use crate::limits;

pub(super) fn frequencies(rotation: &Rotation<'_>) -> Result<Frequencies, ArchError> {
    let factor = rotation.params.required_float(&["factor"], limits::ROPE_FACTOR)?;
    Ok(divide(default::frequencies(rotation)?, factor))
}

/// Dividing the frequencies is dividing the positions.
pub(super) fn divide(frequencies: Frequencies, factor: f64) -> Frequencies {
    let divided = frequencies.inv_freq.iter().map(|f| f / factor as f32).collect();
    Frequencies { inv_freq: divided, ..frequencies }
}
