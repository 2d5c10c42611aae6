//! Skew: bends the draw toward unlikely or likely candidates.

/// `r^(e^−skew)`: above 0 toward 1, the unlikely end; below 0 toward 0, the likely one.
pub fn apply(skew: f32, r: f64) -> f64 {
    if skew == 0.0 { r } else { r.powf((-f64::from(skew)).exp()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_draw_is_bent_as_published() {
        assert!((apply(1.0, 0.5) - 0.774921).abs() < 1e-6);
        assert!((apply(-1.0, 0.5) - 0.151955).abs() < 1e-6);
        assert_eq!(apply(0.0, 0.3), 0.3);
        assert_eq!([apply(-50.0, 0.5), apply(-50.0, 0.0), apply(50.0, 0.0)], [0.0, 0.0, 0.0]);
    }
}
