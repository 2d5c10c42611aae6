//! Unscaled rotation.

use super::{Frequencies, Rotation, wavelengths};
use crate::error::ArchError;

pub(super) fn frequencies(rotation: &Rotation<'_>) -> Result<Frequencies, ArchError> {
    let inv_freq = wavelengths(rotation.base, rotation.dim).map(|w| 1.0 / w).collect();
    Ok(Frequencies::plain(inv_freq))
}
