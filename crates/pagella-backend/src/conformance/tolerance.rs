//! How far a backend may be from f64: the one table, with the origin of its numbers.
//!
//! Unless said otherwise a number bounds the relative RMS error of an output,
//! `sqrt(Σ (found − expected)² / Σ expected²)`; a single row may have twice of it.

use crate::KvFormat;

/// RMS error of 8-bit cache codes on unit Gaussian data, a property of the encoding.
const CODE_ERROR_8BIT: f64 = 0.0060;
/// RMS error of 4-bit cache codes on unit Gaussian data, a property of the encoding.
const CODE_ERROR_4BIT: f64 = 0.093;
/// RMS error of keeping 2 bits of mantissa on unit Gaussian data: the lost part is spread evenly
/// over a quarter of the leading bit.
const TRUNCATION_ERROR_2BIT: f64 = 0.0981;
/// Room above an expected error: data of finite size scatters around it.
const MARGIN: f64 = 1.5;

/// Largest accepted errors of a backend's arithmetic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerances {
    /// Embedding and position rows, scaled and added.
    pub embed: f64,
    /// Norms; the largest error of an element relative to it or to the RMS of its row, whichever
    /// is larger.
    pub norm: f64,
    /// Linears with quantised weights, against their exact binary16 weights.
    pub quantised_linear: f64,
    /// Linears with plain weights.
    pub plain_linear: f64,
    /// Queries after clip, norm and rotation.
    pub rotation: f64,
    /// Attention over keys and values rounded to binary16, when these are stored as given.
    pub attention: f64,
    /// The same when keys are normed or rotated first: now and then a backend and f64 differ in
    /// the last bit of a key and round it to different neighbours.
    pub attention_of_computed_keys: f64,
    /// Activation times `up`.
    pub activation: f64,
}

impl Tolerances {
    /// Activations in binary16, sums in f32: one rounding of 2⁻¹¹ = 4.9e-4 at most per op, about
    /// 2e-4 RMS; the caps leave room for a second one on the way.
    pub const HALF: Tolerances = Tolerances {
        embed: 4e-4,
        norm: 1e-3,
        quantised_linear: 4e-4,
        plain_linear: 4e-4,
        rotation: 4e-4,
        attention: 1e-3,
        attention_of_computed_keys: 1e-3,
        activation: 6e-4,
    };

    /// Everything in f32: a few roundings of 2⁻²⁴ = 6e-8 per element, growing with the root of a
    /// sum's length. One element of a key on the other side of a rounding is off by up to 2⁻¹⁰,
    /// which moves a score, and with it a weight, by `2⁻¹⁰ · |q| / √D`: 1.2e-4 for `D = 64`.
    pub const SINGLE: Tolerances = Tolerances {
        embed: 2e-7,
        norm: 1e-6,
        quantised_linear: 1e-6,
        plain_linear: 1e-6,
        rotation: 1e-6,
        attention: 1e-5,
        attention_of_computed_keys: 2e-4,
        activation: 1e-6,
    };

    /// As [`Tolerances::SINGLE`], but quantised linears take activations in 15 bits per block and
    /// scales that are not rounded together with the codes: 2e-4 on random data.
    pub const WIDE: Tolerances = Tolerances { quantised_linear: 2.5e-4, ..Tolerances::SINGLE };

    /// Attention over a cache of a format, against keys and values that were never rounded.
    /// Relative RMS error over all rows together; data must be unit Gaussian and `scale` `1/√D`.
    ///
    /// An error of `e` per value moves the output by `e` relative to it, because both are averages
    /// with the same weights; an error of `e` per key element moves a score by `e`, hence every
    /// weight by the factor `1 ± e`, hence the output by `e` again.
    pub fn cache(&self, format: KvFormat) -> f64 {
        let (key, value) = match format {
            KvFormat::F32 => return self.attention,
            // Rounding to 11 bits costs 2e-4 RMS for each.
            KvFormat::F16 => return Self::HALF.attention,
            KvFormat::Q8 => (CODE_ERROR_8BIT, CODE_ERROR_8BIT),
            KvFormat::Fp8 => (TRUNCATION_ERROR_2BIT, TRUNCATION_ERROR_2BIT),
            KvFormat::K8V4 => (CODE_ERROR_8BIT, CODE_ERROR_4BIT),
            KvFormat::Q4 => (CODE_ERROR_4BIT, CODE_ERROR_4BIT),
        };
        MARGIN * f64::hypot(key, value) + self.attention
    }
}
