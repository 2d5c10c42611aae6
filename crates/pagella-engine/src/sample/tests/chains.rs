//! Random chains on random rows: the choice that every step on a sorted list of the whole row gives.
//!
//! Masked rows of which one or two ids are left, rows of one value, vocabularies of every small size,
//! temperatures at the ends of their range, steps in any order.

use super::spreads::plainly;
use super::*;
use crate::sample::steps::skew;

/// What differs by less is the same: the least that an f64 can be has no precision.
const NEGLIGIBLE: f64 = 1e-35;

/// Uniform numbers by a counter.
struct Random {
    seed: u64,
    n: u64,
}

impl Random {
    fn share(&mut self) -> f64 {
        self.n += 1;
        uniform(self.seed, self.n)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.share() * n as f64) as usize
    }

    fn of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }

    /// Between two numbers above 0, evenly in their logarithms.
    fn between(&mut self, low: f64, high: f64) -> f32 {
        (low.ln() + (high / low).ln() * self.share()).exp() as f32
    }
}

fn random_row(random: &mut Random, lens: &[usize]) -> Vec<f32> {
    let n = match random.of(lens) {
        0 => 1 + random.below(33),
        n => n + random.below(64),
    };
    let spread = random.of(&[0.0, 0.01, 0.4, 1.5, 4.0, 30.0]);
    let offset = random.of(&[0.0, -3.0, 50.0, -1e4]);
    let seed = random.below(1 << 30) as u64;
    let mut row: Vec<f32> = (0..n as u64).map(|i| offset + spread * normal(seed, i)).collect();
    match random.below(6) {
        0 => row.iter_mut().for_each(|l| *l = (*l * 4.0).round() / 4.0),
        1 => (0..20).for_each(|i| row[i * 7_919 % n] += 12.0 - 0.5 * i as f32),
        _ => {}
    }
    let left = match random.below(5) {
        0 => 1 + random.below(2),
        1 => n.div_ceil(2),
        _ => return row,
    };
    let open: Vec<usize> = (0..left).map(|_| random.below(n)).collect();
    let masked = (0..n).filter(|i| if left < 3 { !open.contains(i) } else { i % 2 == 1 });
    masked.for_each(|i| row[i] = f32::NEG_INFINITY);
    row
}

fn random_options(random: &mut Random) -> SampleOptions {
    let mut o = SampleOptions { seed: random.below(1 << 30) as u64, ..SampleOptions::default() };
    o.temperature = random.of(&[1.0, 1.0, 0.7, 1.3, 0.011, 0.1, 10.0, 0.0]);
    o.temperature_last = random.below(3) == 0;
    o.min_keep = random.of(&[1, 1, 1, 1, 2, 3_000]);
    for _ in 0..1 + random.below(4) {
        match random.below(15) {
            0 => o.top_k = random.of(&[1, 2, 40, 3_000, 100_000]),
            1 => o.top_p = 1.0 - random.between(1e-3, 1.0),
            2 => o.top_a = random.between(1e-7, 2.0),
            3 => o.min_p = random.between(1e-7, 1.0),
            4 | 5 => o.tfs = 1.0 - random.between(1e-3, 1.0),
            6 => o.typical = 1.0 - random.between(1e-3, 1.0),
            7 => o.epsilon_cutoff = random.between(1e-8, 0.3),
            8 => o.eta_cutoff = random.between(1e-8, 0.3),
            9 => (o.mirostat, o.mirostat_tau) = (true, random.between(0.1, 12.0)),
            10 => o.top_n_sigma = random.between(0.1, 6.0),
            11 => {
                (o.min_temp, o.max_temp) = (random.of(&[0.0, 0.3]), random.between(0.31, 30.0));
                o.temp_exponent = random.between(0.1, 4.0);
            }
            12 => {
                o.xtc_probability = random.of(&[0.3, 1.0]);
                o.xtc_threshold = random.between(1e-5, 0.5);
            }
            13 => o.adaptive_target = random.of(&[0.0, 0.003, 0.1, 0.6, 0.95]),
            _ => {
                o.smoothing_factor = random.between(1e-3, 2.0);
                o.smoothing_curve = random.of(&[1.0, 1.0, 2.5]);
            }
        }
    }
    o.skew = random.of(&[0.0, 0.0, 0.0, 0.7, -0.7]);
    if random.below(3) == 0 {
        let mut steps: Vec<Step> = Vec::new();
        let all: Vec<Step> = Step::ALL.iter().copied().filter(|s| !s.is_on_logits()).collect();
        while steps.len() < all.len() {
            let step = random.of(&all);
            if !steps.contains(&step) {
                steps.push(step);
            }
        }
        o.sampler_order = SamplerOrder::completed(&steps);
    }
    o
}

/// Compares random choices; how many were.
fn compare(seed: u64, cases: u64, lens: &[usize]) -> usize {
    let mut scratch = Scratch::new();
    let mut compared = 0;
    for case in 0..cases {
        let mut random = Random { seed: seed + case, n: 0 };
        let options = random_options(&mut random);
        let logits = random_row(&mut random, lens);
        let sampler = sampler(&options, logits.len());
        let before = SamplerState::new(&options);
        let (mut exact, _) = plainly(&options, &logits, &before);
        let sorted: Vec<(u32, f64)> = exact.as_slice().iter().map(|c| (c.id, c.p)).collect();
        // Adaptive-p gives probabilities weights that differ by rounding alone.
        let p = |id: u32| sorted.iter().find(|c| c.0 == id).map_or(0.0, |c| c.1);
        let is_twin = |a: u32, b: u32| {
            a == b || options.uses(Step::AdaptiveP) && (p(a) / p(b) - 1.0).abs() < 1e-9
        };
        // A temperature that is told by the entropy moves logarithms in proportion.
        let is_close = |found: f32, p: f64| {
            (f64::from(found) / p - 1.0).abs() < 5e-6 * (1.0 - p.ln()) || p < NEGLIGIBLE
        };
        for attempt in 0..4 {
            let what = format!("case {case}: {} logits, {options:?}", logits.len());
            let mut changed = logits.clone();
            let top = [0, 1, 5, 70][attempt as usize];
            let row = Row { attempt, top, ..row(&mut changed, &[]) };
            let found = sampler.pick(&mut before.clone(), &mut scratch, row).unwrap();
            for ((id, p), (exact_id, exact_p)) in found.top.iter().zip(&sorted) {
                assert!(is_twin(*id, *exact_id), "{what}: {id} {exact_id}");
                assert!(is_close(*p, *exact_p), "{what}: {p} {exact_p}");
            }
            let real = sorted.iter().filter(|c| c.1 >= NEGLIGIBLE).count();
            let n = found.top.iter().filter(|c| f64::from(c.1) >= NEGLIGIBLE).count();
            assert_eq!(n, top.min(real), "{what}");
            let r = skew::apply(options.skew, draws(options.seed, 0, attempt).id);
            if reference::distance_to_boundary(&sorted, r) > 4e-6 {
                let (id, p) = reference::pick(&sorted, r);
                assert!(is_twin(found.id, id), "{what}: {} {id}", found.id);
                assert!(is_close(found.p, p), "{what}: {} {p}", found.p);
                compared += 1;
            }
        }
    }
    compared
}

#[test]
fn random_chains_on_random_rows_give_the_choice_of_a_sorted_list() {
    let compared = compare(1, 600, &[0, 0, 70, 2_100, 6_000]);
    assert!(compared > 1_500, "{compared}");
}
