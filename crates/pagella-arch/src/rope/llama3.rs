//! Llama 3.1 scaling: long waves slowed down by a factor, short ones kept, a ramp between.

use std::f32::consts::TAU;

use super::{Frequencies, Rotation, default};
use crate::error::ArchError;
use crate::limits;

pub(super) fn frequencies(rotation: &Rotation<'_>) -> Result<Frequencies, ArchError> {
    let params = rotation.params;
    let factor = params.required_float(&["factor"], limits::ROPE_FACTOR)? as f32;
    let low = params.required_float(&["low_freq_factor"], limits::ROPE_BETA)?;
    let high = params.required_float(&["high_freq_factor"], limits::ROPE_BETA)?;
    if high <= low {
        return Err(params.inconsistent(format!(
            "`{}` ({high}) must be larger than `{}` ({low})",
            params.path("high_freq_factor"),
            params.path("low_freq_factor")
        )));
    }
    let original = rotation.original as f64;
    let (longest, shortest) = ((original / low) as f32, (original / high) as f32);
    let scale = |freq: f32| {
        let wave = TAU / freq;
        if wave < shortest {
            freq
        } else if wave > longest {
            freq / factor
        } else {
            let smooth = (original as f32 / wave - low as f32) / (high - low) as f32;
            (1.0 - smooth) * freq / factor + smooth * freq
        }
    };
    let plain = default::frequencies(rotation)?;
    Ok(Frequencies::plain(plain.inv_freq.into_iter().map(scale).collect()))
}
