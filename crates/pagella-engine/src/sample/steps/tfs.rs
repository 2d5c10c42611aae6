//! Tail-free sampling: cuts where the curve of probabilities has lost its curvature.
//!
//! With fewer than three candidates above 1e-8, or no curvature at all, nothing is cut.

use super::ProbabilityStep;
use crate::sample::chain::Moment;
use crate::sample::{Candidates, SampleOptions};

/// The step.
pub(crate) struct Tfs;

impl ProbabilityStep for Tfs {
    fn is_on(options: &SampleOptions) -> bool {
        options.tfs > 0.0 && options.tfs < 1.0
    }

    fn apply(moment: &mut Moment<'_>, candidates: &mut Candidates) {
        apply(moment.options.tfs, moment.options.min_keep, candidates);
    }
}

/// Candidates below this are the tail, whatever the curve.
const TAIL_BELOW: f64 = 1e-8;

/// Keeps the head that has the share `z` of all curvature; values outside (0, 1) are off.
pub fn apply(z: f32, min_keep: usize, candidates: &mut Candidates) {
    if !(z > 0.0 && z < 1.0) {
        return;
    }
    let list = candidates.as_slice();
    let head = &list[..list.partition_point(|c| c.p >= TAIL_BELOW)];
    let curvature = |w: &[crate::sample::Candidate]| (w[0].p - 2.0 * w[1].p + w[2].p).abs();
    let total: f64 = head.windows(3).map(curvature).sum();
    if head.len() < 3 || total == 0.0 {
        return;
    }
    let mut sum = 0.0;
    let leading = head.windows(3).take_while(|w| {
        sum += curvature(w) / total;
        sum <= f64::from(z)
    });
    let kept = leading.count() + 1;
    candidates.keep(kept.max(min_keep));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::steps::check::survivors;

    #[test]
    fn the_head_with_the_curvature_is_kept() {
        survivors(&[0.5, 0.3, 0.15, 0.05], |c| apply(0.95, 1, c), &[0, 1]);
        survivors(&[0.5, 0.3, 0.15, 0.05], |c| apply(0.01, 1, c), &[0]);
        survivors(&[0.5, 0.3, 0.15, 0.05], |c| apply(0.01, 3, c), &[0, 1, 2]);
        survivors(&[0.5, 0.3, 0.15, 0.05], |c| apply(0.0, 1, c), &[0, 1, 2, 3]);
    }

    #[test]
    fn short_lists_and_flat_lists_are_unchanged() {
        survivors(&[0.7, 0.3], |c| apply(0.5, 1, c), &[0, 1]);
        survivors(&[0.7, 0.3, 1e-10], |c| apply(0.5, 1, c), &[0, 1, 2]);
        survivors(&[0.25; 4], |c| apply(0.5, 1, c), &[0, 1, 2, 3]);
    }
}
