//! Candidates that are too many for a list: the same choice as with every step on a sorted list.

use super::*;
use crate::sample::chain::Moment;
use crate::sample::steps::adaptive_p::Average;
use crate::sample::steps::{skew, temperature};

/// Rows of which most steps keep thousands; of some, hundreds share a logit.
fn rows() -> Vec<(&'static str, Vec<f32>)> {
    let of = |n: u64, seed: u64, spread: f32| -> Vec<f32> {
        (0..n).map(|i| spread * normal(seed, i)).collect()
    };
    let mut peaked = of(12_011, 1, 2.0);
    (0..25).for_each(|i| peaked[i * 401 + 5] += 11.0 - 0.3 * i as f32);
    let tied: Vec<f32> = of(9_003, 2, 1.0).iter().map(|l| (l * 8.0).round() / 8.0).collect();
    let mut masked = of(15_001, 3, 1.5);
    masked.iter_mut().step_by(3).for_each(|l| *l = f32::NEG_INFINITY);
    let mut deep = of(8_000, 4, 1.0);
    deep.iter_mut().skip(5_000).for_each(|l| *l -= 5_000.0);
    vec![
        ("peaked", peaked),
        ("flat", of(16_007, 5, 0.4)),
        ("wide", of(12_345, 6, 12.0)),
        ("tied", tied),
        ("masked", masked),
        ("deep", deep),
        ("equal", vec![-7.25; 6_000]),
    ]
}

fn settings() -> Vec<SampleOptions> {
    let base = SampleOptions::default();
    let with = |change: &dyn Fn(&mut SampleOptions)| {
        let mut options = base.clone();
        change(&mut options);
        options
    };
    vec![
        base.clone(),
        with(&|o| o.temperature = 3.0),
        with(&|o| o.temperature = 0.3),
        with(&|o| o.smoothing_factor = 0.01),
        with(&|o| o.top_k = 4_000),
        with(&|o| (o.top_p, o.skew) = (0.97, 1.5)),
        with(&|o| (o.top_p, o.min_keep) = (0.5, 5_000)),
        with(&|o| o.top_a = 1e-3),
        with(&|o| o.min_p = 1e-4),
        with(&|o| (o.min_p, o.min_keep) = (0.9, 3_000)),
        with(&|o| o.tfs = 0.97),
        with(&|o| o.typical = 0.9),
        with(&|o| o.typical = 0.3),
        with(&|o| (o.typical, o.min_keep) = (0.3, 3_000)),
        with(&|o| o.epsilon_cutoff = 2e-5),
        with(&|o| o.eta_cutoff = 1e-5),
        with(&|o| (o.mirostat, o.mirostat_tau) = (true, 7.5)),
        with(&|o| o.top_n_sigma = 4.0),
        with(&|o| (o.temperature, o.temperature_last) = (0.6, true)),
        with(&|o| (o.temperature, o.temperature_last) = (0.0, true)),
        with(&|o| (o.min_temp, o.max_temp) = (0.5, 2.0)),
        with(&|o| o.xtc_probability = 0.6),
        with(&|o| (o.xtc_probability, o.xtc_threshold) = (1.0, 1e-3)),
        with(&|o| (o.xtc_probability, o.xtc_threshold) = (0.5, 2e-5)),
        with(&|o| o.adaptive_target = 0.4),
        with(&|o| o.adaptive_target = 0.004),
        with(&|o| o.adaptive_target = 0.0),
        with(&|o| (o.top_p, o.typical, o.min_p) = (0.98, 0.95, 1e-5)),
        with(&|o| (o.typical, o.temperature, o.temperature_last) = (0.95, 0.8, true)),
        with(&|o| (o.typical, o.eta_cutoff, o.top_n_sigma) = (0.9, 1e-5, 3.0)),
        with(&|o| {
            (o.top_p, o.min_temp, o.max_temp) = (0.99, 0.2, 0.9);
            (o.xtc_probability, o.xtc_threshold) = (0.5, 0.01);
        }),
        with(&|o| {
            (o.xtc_probability, o.xtc_threshold) = (0.4, 0.01);
            o.adaptive_target = 0.2;
        }),
        with(&|o| {
            o.sampler_order = SamplerOrder::completed(&[Step::MinP, Step::Temperature]);
            (o.min_p, o.temperature) = (1e-5, 1.3);
        }),
    ]
}

/// What every step makes of the whole row as a list, with the shape of the softmax.
pub fn plainly(
    options: &SampleOptions,
    logits: &[f32],
    state: &SamplerState,
) -> (Candidates, Vec<Candidate>) {
    let steps = options.sampler_order.steps().iter().filter(|s| !s.is_on_logits());
    let mut steps: Vec<Step> = steps.copied().filter(|step| options.uses(*step)).collect();
    let mut shape = Shape::UNCHANGED;
    let is_greedy = temperature::early(options) < temperature::GREEDY_BELOW;
    if steps.first() == Some(&Step::Temperature) && !is_greedy {
        shape = temperature::bend(options);
        steps.remove(0);
    }
    let max = logits.iter().fold(f64::NEG_INFINITY, |max, l| max.max(f64::from(*l)));
    let weight = |l: f32| shape.log_weight(f64::from(l) - max).exp();
    let list = (0u32..).zip(logits).map(|(id, l)| Candidate { id, p: weight(*l) });
    let mut candidates = Candidates::new(list.collect()).unwrap();
    let mut before = Vec::new();
    let mut moment = Moment {
        options,
        state,
        draws: draws(options.seed, 0, 0),
        xtc_ignored: &Bitmask::new_none(logits.len()),
        before_adaptive: &mut before,
    };
    steps.iter().for_each(|step| step.apply(&mut moment, &mut candidates));
    (candidates, before)
}

#[test]
fn many_candidates_give_the_choice_of_a_sorted_list() {
    let mut scratch = Scratch::new();
    let mut compared = 0;
    for (name, logits) in rows() {
        for options in settings() {
            let sampler = sampler(&options, logits.len());
            let mut before = SamplerState::new(&options);
            before.mirostat_mu = Some(14.0);
            let (mut exact, before_adaptive) = plainly(&options, &logits, &before);
            let sorted: Vec<(u32, f64)> = exact.as_slice().iter().map(|c| (c.id, c.p)).collect();
            for attempt in 0..12 {
                let what = format!("{name} {options:?} attempt {attempt}");
                let mut changed = logits.clone();
                let mut state = before.clone();
                let top = [0, 3, 40][attempt as usize % 3];
                let row = Row { attempt, top, ..row(&mut changed, &[]) };
                let found = sampler.pick(&mut state, &mut scratch, row).unwrap();
                for ((id, p), (exact_id, exact_p)) in found.top.iter().zip(&sorted) {
                    assert_eq!(id, exact_id, "{what}");
                    assert!((f64::from(*p) / exact_p - 1.0).abs() < 3e-6, "{what} {p} {exact_p}");
                }
                assert_eq!(found.top.len(), top.min(sorted.len()), "{what}");
                let r = skew::apply(options.skew, draws(options.seed, 0, attempt).id);
                // A draw this close to a boundary may fall on either side.
                if reference::distance_to_boundary(&sorted, r) < 2e-6 {
                    continue;
                }
                let (id, p) = reference::pick(&sorted, r);
                assert_eq!(found.id, id, "{what}");
                assert!((f64::from(found.p) / p - 1.0).abs() < 3e-6, "{what} {} {p}", found.p);
                if options.uses(Step::AdaptiveP) {
                    let p = before_adaptive.iter().find(|c| c.id == id).unwrap().p;
                    let sum = Average::start(&options).after(&options, p).sum;
                    assert!((state.adaptive.unwrap().sum / sum - 1.0).abs() < 1e-6, "{what}");
                }
                compared += 1;
            }
        }
    }
    assert!(compared > 1_200, "{compared}");
}
