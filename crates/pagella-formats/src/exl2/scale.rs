//! The square-law scales of EXL2 with their exact roundings.
//!
//! The ceiling of a group is divided by 256 and rounded to binary16 *before* the 4-bit code
//! multiplies it. That value is usually subnormal, so flushing subnormals or skipping the
//! rounding changes weights by up to a percent: the quantiser chose its codes knowing it.

use half::f16;

/// The smallest scale of a group: its ceiling times `prescale / 256`, rounded once.
pub fn group_step(scale_max: f16, prescale: f64) -> f16 {
    f16::from_f32(scale_max.to_f32() * (prescale / 256.0) as f32)
}

/// The scale of a column from its 4-bit code: `(code + 1)² · step`, rounded once.
pub fn column_scale(code: u8, step: f16) -> f16 {
    let root = f32::from(code) + 1.0;
    // At most 256, exact in binary16; the product of two binary16 is exact in f32.
    f16::from_f32(root * root * step.to_f32())
}

/// One weight: the offset-binary `code` of `bits` bits times `scale`, rounded once.
pub fn weight(code: u32, bits: u8, scale: f16) -> f16 {
    let centred = i64::from(code) - (1i64 << (bits - 1));
    f16::from_f32(centred as f32 * scale.to_f32())
}
