//! XTC, "exclude top choices": now and then leaves out every likely choice but the least of them.
//!
//! E is the set of candidates at or above the threshold that are not ignored, less its least likely
//! member (the highest id among equals) if it has two or more; a single one is never excluded. With
//! probability q all of E is left out. The mixture form gives each id its exact probability over both
//! outcomes and needs no draw of its own.

use super::ProbabilityStep;
use crate::sample::chain::Moment;
use crate::sample::spread::Spread;
use crate::sample::{Bitmask, Candidates, SampleOptions, XtcMode};

/// The step.
pub(crate) struct Xtc;

impl ProbabilityStep for Xtc {
    fn is_on(options: &SampleOptions) -> bool {
        options.xtc_probability > 0.0
    }

    fn apply(moment: &mut Moment<'_>, candidates: &mut Candidates) {
        let o = moment.options;
        let (q, threshold, ignored) = (o.xtc_probability, o.xtc_threshold, moment.xtc_ignored);
        match o.xtc_mode {
            XtcMode::Mixture => mixture(q, threshold, ignored, candidates),
            XtcMode::Draw => drawn(q, threshold, ignored, moment.draws.xtc, candidates),
        }
    }

    fn apply_to_spread(moment: &mut Moment<'_>, spread: &mut Spread<'_>) -> bool {
        let o = moment.options;
        let acts =
            o.xtc_mode == XtcMode::Mixture || moment.draws.xtc < f64::from(o.xtc_probability);
        let q = if o.xtc_mode == XtcMode::Mixture { f64::from(o.xtc_probability) } else { 1.0 };
        !acts || spread.exclude(q, f64::from(o.xtc_threshold), moment.xtc_ignored)
    }
}

/// Which candidates are in E.
fn excluded(threshold: f32, ignored: &Bitmask, candidates: &mut Candidates) -> Vec<u32> {
    let threshold = f64::from(threshold);
    let likely = candidates.unordered().iter().filter(|c| c.p >= threshold).count();
    let top = candidates.first(likely).iter();
    let mut ids: Vec<u32> = top.filter(|c| !ignored.contains(c.id)).map(|c| c.id).collect();
    ids.pop();
    ids
}

/// Samples from the mixture: E is left out with probability `q`.
pub fn mixture(q: f32, threshold: f32, ignored: &Bitmask, candidates: &mut Candidates) {
    let mut ids = excluded(threshold, ignored, candidates);
    if ids.is_empty() {
        return;
    }
    ids.sort_unstable();
    let q = f64::from(q);
    let is_excluded = |id: u32| ids.binary_search(&id).is_ok();
    // The rest is never empty: the least likely of the likely ones is part of it.
    let (mut x, mut rest) = (0.0, 0.0);
    for c in candidates.unordered() {
        *(if is_excluded(c.id) { &mut x } else { &mut rest }) += c.p;
    }
    let more = 1.0 + q * x / rest;
    candidates.reweigh(|c| if is_excluded(c.id) { c.p * (1.0 - q) } else { c.p * more });
}

/// Leaves E out if the draw `r` is below `q`.
pub fn drawn(q: f32, threshold: f32, ignored: &Bitmask, r: f64, candidates: &mut Candidates) {
    if r < f64::from(q) {
        mixture(1.0, threshold, ignored, candidates);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::steps::check::probabilities;

    fn ignoring(ids: &[u32]) -> Bitmask {
        let mut mask = Bitmask::new_none(32);
        ids.iter().for_each(|id| mask.allow(*id));
        mask
    }

    fn check(ignored: &[u32], ps: &[f64], expected: &[f64]) {
        probabilities(ps, |c| mixture(0.5, 0.1, &ignoring(ignored), c), expected);
    }

    #[test]
    fn the_mixture_has_the_published_values() {
        check(&[], &[0.5, 0.3, 0.15, 0.05], &[0.25, 0.15, 0.45, 0.15]);
        check(&[2], &[0.5, 0.3, 0.15, 0.05], &[0.25, 0.45, 0.225, 0.075]);
    }

    #[test]
    fn the_order_of_ids_and_ignored_ids_do_not_disturb_the_weights() {
        check(&[], &[0.05, 0.3, 0.15, 0.5], &[0.15, 0.15, 0.45, 0.25]);
        check(&[3], &[0.05, 0.3, 0.15, 0.5], &[0.060714, 0.15, 0.182143, 0.607143]);
    }

    #[test]
    fn one_likely_choice_is_never_excluded_and_the_highest_id_of_equals_stays() {
        check(&[], &[0.9, 0.05, 0.05], &[0.9, 0.05, 0.05]);
        check(&[0, 1, 2], &[0.4, 0.3, 0.3], &[0.4, 0.3, 0.3]);
        let sure = |c: &mut Candidates| mixture(1.0, 0.1, &ignoring(&[]), c);
        probabilities(&[0.4, 0.3, 0.3], sure, &[0.0, 0.0, 1.0]);
    }

    #[test]
    fn drawing_gives_one_of_both_outcomes() {
        let at = |r: f64| move |c: &mut Candidates| drawn(0.5, 0.1, &ignoring(&[]), r, c);
        probabilities(&[0.5, 0.3, 0.15, 0.05], at(0.5), &[0.5, 0.3, 0.15, 0.05]);
        probabilities(&[0.5, 0.3, 0.15, 0.05], at(0.49), &[0.0, 0.0, 0.75, 0.25]);
    }
}
