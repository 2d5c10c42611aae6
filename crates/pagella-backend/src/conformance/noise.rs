//! Inputs: pseudo-random numbers that are the same on every machine.

use half::f16;

/// `len` numbers of about unit Gaussian distribution with the precision of f32; none is zero.
///
/// A longer call with the same seed begins with the same numbers.
pub(super) fn gaussian(seed: u64, len: usize) -> Vec<f32> {
    let mut random = SplitMix(seed.wrapping_mul(0xD1B5_4A32_D192_ED03));
    let mut next = || {
        // Twelve uniform numbers have variance one together, and no tail beyond ±6.
        let sum: f64 = (0..12).map(|_| random.unit()).sum();
        (sum - 6.0) as f32
    };
    (0..len).map(|_| Some(next()).filter(|x| *x != 0.0).unwrap_or(0.5)).collect()
}

/// As [`gaussian`], times `scale` and rounded to binary16, so that backends with half-precision
/// activations take the same numbers.
pub(super) fn halves(seed: u64, len: usize, scale: f32) -> Vec<f32> {
    gaussian(seed, len).into_iter().map(|x| f16::from_f32(x * scale).to_f32()).collect()
}

/// Weights around one, with the precision of f32.
pub(super) fn around_one(seed: u64, len: usize) -> Vec<f32> {
    gaussian(seed, len).into_iter().map(|x| 1.0 + 0.25 * x).collect()
}

/// The splitmix64 generator.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1).
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_mean_zero_and_variance_one() {
        let x = gaussian(7, 100_000);
        let mean = x.iter().map(|x| f64::from(*x)).sum::<f64>() / x.len() as f64;
        let square = x.iter().map(|x| f64::from(x * x)).sum::<f64>() / x.len() as f64;
        assert!(mean.abs() < 0.01 && (square - 1.0).abs() < 0.02, "{mean} {square}");
        assert_eq!(gaussian(7, 10), x[..10]);
        assert_ne!(gaussian(8, 10), x[..10]);
    }
}
