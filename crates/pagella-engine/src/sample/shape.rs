//! How a distance from the highest logit becomes a weight: temperature, or smoothing instead.
//!
//! With `d = l − l_max ≤ 0`: `ln w = d / T`, or `(s / T)·(−k·d² + c·d³)` with `k = (3 − curve) / 2`
//! and `c = (curve − 1) / 2`. Curve 1 is the plain quadratic. Both rise with `d`, so the order of
//! ids never changes. The same function applies to log-probabilities, wherever the step stands.

use super::exp::exp;

/// The logarithm of a weight as a function of the distance from the maximum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    /// `d · scale`, the scale being 1 / T.
    Linear {
        /// Reciprocal of the temperature.
        scale: f64,
    },
    /// `−square · d² + cube · d³`.
    Smooth {
        /// Factor of the square, at least 0.
        square: f64,
        /// Factor of the cube, at least 0.
        cube: f64,
    },
}

impl Shape {
    /// The plain softmax.
    pub const UNCHANGED: Shape = Shape::Linear { scale: 1.0 };

    /// Temperature, or smoothing where its factor is above 0.
    pub fn new(temperature: f32, smoothing_factor: f32, smoothing_curve: f32) -> Self {
        let scale = 1.0 / f64::from(temperature);
        if smoothing_factor <= 0.0 {
            return Shape::Linear { scale };
        }
        let factor = f64::from(smoothing_factor) * scale;
        let curve = f64::from(smoothing_curve);
        Shape::Smooth { square: factor * (3.0 - curve) / 2.0, cube: factor * (curve - 1.0) / 2.0 }
    }

    /// `ln w` for a distance `d ≤ 0`.
    pub fn log_weight(self, d: f64) -> f64 {
        match self {
            Shape::Linear { scale } => d * scale,
            Shape::Smooth { square, cube } => d * d * (cube * d - square),
        }
    }

    /// The distance `d ≤ 0`, at most `deepest` below 0, at which the log-weight falls to `log_weight`.
    pub fn depth(self, log_weight: f64, deepest: f64) -> f64 {
        match self {
            Shape::Linear { scale } => (log_weight / scale).max(-deepest),
            Shape::Smooth { .. } => {
                let mut out = -1.0;
                while self.log_weight(out) > log_weight && -out < deepest {
                    out *= 2.0;
                }
                let mut inside = 0.0;
                // 60 halvings reach the last bit.
                for _ in 0..60 {
                    let middle = 0.5 * (out + inside);
                    let enough = self.log_weight(middle) >= log_weight;
                    *(if enough { &mut inside } else { &mut out }) = middle;
                }
                out.max(-deepest)
            }
        }
    }

    /// The same, so much flatter: every log-weight times `factor`.
    pub fn times(self, factor: f64) -> Self {
        match self {
            Shape::Linear { scale } => Shape::Linear { scale: scale * factor },
            Shape::Smooth { square, cube } => {
                Shape::Smooth { square: square * factor, cube: cube * factor }
            }
        }
    }

    /// Log-weights of a row relative to its maximum, in f32. `out` has the row's length.
    #[inline(always)]
    pub fn log_weights(self, logits: &[f32], max: f32, out: &mut [f32]) {
        match self {
            Shape::Linear { scale } => {
                let scale = scale as f32;
                out.iter_mut().zip(logits).for_each(|(x, &l)| *x = (l - max) * scale);
            }
            Shape::Smooth { square, cube } => {
                let (square, cube) = (square as f32, cube as f32);
                let log = |d: f32| d * d * (cube * d - square);
                out.iter_mut().zip(logits).for_each(|(x, &l)| *x = log(l - max));
            }
        }
    }

    /// Weights of a row relative to its maximum, in f32; see `exp`. `out` has the row's length.
    #[inline(always)]
    pub fn weights(self, logits: &[f32], max: f32, out: &mut [f32]) {
        match self {
            Shape::Linear { scale } => {
                let scale = scale as f32;
                out.iter_mut().zip(logits).for_each(|(w, &l)| *w = exp((l - max) * scale));
            }
            Shape::Smooth { square, cube } => {
                let (square, cube) = (square as f32, cube as f32);
                let log = |d: f32| d * d * (cube * d - square);
                out.iter_mut().zip(logits).for_each(|(w, &l)| *w = exp(log(l - max)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_inverts_the_weight() {
        for shape in
            [Shape::new(0.8, 0.0, 1.0), Shape::new(0.7, 0.3, 1.0), Shape::new(1.0, 0.2, 2.5)]
        {
            for share in [0.9, 0.1, 1e-3, 1e-9] {
                let d = shape.depth(f64::ln(share), 1e3);
                assert!((shape.log_weight(d) - f64::ln(share)).abs() < 1e-9, "{shape:?} {share}");
            }
            assert_eq!(shape.depth(f64::NEG_INFINITY, 50.0), -50.0);
        }
    }

    #[test]
    fn long_rows_get_the_weights_of_the_formula() {
        let logits: Vec<f32> = (0..500).map(|i| 9.0 - i as f32 * 0.02).collect();
        for shape in
            [Shape::new(0.8, 0.0, 1.0), Shape::new(0.7, 0.3, 1.0), Shape::new(1.0, 0.2, 2.5)]
        {
            let mut out = vec![0.0; logits.len()];
            shape.weights(&logits, 9.0, &mut out);
            for (l, w) in logits.iter().zip(out) {
                let log = shape.log_weight(f64::from(*l) - 9.0);
                let error = (f64::from(w) / log.exp() - 1.0).abs();
                // Rounding the exponent to f32 costs a relative error in proportion to it.
                let bound = 2.5e-7 * (1.0 - log);
                assert!(log < -80.0 || error < bound, "{shape:?} {l} {error:e}");
            }
        }
    }
}
