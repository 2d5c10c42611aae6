//! Top-p: keeps the shortest prefix, most likely first, whose probabilities sum to at least p.
//!
//! The candidate that crosses the threshold is kept (S12: the reference drops it).

use crate::sample::Candidates;

/// Keeps the nucleus of mass `p`; values outside (0, 1) are off.
pub fn apply(p: f32, candidates: &mut Candidates) {
    if !(p > 0.0 && p < 1.0) {
        return;
    }
    let mut sum = 0.0;
    let crossing = candidates.as_slice().iter().position(|c| {
        sum += c.p;
        sum >= f64::from(p)
    });
    candidates.keep(crossing.map_or(candidates.len(), |at| at + 1));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::steps::check::survivors;

    #[test]
    fn s12_the_crossing_candidate_is_kept() {
        survivors(&[0.5, 0.4, 0.05, 0.05], |c| apply(0.8, c), &[0, 1]);
        survivors(&[0.4, 0.3, 0.2, 0.06, 0.04], |c| apply(0.8, c), &[0, 1, 2]);
    }

    #[test]
    fn extremes_keep_one_or_all() {
        survivors(&[0.5, 0.3, 0.2], |c| apply(1e-6, c), &[0]);
        survivors(&[0.5, 0.3, 0.2], |c| apply(1.0, c), &[0, 1, 2]);
        survivors(&[0.5, 0.3, 0.2], |c| apply(0.0, c), &[0, 1, 2]);
    }

    #[test]
    fn a_larger_p_never_removes_a_candidate() {
        let ps = [0.31, 0.22, 0.17, 0.12, 0.09, 0.05, 0.04];
        let kept = |p: f32| {
            let mut c = crate::sample::steps::check::candidates(&ps);
            apply(p, &mut c);
            c.len()
        };
        let counts: Vec<usize> = (1..=100).map(|i| kept(i as f32 / 100.0)).collect();
        assert!(counts.is_sorted(), "{counts:?}");
    }
}
