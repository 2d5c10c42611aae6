//! Tail-free sampling: cuts where the curve of probabilities has lost its curvature.
//!
//! With fewer than three candidates above 1e-8, or no curvature at all, nothing is cut.

use super::ProbabilityStep;
use crate::sample::chain::Moment;
use crate::sample::spread::Spread;
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

    fn apply_to_spread(moment: &mut Moment<'_>, spread: &mut Spread<'_>) -> bool {
        spread.keep_tail_free(f64::from(moment.options.tfs), moment.options.min_keep)
    }
}

/// Candidates below this are the tail, whatever the curve.
pub const TAIL_BELOW: f64 = 1e-8;

/// Keeps the head that has the share `z` of all curvature; values outside (0, 1) are off.
pub fn apply(z: f32, min_keep: usize, candidates: &mut Candidates) {
    if !(z > 0.0 && z < 1.0) {
        return;
    }
    let weights: Vec<f64> = candidates.as_slice().iter().map(|c| c.p).collect();
    let head = Head { weights: &weights, is_complete: true, least: TAIL_BELOW };
    if let HeadCut::After(kept) = head.cut(f64::from(z)) {
        candidates.keep(kept.max(min_keep));
    }
}

/// Where the most likely candidates are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadCut {
    /// Behind so many.
    After(usize),
    /// Nowhere: all stay.
    Nowhere,
    /// What is not known of the others decides.
    Unknown,
}

/// The most likely candidates, highest weight first.
pub struct Head<'a> {
    /// Their weights.
    pub weights: &'a [f64],
    /// There are no others.
    pub is_complete: bool,
    /// Lighter ones are the tail.
    pub least: f64,
}

impl Head<'_> {
    /// Behind those that have the share `z` of the curvature, of all that are no tail.
    pub fn cut(&self, z: f64) -> HeadCut {
        let head = &self.weights[..self.weights.partition_point(|w| *w >= self.least)];
        let is_complete = self.is_complete || head.len() < self.weights.len();
        let curvature = |w: &[f64]| (w[0] - 2.0 * w[1] + w[2]).abs();
        let known: f64 = head.windows(3).map(curvature).sum();
        // Neighbours that follow differ by no more than what is left to fall, and each counts twice.
        let missing = match head {
            _ if is_complete => 0.0,
            [.., last_but_one, _] => 2.0 * last_but_one,
            _ => return HeadCut::Unknown,
        };
        if is_complete && (head.len() < 3 || known == 0.0) {
            return HeadCut::Nowhere;
        }
        let leading = |total: f64| {
            let mut sum = 0.0;
            let within = head.windows(3).take_while(|w| {
                sum += curvature(w) / total;
                sum <= z
            });
            within.count()
        };
        let (least, most) = (leading(known), leading(known + missing));
        let crosses = is_complete || most + 2 < head.len();
        if least == most && crosses { HeadCut::After(least + 1) } else { HeadCut::Unknown }
    }
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
