//! Floats of 8 bits and fewer, code by code.
//!
//! Every value is exact in f32. What a code means never depends on its neighbours.

use half::f16;

/// Values of [`Number::E2m1`], by code.
const E2M1: [f32; 16] =
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];
/// [`Number::E4m3`] read as the upper bits of a binary16 is too small by this.
const E4M3_FACTOR: f32 = 256.0;

/// What a code means.
#[derive(Clone, Debug, PartialEq)]
pub enum Number {
    /// 4 bits: sign, two of exponent, one digit; no infinity and no NaN.
    E2m1,
    /// 8 bits: sign, four of exponent, three digits; no infinity, and one NaN of either sign.
    E4m3,
    /// 8 bits: the upper half of a binary16.
    E5m2,
    /// 4 bits, with the values that a file lists.
    Table([f32; 16]),
}

impl Number {
    /// Bits of a code.
    pub fn bits(&self) -> u8 {
        match self {
            Number::E2m1 | Number::Table(_) => 4,
            Number::E4m3 | Number::E5m2 => 8,
        }
    }

    /// The value of a code; of 4 bits the lower ones count.
    pub fn value(&self, code: u8) -> f32 {
        match self {
            Number::E2m1 => entry(&E2M1, code),
            Number::Table(values) => entry(values, code),
            Number::E4m3 => e4m3(code),
            Number::E5m2 => e5m2(code),
        }
    }

    /// The values of all codes of 4 bits.
    pub fn table(&self) -> Option<&[f32; 16]> {
        match self {
            Number::E2m1 => Some(&E2M1),
            Number::Table(values) => Some(values),
            Number::E4m3 | Number::E5m2 => None,
        }
    }

    /// Largest finite magnitude.
    pub fn largest(&self) -> f32 {
        match self {
            Number::E2m1 => 6.0,
            Number::E4m3 => 448.0,
            Number::E5m2 => 57_344.0,
            Number::Table(values) => values.iter().fold(0.0, |most, value| value.abs().max(most)),
        }
    }

    /// Place of the first of these bytes that is no finite number.
    pub(crate) fn position_not_finite(&self, codes: &[u8]) -> Option<usize> {
        /// Bytes that are looked at together.
        const RUN: usize = 4096;
        let mask = match self {
            Number::E4m3 => 0x7F,
            Number::E5m2 => 0x7C,
            Number::E2m1 | Number::Table(_) => return None,
        };
        let is_not = |code: &u8| code & mask == mask;
        let runs = codes.chunks(RUN);
        let run = runs.map(|run| run.iter().fold(false, |found, code| found | is_not(code)));
        let first = run.enumerate().find(|(_, found)| *found)?.0 * RUN;
        Some(first + codes.get(first..)?.iter().position(is_not)?)
    }
}

fn entry(values: &[f32; 16], code: u8) -> f32 {
    values.get(usize::from(code & 15)).copied().unwrap_or_default()
}

/// The value of an E4M3 byte.
pub fn e4m3(byte: u8) -> f32 {
    if byte & 0x7F == 0x7F {
        return f32::NAN;
    }
    let half = u16::from(byte & 0x80) << 8 | u16::from(byte & 0x7F) << 7;
    f16::from_bits(half).to_f32() * E4M3_FACTOR
}

/// The value of an E5M2 byte.
pub fn e5m2(byte: u8) -> f32 {
    f16::from_bits(u16::from(byte) << 8).to_f32()
}

/// The value of an E8M0 byte, a power of two; NaN for 255.
pub fn e8m0(byte: u8) -> f32 {
    match byte {
        // Half of the smallest normal number.
        0 => f32::from_bits(1 << 22),
        255 => f32::NAN,
        _ => f32::from_bits(u32::from(byte) << 23),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A float of `exponent` and `digits` bits by its definition.
    fn by_definition(byte: u8, exponent: u32, digits: u32, bias: i32) -> f64 {
        let sign = if byte & 0x80 != 0 { -1.0 } else { 1.0 };
        let power = i32::from(byte >> digits & ((1 << exponent) - 1));
        let rest = f64::from(byte & ((1 << digits) - 1)) / f64::from(1 << digits);
        sign * match power {
            0 => rest * 2f64.powi(1 - bias),
            _ => (1.0 + rest) * 2f64.powi(power - bias),
        }
    }

    #[test]
    fn every_byte_has_the_value_of_its_definition() {
        for byte in 0..=u8::MAX {
            match byte & 0x7F {
                0x7F => assert!(e4m3(byte).is_nan()),
                _ => assert_eq!(f64::from(e4m3(byte)), by_definition(byte, 4, 3, 7), "{byte:x}"),
            }
            match byte & 0x7F {
                0x7C => assert!(e5m2(byte).is_infinite()),
                0x7D.. => assert!(e5m2(byte).is_nan()),
                _ => assert_eq!(f64::from(e5m2(byte)), by_definition(byte, 5, 2, 15), "{byte:x}"),
            }
            match byte {
                255 => assert!(e8m0(byte).is_nan()),
                _ => assert_eq!(f64::from(e8m0(byte)), 2f64.powi(i32::from(byte) - 127)),
            }
        }
        assert_eq!(
            [0x01, 0x07, 0x08, 0x38, 0x77, 0x7E, 0xB8].map(e4m3),
            [0.001953125, 0.013671875, 0.015625, 1.0, 240.0, 448.0, -1.0]
        );
    }

    #[test]
    fn bytes_that_are_no_number_are_found_wherever_they_stand() {
        for (number, bad, good) in [
            (Number::E4m3, &[0x7Fu8, 0xFF][..], &[0x7Eu8, 0xFE, 0x80, 0][..]),
            (Number::E5m2, &[0x7C, 0xFC, 0x7D, 0xFF], &[0x7B, 0xFB, 0x80]),
        ] {
            for place in [0, 4095, 4096, 9000] {
                let mut codes = vec![0u8; 9001];
                for byte in good {
                    codes[place] = *byte;
                    assert_eq!(number.position_not_finite(&codes), None, "{byte:x}");
                }
                for byte in bad {
                    codes[place] = *byte;
                    assert_eq!(number.position_not_finite(&codes), Some(place), "{byte:x}");
                }
            }
        }
    }
}
