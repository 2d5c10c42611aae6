//! Rotary tables: from the config's scaling method and the user's wishes to plain frequencies.
//!
//! One file per method, one line in [`METHODS`]. A method is a pure function from [`Rotation`] to
//! [`Frequencies`]. Frequencies are computed in f32 in the order of operations of transformers,
//! because a relative error of 1e-6 is already visible as an angle at position 100 000.
//! Methods that transformers resolves anew while a text grows (dynamic, longrope) are resolved
//! here once, for the configured context: keys in the cache could not follow a change.

mod default;
mod dynamic;
mod linear;
mod llama3;
mod longrope;
mod ntk;
mod scaling;
mod yarn;

pub(crate) use scaling::{RopeRequest, RopeTables, scaling_object, tables};

use crate::config::Config;
use crate::error::ArchError;

/// Every method by its name in `rope_type`. Unknown names are errors.
const METHODS: &[(&str, Method)] = &[
    ("default", default::frequencies),
    // Three positions per token, which are one in text.
    ("mrope", default::frequencies),
    ("linear", linear::frequencies),
    ("dynamic", dynamic::frequencies),
    ("llama3", llama3::frequencies),
    ("longrope", longrope::frequencies),
    ("su", longrope::frequencies),
    ("yarn", yarn::frequencies),
];

type Method = fn(&Rotation<'_>) -> Result<Frequencies, ArchError>;

/// What a method works from.
pub(crate) struct Rotation<'a> {
    /// Where the method's own keys are.
    params: &'a Config,
    /// Rotated width of a head; even.
    dim: usize,
    /// Rotary base, changed by the user's alpha.
    base: f64,
    /// Context that will be served, in tokens.
    context: usize,
    /// `max_position_embeddings`, in tokens.
    positions: usize,
    /// Length before scaling, in tokens.
    original: usize,
}

/// Result of a method.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Frequencies {
    /// Angle per position of each pair, `[dim / 2]`.
    inv_freq: Vec<f32>,
    /// Multiplies sin and cos.
    attention_factor: f32,
    /// Multiplies scores, in families that ask for it.
    score_factor: f64,
}

impl Frequencies {
    /// Frequencies without a factor on sin and cos.
    fn plain(inv_freq: Vec<f32>) -> Self {
        Self { inv_freq, attention_factor: 1.0, score_factor: 1.0 }
    }
}

/// `base^(2i/dim)` for every pair. The exponent is rounded to f32 first, as in transformers: that
/// rounding moves the result by up to 1e-6.
fn wavelengths(base: f64, dim: usize) -> impl Iterator<Item = f32> {
    let base = f64::from(base as f32);
    (0..dim).step_by(2).map(move |i| {
        let exponent = i as f32 / dim as f32;
        base.powf(f64::from(exponent)) as f32
    })
}

/// The base changed so that the lowest frequency slows down by `stretch` and the highest stays.
/// The exponent uses the rotated width, also for partial rotation.
fn stretched_base(base: f64, stretch: f64, dim: usize) -> f64 {
    base * stretch.powf(dim as f64 / (dim as f64 - 2.0))
}
