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

#[cfg(test)]
mod tests {
    use super::*;

    /// Scales of codes 0 to 15 as binary16 bits.
    fn table(scale_max: u16, prescale: f64) -> (u16, Vec<u16>) {
        let step = group_step(f16::from_bits(scale_max), prescale);
        (step.to_bits(), (0..16).map(|code| column_scale(code, step).to_bits()).collect())
    }

    #[test]
    fn scales_round_twice_and_keep_subnormals() {
        for (scale_max, step, scales) in [
            (
                0x3c00,
                0x1c00,
                "1C00 2400 2880 2C00 2E40 3080 3220 3400 3510 3640 3790 3880 3948 3A20 3B08 3C00",
            ),
            (
                0x224c,
                0x0326,
                "0326 0A4C 0F16 124C 14EB 1716 18D2 1A4C 1BF8 1CEB 1DF4 1F16 2028 20D2 2189 224C",
            ),
            (
                0x0e8e,
                0x001a,
                "001A 0068 00EA 01A0 028A 03A8 04FA 0680 081D 0914 0A25 0B50 0C4A 0CFA 0DB6 0E80",
            ),
        ] {
            let scales: Vec<u16> =
                scales.split(' ').map(|bits| u16::from_str_radix(bits, 16).unwrap()).collect();
            assert_eq!(table(scale_max, 1.0), (step, scales));
        }
    }

    #[test]
    fn prescale_is_folded_into_the_step_before_it_is_rounded() {
        let (step, scales) = table(0x224c, 0.22);
        assert_eq!((step, scales[0], scales[9], scales[15]), (0x00b1, 0x00b1, 0x1452, 0x1988));
    }

    #[test]
    fn weights_of_a_subnormal_step_round_once_more() {
        let scale = column_scale(12, group_step(f16::from_bits(0x0e8e), 1.0));
        let weights =
            [158, 60, 218, 120, 23, 181, 83, 241].map(|code| weight(code, 8, scale).to_bits());
        assert_eq!(weights, [0x2005, 0xa48f, 0x2608, 0x984a, 0xa709, 0x231b, 0xa208, 0x2793]);
    }
}
