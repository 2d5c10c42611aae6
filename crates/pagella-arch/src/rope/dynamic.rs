//! Dynamic NTK scaling, resolved for the configured context. With an `alpha` it is not dynamic at all:
//! the base is stretched by it at any length.

use super::{Frequencies, Rotation, default, ntk, stretched_base};
use crate::error::ArchError;
use crate::limits;

pub(super) fn frequencies(rotation: &Rotation<'_>) -> Result<Frequencies, ArchError> {
    if let Some(alpha) = rotation.params.float(&["alpha"], limits::NTK_ALPHA)? {
        let base = ntk::base(rotation.params, rotation.base, alpha, rotation.dim)?;
        return default::frequencies(&Rotation { base, ..*rotation });
    }
    let factor = rotation.params.required_float(&["factor"], limits::ROPE_FACTOR)?;
    let native = rotation.positions as f64;
    let length = (rotation.context as f64).max(native);
    let stretch = factor * length / native - (factor - 1.0);
    let base = stretched_base(rotation.base, stretch, rotation.dim);
    let base = ntk::checked(rotation.params, base, rotation.dim)?;
    default::frequencies(&Rotation { base, ..*rotation })
}
