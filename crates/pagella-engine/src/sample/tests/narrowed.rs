//! Choices from narrowed rows are those of whole rows, or are left to them.
//!
//! The device is simulated by a plain sort that errs in the mass as much as a device may.

use pagella_backend::{NARROW_MASS_ERROR, NarrowAsk, NarrowRow, narrow_plain};

use super::*;

/// Random numbers as a function of what was drawn before.
struct Dice {
    seed: u64,
    n: u64,
}

impl Dice {
    fn unit(&mut self) -> f64 {
        self.n += 1;
        uniform(self.seed, self.n)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.unit() * n as f64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// 0 in half of the cases, else a number within.
    fn maybe(&mut self, low: f32, high: f32) -> f32 {
        if self.one_in(2) { 0.0 } else { low + (high - low) * self.unit() as f32 }
    }
}

/// A row of one of the kinds that matter: peaked, flat, wide, rounded to ties, equal, hostile.
fn random_row(dice: &mut Dice) -> Vec<f32> {
    let n = dice.pick(&[1, 2, 31, 64, 300, 1_000, 3_000]) + dice.below(50);
    let spread = dice.pick(&[0.0, 0.01, 1.0, 2.0, 3.0, 9.0, 40.0]);
    let mut row: Vec<f32> = (0..n as u64).map(|i| spread * normal(dice.seed, i)).collect();
    if dice.one_in(2) {
        for i in 0..20 {
            let at = dice.below(n);
            row[at] += 16.0 - i as f32;
        }
    }
    if dice.one_in(4) {
        row.iter_mut().for_each(|l| *l = (*l * 2.0).round() / 2.0);
    }
    if dice.one_in(8) {
        // Logits that differ by less than their distance from the highest can show.
        row.iter_mut().step_by(2).for_each(|l| *l *= 1e-20);
    }
    for value in [f32::NEG_INFINITY, -0.0, 0.0, -3e38, 1e-45, f32::INFINITY, f32::NAN] {
        let rare = if value > 0.5 || value.is_nan() { 40 } else { 6 };
        if dice.one_in(rare) {
            (0..1 + dice.below(n)).for_each(|_| row[dice.below(n)] = value);
        }
    }
    row
}

fn random_options(dice: &mut Dice) -> SampleOptions {
    let mut o = SampleOptions { seed: dice.below(1 << 20) as u64, ..SampleOptions::default() };
    o.temperature = dice.pick(&[0.0, 0.2, 0.7, 1.0, 1.0, 1.5, 5.0, 1e6]);
    // One step first, with the others behind it or not.
    match dice.below(9) {
        0 => {}
        1 => o.top_k = dice.pick(&[1, 2, 10, 50, 400, 2_000]),
        2 => o.top_p = dice.pick(&[1e-6, 0.3, 0.8, 0.95, 0.999, 0.999_999]),
        3 => o.min_p = dice.pick(&[1e-9, 0.01, 0.05, 0.5, 0.999]),
        4 => o.top_a = dice.pick(&[0.01, 0.2, 2.0]),
        5 => o.epsilon_cutoff = dice.pick(&[1e-9, 3e-4, 0.01, 0.9]),
        6 => (o.mirostat, o.mirostat_tau) = (true, dice.pick(&[0.5, 1.5, 5.0, 12.0])),
        7 => o.typical = dice.maybe(0.05, 0.99),
        _ => o.xtc_probability = dice.maybe(0.1, 1.0),
    }
    if dice.one_in(2) {
        o.top_p = dice.maybe(0.1, 0.99);
        o.min_p = dice.maybe(0.001, 0.3);
        o.tfs = dice.maybe(0.1, 0.99);
        o.xtc_probability = dice.maybe(0.1, 1.0);
        o.xtc_threshold = dice.pick(&[0.01, 0.1]);
        o.top_n_sigma = dice.pick(&[0.0, 0.0, 1.0]);
    }
    if dice.one_in(2) {
        o.repetition_penalty = dice.pick(&[1.0, 1.025, 1.3, 0.8, 3.0]);
        o.frequency_penalty = dice.maybe(-0.5, 1.0);
        o.presence_penalty = dice.maybe(-0.5, 1.0);
        o.penalty_range = dice.pick(&[None, Some(0), Some(5), Some(30)]);
        o.penalty_decay = dice.pick(&[0, 0, 10]);
        o.penalty_scope =
            dice.pick(&[PenaltyScope::All, PenaltyScope::Output, PenaltyScope::Prompt]);
    }
    if dice.one_in(3) {
        o.dry_multiplier = dice.maybe(0.5, 2.0);
        o.no_repeat_ngram = dice.pick(&[0, 0, 2, 3]);
    }
    if dice.one_in(3) {
        let inf = f32::INFINITY;
        for _ in 0..dice.below(5) {
            let bias = dice.pick(&[3.0, -5.0, 100.0, -inf, 1.0, -1.0]);
            o.logit_bias.insert(dice.below(400) as u32, bias);
        }
        if dice.one_in(20) {
            o.logit_bias.insert(dice.below(400) as u32, inf);
        }
        o.deny = (0..dice.below(6)).map(|_| dice.below(400) as u32).collect();
    }
    if dice.one_in(8) {
        o.allow = Some((0..1 + dice.below(60)).map(|_| dice.below(500) as u32).collect());
    }
    o.skew = dice.pick(&[0.0, 0.0, 0.0, 1.5, -2.0]);
    o.temperature_last = dice.one_in(8);
    o.smoothing_factor = dice.pick(&[0.0, 0.0, 0.0, 0.3]);
    if dice.one_in(8) {
        (o.min_temp, o.max_temp) = (0.5, 1.5);
    }
    o.min_keep = dice.pick(&[1, 1, 1, 3, 200]);
    o.nan_policy = dice.pick(&[NanPolicy::Error, NanPolicy::Mask]);
    o.rng = dice.pick(&[Rng::Philox, Rng::Philox, Rng::Mt19937]);
    o
}

/// Everything a choice is made from but the logits.
struct Scene {
    history: Vec<u32>,
    prompt_len: usize,
    mask: Option<Bitmask>,
    denied: Vec<u32>,
    attempt: u32,
    top: usize,
}

impl Scene {
    fn random(dice: &mut Dice, vocab: usize) -> Self {
        let alphabet = dice.pick(&[3, 30, vocab + 5]);
        let history: Vec<u32> = (0..dice.below(80)).map(|_| dice.below(alphabet) as u32).collect();
        let mask = dice.one_in(3).then(|| {
            let mut mask = Bitmask::new_none(vocab);
            let kept = dice.pick(&[1, 2, 20]);
            (0..vocab as u32).filter(|_| dice.one_in(kept)).for_each(|id| mask.allow(id));
            mask
        });
        let denied = if dice.one_in(4) { vec![0, dice.below(vocab) as u32, 0] } else { vec![] };
        let prompt_len = dice.below(history.len() + 1);
        let (attempt, top) = (dice.below(3) as u32, dice.pick(&[0, 0, 1, 5, 150]));
        Scene { history, prompt_len, mask, denied, attempt, top }
    }

    fn whole(
        &self,
        sampler: &Sampler,
        logits: &[f32],
        state: &mut SamplerState,
        scratch: &mut Scratch,
    ) -> Result<Choice, SampleError> {
        let mut logits = logits.to_vec();
        let row = Row {
            logits: &mut logits,
            history: &self.history,
            prompt_len: self.prompt_len,
            mask: self.mask.as_ref(),
            denied: &self.denied,
            attempt: self.attempt,
            top: self.top,
        };
        sampler.pick(state, scratch, row)
    }

    /// `None` where the row is asked for at once, and whether there was a step behind the softmax.
    fn narrowed(
        &self,
        sampler: &Sampler,
        logits: &[f32],
        change: impl FnOnce(NarrowAsk<'_>, &mut NarrowRow),
        state: &mut SamplerState,
        scratch: &mut Scratch,
    ) -> Option<Result<Option<Choice>, SampleError>> {
        let mut buffer = AskBuffer::default();
        let asked = Asked {
            vocab: logits.len(),
            history: &self.history,
            prompt_len: self.prompt_len,
            mask: self.mask.as_ref(),
            denied: &self.denied,
            top: self.top,
        };
        let mut known = NarrowRow::default();
        let ask = sampler.ask(&asked, scratch, &mut buffer)?;
        ask.check(1, logits.len()).unwrap();
        change(ask, &mut known);
        let row = Narrowed {
            known: &known,
            ask: &buffer,
            vocab: logits.len(),
            history: &self.history,
            prompt_len: self.prompt_len,
            denied: &self.denied,
            attempt: self.attempt,
            top: self.top,
        };
        Some(sampler.pick_narrowed(state, scratch, row))
    }
}

/// Equal, except that probabilities without a cut may differ a little.
fn assert_same(found: &Choice, whole: &Choice, what: &str) {
    assert_eq!(found.id, whole.id, "{what}");
    let ids = |choice: &Choice| choice.top.iter().map(|c| c.0).collect::<Vec<_>>();
    assert_eq!(ids(found), ids(whole), "{what}");
    let close = |a: f32, b: f32| (a - b).abs() <= 1.1e-5 * b;
    assert!(close(found.p, whole.p), "{what}: {} {}", found.p, whole.p);
    assert!(found.top.iter().zip(&whole.top).all(|(a, b)| close(a.1, b.1)), "{what}");
}

#[test]
fn narrowed_rows_give_the_choice_of_the_whole_row_or_none() {
    let (mut decided, mut undecided, mut asked_whole, mut errors) = (0, 0, 0, 0);
    let mut scratches = (Scratch::new(), Scratch::new());
    for seed in 0..30_000 {
        let dice = &mut Dice { seed, n: 0 };
        let logits = random_row(dice);
        let options = random_options(dice);
        if options.validate().is_err() {
            continue;
        }
        let vocab = logits.len().saturating_sub(dice.below(4)).max(1);
        let sampler = sampler(&options, vocab);
        let scene = Scene::random(dice, logits.len());
        let mut before = SamplerState::new(&options);
        before.mirostat_mu = dice.one_in(2).then(|| 10.0 * dice.unit());
        let (mut state, mut whole_state) = (before.clone(), before.clone());
        let most = dice.pick(&[1, 2, 8, 40, 1024]);
        let error = dice.pick(&[-1.0, 0.0, 1.0]) * NARROW_MASS_ERROR;
        let narrow = |ask: NarrowAsk<'_>, known: &mut NarrowRow| {
            // A greedy choice takes one; all others are given two or more.
            let top = if ask.top == 1 { 1 } else { ask.top.min(most.max(2)) };
            narrow_plain(&logits, &NarrowAsk { top, ..ask }, known);
            known.mass *= 1.0 + error;
        };
        let what = format!("seed {seed}: {options:?}");
        let found = scene.narrowed(&sampler, &logits, narrow, &mut state, &mut scratches.0);
        let whole = scene.whole(&sampler, &logits, &mut whole_state, &mut scratches.1);
        match found {
            None => asked_whole += 1,
            Some(Ok(None)) => {
                undecided += 1;
                assert_eq!(state, before, "{what}");
            }
            Some(Ok(Some(choice))) => {
                decided += 1;
                assert_same(&choice, &whole.unwrap_or_else(|e| panic!("{what}: {e}")), &what);
                assert_eq!(state, whole_state, "{what}");
            }
            Some(Err(error)) => {
                errors += 1;
                assert_eq!(Err(error), whole, "{what}");
                assert_eq!(state, whole_state, "{what}");
            }
        }
    }
    println!("{decided} decided, {undecided} not, {asked_whole} asked whole, {errors} errors");
    assert!(decided > 10_000 && undecided > 1_000 && asked_whole > 500 && errors > 100);
}

/// Twenty likely ids above a wide normal tail, as models write.
fn peaked(seed: u64, vocab: usize) -> Vec<f32> {
    let mut row: Vec<f32> = (0..vocab as u64).map(|i| 2.0 * normal(seed, i)).collect();
    for i in 0..20 {
        let at = (uniform(seed, 1_000_000 + i) * vocab as f64) as usize;
        row[at] += 20.0 - i as f32 * (0.2 + 0.8 * uniform(seed, 2_000_000 + i)) as f32;
    }
    row
}

#[test]
fn ordinary_settings_hardly_ever_need_the_whole_row() {
    const VOCAB: usize = 32_000;
    const ROWS: u64 = 60;
    const DRAWS: u32 = 60;
    let neutral = SampleOptions::default();
    let settings = [
        SampleOptions::greedy(),
        SampleOptions::exl2_default(),
        SampleOptions { top_k: 0, ..SampleOptions::exl2_default() },
        SampleOptions { min_p: 0.05, ..neutral.clone() },
        SampleOptions { min_p: 0.02, xtc_probability: 0.5, temperature: 1.2, ..neutral.clone() },
        SampleOptions { top_p: 0.95, ..neutral.clone() },
        SampleOptions { top_p: 0.9, temperature: 0.6, frequency_penalty: 0.5, ..neutral.clone() },
        SampleOptions { temperature: 0.7, ..neutral.clone() },
        SampleOptions { mirostat: true, ..neutral.clone() },
        SampleOptions { smoothing_factor: 0.3, min_p: 0.05, ..neutral.clone() },
        SampleOptions { dry_multiplier: 0.8, ..SampleOptions::exl2_default() },
        neutral,
    ];
    let history: Vec<u32> = (0..500).map(|i| (uniform(3, i) * VOCAB as f64) as u32).collect();
    let mut undecided = vec![0; settings.len()];
    let mut scratch = Scratch::new();
    for seed in 0..ROWS {
        let logits = peaked(seed, VOCAB);
        for (options, undecided) in settings.iter().zip(&mut undecided) {
            let options = SampleOptions { seed, ..options.clone() };
            let sampler = sampler(&options, VOCAB);
            let mut known: Option<NarrowRow> = None;
            for attempt in 0..DRAWS {
                let scene = Scene {
                    history: history.clone(),
                    prompt_len: 0,
                    mask: None,
                    denied: Vec::new(),
                    attempt,
                    top: 0,
                };
                // One sort for all draws of a row.
                let narrow = |ask: NarrowAsk<'_>, row: &mut NarrowRow| {
                    let first = known.get_or_insert_with(|| {
                        let mut row = NarrowRow::default();
                        narrow_plain(&logits, &ask, &mut row);
                        row
                    });
                    row.clone_from(first);
                };
                let mut state = SamplerState::new(&options);
                let found = scene.narrowed(&sampler, &logits, narrow, &mut state, &mut scratch);
                *undecided += u32::from(found.unwrap().unwrap().is_none());
            }
        }
    }
    println!("undecided of {}: {undecided:?}", ROWS as u32 * DRAWS);
    assert!(undecided.iter().all(|n| f64::from(*n) < 0.01 * f64::from(ROWS as u32 * DRAWS)));
}
