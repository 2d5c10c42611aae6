//! Epsilon and eta cut-offs: a lowest probability, fixed or following the entropy (Hewitt et al.
//! 2022).

use crate::sample::Candidates;

/// Keeps `p ≥ epsilon`, always the most likely; 0 is off.
pub fn epsilon(epsilon: f32, min_keep: usize, candidates: &mut Candidates) {
    if epsilon > 0.0 {
        candidates.keep_reaching(f64::from(epsilon), min_keep);
    }
}

/// Keeps `p ≥ min(epsilon, √epsilon · exp(−entropy))`; 0 is off.
pub fn eta(epsilon: f32, min_keep: usize, candidates: &mut Candidates) {
    if epsilon > 0.0 {
        let epsilon = f64::from(epsilon);
        let threshold = epsilon.min(epsilon.sqrt() * (-candidates.entropy()).exp());
        candidates.keep_reaching(threshold, min_keep);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::steps::check::survivors;

    #[test]
    fn unlikely_ids_are_cut() {
        survivors(&[0.5, 0.25, 0.125, 0.125], |c| epsilon(0.25, 1, c), &[0, 1]);
        survivors(&[0.5, 0.25, 0.125, 0.125], |c| epsilon(0.9, 1, c), &[0]);
        survivors(&[0.5, 0.25, 0.125, 0.125], |c| epsilon(0.9, 3, c), &[0, 1, 2]);
    }

    #[test]
    fn eta_cuts_less_where_the_entropy_is_high() {
        // Sixteen equal ids: exp(−H) is 1/16, so √.04 / 16 = .0125 is the limit, below 1/16.
        survivors(&[1.0; 16], |c| eta(0.04, 1, c), &(0..16).collect::<Vec<_>>());
        survivors(&[0.97, 0.02, 0.01], |c| eta(0.04, 1, c), &[0]);
    }
}
