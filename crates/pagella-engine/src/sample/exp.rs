//! An exponential for long rows: plain f32 arithmetic that the compiler turns into vector code.
//!
//! `exp(x) = 2^n · exp(r)` with `n = round(x / ln 2)` and `|r| ≤ ln 2 / 2`; for `exp(r)` stands the
//! polynomial of degree 6 that equals it at the Chebyshev points of that range. Relative error below
//! 2e-7 on `[-87, 0]`.

/// Below this the result is about 1e-38, which no sum of probabilities notices.
pub const LOWEST: f32 = -87.0;
/// Adding it leaves the rounded integer in the low bits of the f32.
const ROUND: f32 = 12_582_912.0;
/// ln 2 in two parts; the first has few enough bits that `n` times it is exact.
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;

/// `exp(x)` for `x ≤ 0`. Values below [`LOWEST`], −∞ and NaN are taken for [`LOWEST`].
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let x = if x > LOWEST { x } else { LOWEST };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * LN_2_HIGH) - n * LN_2_LOW;
    let mut polynomial = 1.394_116_1e-3;
    for coefficient in [8.375_168e-3, 4.166_635e-2, 0.166_664_15, 0.5, 1.0, 1.0] {
        polynomial = polynomial * r + coefficient;
    }
    // The integer part becomes the exponent bits; everything above them is shifted out.
    let scale = f32::from_bits(shifted.to_bits().wrapping_add(127) << 23);
    polynomial * scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_stays_below_two_in_ten_million() {
        let mut worst = 0f64;
        for i in 0..870_000 {
            let x = -(i as f32) * 1e-4;
            let exact = f64::from(x).exp();
            worst = worst.max((f64::from(exp(x)) - exact).abs() / exact);
        }
        assert!(worst < 2e-7, "{worst:e}");
        assert_eq!(exp(0.0), 1.0);
    }

    #[test]
    fn values_without_probability_become_negligible() {
        for x in [-88.0, -1e30, f32::NEG_INFINITY, f32::NAN] {
            assert!(exp(x) > 0.0 && exp(x) < 2e-38, "{x}");
        }
    }
}
