//! Draws follow the distributions: χ² over a million draws with fixed seeds, so nothing is flaky.

use super::vectors::exact_rows;
use super::*;

/// Draws per setting; with more than sixty settings a million in total.
const DRAWS: u32 = 16_000;
/// One-sided limit in standard deviations of a normal variable, about 5 in 100,000.
const LIMIT: f64 = 3.9;

/// How often every id is drawn. Each draw is another attempt at the same position.
fn counts(options: &SampleOptions, logits: &[f32], history: &[u32], draws: u32) -> Vec<f64> {
    let sampler = sampler(options, logits.len());
    let mut scratch = Scratch::new();
    let mut counts = vec![0.0; logits.len()];
    let mut state = SamplerState::new(options);
    let mut changed = logits.to_vec();
    for attempt in 0..draws {
        changed.copy_from_slice(logits);
        state.rewind_to(&SamplerState::default());
        let row = Row { attempt, ..row(&mut changed, history) };
        counts[sampler.pick(&mut state, &mut scratch, row).unwrap().id as usize] += 1.0;
    }
    counts
}

/// Fails unless the counts could come from the distribution. Cells with few expected draws are
/// taken together.
fn check(counts: &[f64], expected: &[(u32, f64)], what: &SampleOptions) {
    let draws: f64 = counts.iter().sum();
    let possible: f64 = expected.iter().map(|(id, _)| counts[*id as usize]).sum();
    assert_eq!(possible, draws, "an id without probability was drawn: {what:?}");
    let (mut chi2, mut cells, mut few) = (0.0, 0usize, (0.0, 0.0));
    for (id, p) in expected {
        let (observed, wanted) = (counts[*id as usize], p * draws);
        if wanted < 8.0 {
            few = (few.0 + observed, few.1 + wanted);
        } else {
            chi2 += (observed - wanted).powi(2) / wanted;
            cells += 1;
        }
    }
    if few.1 >= 8.0 {
        chi2 += (few.0 - few.1).powi(2) / few.1;
        cells += 1;
    }
    if cells < 2 {
        return;
    }
    // The quantile of χ² by the approximation of Wilson and Hilferty.
    let freedom = (cells - 1) as f64;
    let spread = 2.0 / (9.0 * freedom);
    let limit = freedom * (1.0 - spread + LIMIT * spread.sqrt()).powi(3);
    assert!(chi2 < limit, "χ² {chi2} with {freedom} degrees, limit {limit}: {what:?}");
}

#[test]
fn draws_follow_the_exact_distribution_of_every_setting() {
    for case in exact_rows() {
        let options = SampleOptions { seed: 11, ..case.options };
        let found = counts(&options, &case.logits, &case.history, DRAWS);
        check(&found, &case.expected, &options);
    }
}

#[test]
fn the_xtc_mixture_equals_the_drawn_procedure() {
    let options = SampleOptions { xtc_probability: 0.5, seed: 3, ..SampleOptions::default() };
    let logits = logits_of(&[0.3, 0.05, 0.25, 0.2, 0.15, 0.05]);
    let exact: Vec<(u32, f64)> =
        distribution(&options, &logits, &[]).iter().map(|&(id, p)| (id, f64::from(p))).collect();
    let drawn = SampleOptions { xtc_mode: XtcMode::Draw, ..options };
    check(&counts(&drawn, &logits, &[], 4 * DRAWS), &exact, &drawn);
}

#[test]
fn the_mersenne_twister_draws_the_same_distribution() {
    let options = SampleOptions { rng: Rng::Mt19937, seed: 1234, ..SampleOptions::default() };
    let ps = [0.5, 0.3, 0.15, 0.05];
    let exact: Vec<(u32, f64)> = (0..).zip(ps).collect();
    check(&counts(&options, &logits_of(&ps), &[], 4 * DRAWS), &exact, &options);
}

#[test]
fn skew_moves_draws_to_one_end() {
    let logits = logits_of(&[0.4, 0.3, 0.2, 0.1]);
    let at = |skew: f32| {
        let options = SampleOptions { skew, seed: 5, ..SampleOptions::default() };
        counts(&options, &logits, &[], DRAWS)
    };
    // With r' = r^a a cumulative probability c is reached with probability c^(1/a).
    for skew in [-1.0f32, 1.0] {
        let inverse = f64::from(skew).exp();
        let reached: Vec<f64> = [0.0, 0.4, 0.7, 0.9, 1.0].map(|c: f64| c.powf(inverse)).to_vec();
        let exact: Vec<(u32, f64)> =
            (0..4).map(|i| (i as u32, reached[i + 1] - reached[i])).collect();
        check(&at(skew), &exact, &SampleOptions { skew, ..SampleOptions::default() });
    }
}
