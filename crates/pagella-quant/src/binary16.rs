//! Rounding to binary16 in loops that are vectorised: plain arithmetic on f32, no conversion.

/// The largest finite number.
pub(crate) const MAX: f32 = 65504.0;

/// Numbers below this are subnormal.
const NORMAL_MIN: f32 = 6.103_515_6e-5;

/// The nearest binary16 number, ties to even, subnormals kept, of a magnitude up to [`MAX`].
#[inline(always)]
pub(crate) fn nearest(value: f32) -> f32 {
    // Adding 0.75 leaves the last place of a subnormal, 2⁻²⁴, as the last place of the sum.
    const SHIFT: f32 = 0.75;
    let subnormal = (value + SHIFT) - SHIFT;
    let bits = value.to_bits();
    let even = (bits >> 13) & 1;
    let normal = f32::from_bits(bits.wrapping_add(0x0fff + even) & !0x1fff);
    if value.abs() < NORMAL_MIN { subnormal } else { normal }
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;

    #[test]
    fn every_finite_number_its_neighbours_and_their_middles_round_as_in_half() {
        for bits in 0..0x7c00u16 {
            let exact = f16::from_bits(bits).to_f32();
            let next = f16::from_bits(bits + 1).to_f32().min(MAX);
            let middle = exact + (next - exact) / 2.0;
            for value in [exact, middle.next_down(), middle, middle.next_up()] {
                for value in [value, -value] {
                    assert_eq!(nearest(value), f16::from_f32(value).to_f32(), "{value:e}");
                }
            }
        }
    }
}
