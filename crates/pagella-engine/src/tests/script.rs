//! Random jobs, and random things done to them.

use std::collections::BTreeMap;

use pagella_text::BanRule;

use crate::constraint::ConstraintSpec;
use crate::sample::SampleOptions;
use crate::tests::stand_in::{END, StandIn};
use crate::tests::support::{
    check_stream, constraint, draft_model, generator, ids, load_adapters, solo, up_to,
};
use crate::{
    Adapter, BanExhausted, Completion, DraftDepth, DraftOptions, EosReason, Generator,
    GeneratorOptions, Healing, JobSpec, Record, Reserve, StreamGranularity,
};

/// A small generator of random numbers (xorshift), so that a script is one number.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % n.max(1)
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// Lengths around the borders of pages.
const LENGTHS: [usize; 14] = [1, 2, 3, 40, 200, 255, 256, 257, 300, 511, 512, 513, 600, 769];

/// A prompt that shares its beginning with others of the same script.
fn prompt(dice: &mut Dice, family: u32) -> Vec<u32> {
    let stem = ids(800, family + dice.below(2) as u32);
    let length = dice.pick(&LENGTHS);
    let mut prompt = stem[..length.min(800)].to_vec();
    if dice.one_in(2) {
        // It leaves the stem somewhere.
        let at = dice.below(prompt.len());
        let own = ids(prompt.len() - at, dice.below(5) as u32 + 99);
        prompt[at..].copy_from_slice(&own);
    }
    prompt
}

pub fn random_spec(dice: &mut Dice, family: u32) -> JobSpec {
    let first = prompt(dice, family);
    let mut options = up_to(1 + dice.below(60));
    if dice.one_in(6) {
        options.max_new_tokens = Some(200 + dice.below(120));
    }
    if dice.one_in(2) {
        let seed = dice.below(1000) as u64;
        options.sampling = SampleOptions { temperature: 1.0, seed, ..SampleOptions::default() };
        if dice.one_in(4) {
            options.sampling.repetition_penalty = 1.3;
            options.sampling.top_k = 8;
        }
        if dice.one_in(6) {
            options.sampling.mirostat = true;
        }
    }
    if dice.one_in(3) {
        options.stop_ids = vec![END];
        options.min_new_tokens = dice.below(30);
    }
    if dice.one_in(4) {
        options.stop_strings = vec!["ab".into(), letters(dice, 2), letters(dice, 3)];
    }
    if dice.one_in(3) {
        options.banned = (0..1 + dice.below(4)).map(|_| ban(dice)).collect();
        options.ban_exhausted = dice.pick(&[BanExhausted::End, BanExhausted::Accept]);
        options.rewinds_max = dice.pick(&[2, 50, 256]);
    }
    if dice.one_in(6) {
        // Some of what it allows is the only text possible.
        let pattern = dice.pick(&["([a-m]abc|[n-z] END)+", "(abcde[a-z]){2,5}", "[a-zA-Z ]*"]);
        options.constraint = constraint(&ConstraintSpec::Regex(pattern.to_owned()));
    }
    let negative = dice.one_in(5).then(|| (prompt(dice, family), dice.pick(&[1.5, 0.5, 1.0])));
    if dice.one_in(6) {
        options.healing = dice.pick(&[Healing::Auto, Healing::Ids(1), Healing::Ids(2)]);
    }
    if dice.one_in(8) {
        options.cache_salt = Some("salt".to_owned());
    }
    if dice.one_in(4) {
        options.priority = dice.below(3) as i32 - 1;
    }
    options.max_skips = dice.pick(&[Some(0), Some(1), Some(4), None]);
    options.return_probs = dice.one_in(4);
    options.return_logprobs = dice.one_in(5).then_some(2);
    options.granularity = dice.pick(&[StreamGranularity::Token, StreamGranularity::Done]);
    let spec = JobSpec::new(first, options).unwrap();
    match negative {
        Some((negative, scale)) => spec.guided_by(negative, scale).unwrap(),
        None => spec,
    }
}

fn letters(dice: &mut Dice, n: usize) -> String {
    (0..n).map(|_| char::from(b'a' + dice.below(26) as u8)).collect()
}

fn ban(dice: &mut Dice) -> BanRule {
    let n = dice.pick(&[1, 1, 2, 2, 3]);
    BanRule::text(letters(dice, n))
}

/// The settings of a generator, for a cache of `n_pages`.
pub fn random_options(dice: &mut Dice) -> GeneratorOptions {
    GeneratorOptions {
        batch_max: dice.pick(&[2, 3, 8, 64]),
        step_tokens: dice.pick(&[None, Some(7), Some(64), Some(300)]),
        chunk_tokens: dice.pick(&[None, Some(5), Some(256)]),
        prefill_tokens_while_decoding: dice.pick(&[None, Some(16)]),
        reserve: dice.pick(&[Reserve::Grow, Reserve::Grow, Reserve::Full]),
        copy_tokens_min: dice.pick(&[1, 16]),
        defragment: dice.one_in(2),
        host_threads: Some(2),
        parallel_logits_min: dice.pick(&[0, usize::MAX, usize::MAX, usize::MAX]),
        draft: random_drafting(dice),
        ..GeneratorOptions::default()
    }
}

fn random_drafting(dice: &mut Dice) -> DraftOptions {
    let fixed = [1, 4, 7, DraftOptions::GUESSES_MAX].map(DraftDepth::Fixed);
    let depth = match dice.below(3) {
        0 => DraftDepth::Off,
        1 => DraftDepth::Adaptive,
        _ => dice.pick(&fixed),
    };
    DraftOptions {
        depth,
        guesses_max: dice.pick(&[2, DraftOptions::GUESSES_MAX]),
        lookup: dice.one_in(2),
        recent_ids_max: dice.pick(&[0, 300, 1 << 16]),
        probability_min: dice.pick(&[0.0, 0.1]),
    }
}

/// Lets a draft model that knows everything, or nothing, guess for some generators.
fn add_draft_model(generator: &mut Generator, dice: &mut Dice, n_pages: usize) {
    if dice.one_in(2) {
        return;
    }
    let mut model = StandIn::with_cache(4096, n_pages, dice.pick(&[16, 512]));
    if dice.one_in(2) {
        model = model.narrowing(8);
    }
    if dice.one_in(3) {
        model = model.astray();
    }
    generator.set_draft_model(draft_model(&model)).unwrap();
}

/// Tells some jobs what they will say, or something else, and how much to guess.
fn predict(mut spec: JobSpec, dice: &mut Dice) -> JobSpec {
    match dice.below(6) {
        0 => spec.options.prediction = solo(spec.clone()).token_ids,
        1 => spec.options.prediction = ids(1 + dice.below(80), dice.below(9) as u32),
        2 => spec.options.draft_depth = Some(DraftDepth::Fixed(dice.below(9))),
        _ => {}
    }
    spec
}

/// Gives some jobs adapters.
fn adapt(mut spec: JobSpec, dice: &mut Dice, adapters: &[Adapter; 2]) -> JobSpec {
    if dice.one_in(3) {
        let scale = |dice: &mut Dice| dice.pick(&[0.0, 0.5, 1.0]);
        let [first, second] = adapters.each_ref().map(|adapter| (adapter.clone(), scale(dice)));
        spec.options.adapters = Some(match dice.below(3) {
            0 => vec![first],
            1 => vec![second],
            _ => vec![second, first],
        });
    }
    spec
}

/// What happened in scripts, to be sure that they exercise what they are for.
#[derive(Debug, Default)]
pub struct Happened {
    pub finished: usize,
    pub cancelled: usize,
    pub preemptions: u32,
    pub rewinds: u32,
    pub defragmentations: u64,
    pub copied_tokens: usize,
    pub cached_tokens: u64,
    pub guided: usize,
    pub healed: usize,
    pub narrowed_rows: usize,
    pub undecided_rows: usize,
    pub accepted: usize,
    pub rejected: usize,
    pub constrained: usize,
    /// Jobs with adapters, and guesses of theirs that were right.
    pub adapted: usize,
    pub adapted_accepted: usize,
}

/// Plays a script: submits, cancels, lets jobs rest, orders pages, and runs everything to its end.
pub fn play(seed: u64, happened: &mut Happened) {
    let dice = &mut Dice::new(seed);
    let n_pages = dice.pick(&[5, 8, 12, 40]);
    let mut model = StandIn::with_cache(4096, n_pages, dice.pick(&[64, 512]));
    if seed % 2 == 1 {
        // Few candidates, so that they do not always decide; or as many as a row has.
        model = model.narrowing([2, 8, 1024][seed as usize / 2 % 3]);
    }
    let mut generator = generator(&model, random_options(dice));
    add_draft_model(&mut generator, dice, n_pages);
    let adapters = load_adapters(&mut generator);
    let mut specs: BTreeMap<u64, JobSpec> = BTreeMap::new();
    let mut said: BTreeMap<u64, Vec<Record>> = BTreeMap::new();
    let family = dice.below(1000) as u32;
    let mut left = 3 + dice.below(8);
    let mut steps = 0;
    while left > 0 || generator.n_jobs() > 0 {
        if left > 0 && dice.one_in(3) {
            left -= 1;
            let spec = adapt(random_spec(dice, family), dice, &adapters);
            let spec = predict(spec, dice);
            submit(&mut generator, spec, dice, &mut specs);
        }
        meddle(&mut generator, dice, &mut said);
        for record in generator.step() {
            said.entry(record.serial).or_default().push(record);
        }
        steps += 1;
        assert!(steps < 100_000, "script {seed}: {} jobs never end", generator.n_jobs());
    }
    generator.check().unwrap_or_else(|problem| panic!("script {seed}: {problem}"));
    let stats = generator.stats();
    assert_eq!(stats.pages.referenced, 0, "script {seed}");
    happened.defragmentations += stats.defragmentations;
    happened.cached_tokens += stats.cached_tokens;
    happened.copied_tokens += model.copied();
    let steps: Vec<_> = generator.trace().collect();
    let (whole, narrowed) = model.rows_read();
    happened.narrowed_rows += narrowed;
    happened.undecided_rows += steps.iter().map(|step| step.undecided_rows).sum::<usize>();
    assert!(narrowed == 0 || seed % 2 == 1, "script {seed}: {whole} whole rows");
    for (serial, spec) in specs {
        let done = check_stream(&said[&serial]);
        happened.note(&spec, &done);
        compare(seed, spec, &done);
    }
}

impl Happened {
    fn note(&mut self, spec: &JobSpec, done: &Completion) {
        match done.eos_reason {
            EosReason::Cancelled => self.cancelled += 1,
            _ => self.finished += 1,
        }
        self.preemptions += done.preemptions;
        self.rewinds += done.rewinds;
        self.accepted += done.accepted_draft_tokens;
        self.rejected += done.rejected_draft_tokens;
        self.constrained += usize::from(spec.options.constraint.is_some());
        if spec.options.adapters.is_some() {
            self.adapted += 1;
            self.adapted_accepted += done.accepted_draft_tokens;
        }
        self.guided += usize::from(spec.prompts().len() > 1);
        self.healed +=
            usize::from(spec.options.healing != Healing::Off && done.warnings.is_empty());
    }
}

/// Hands a job over; some do not fit the small cache and are refused for that reason only.
fn submit(
    generator: &mut Generator,
    spec: JobSpec,
    dice: &mut Dice,
    specs: &mut BTreeMap<u64, JobSpec>,
) {
    let n = if dice.one_in(6) { 3 } else { 1 };
    match generator.enqueue_n(&spec, n) {
        Ok(serials) => {
            for (idx, serial) in serials.into_iter().enumerate() {
                let mut spec = spec.clone();
                spec.options.sampling.seed += idx as u64;
                specs.insert(serial, spec);
            }
        }
        Err(error) => assert!(matches!(
            error,
            crate::EngineError::TooLong { .. } | crate::EngineError::TooManyPrompts { .. }
        )),
    }
}

/// Cancels a job, lets one rest or go on, orders pages.
fn meddle(generator: &mut Generator, dice: &mut Dice, said: &mut BTreeMap<u64, Vec<Record>>) {
    let serial = dice.below(12) as u64;
    if dice.one_in(60) {
        if let Some(record) = generator.cancel(serial) {
            said.entry(serial).or_default().push(record);
        }
        assert!(generator.cancel(serial).is_none(), "a cancelled job is gone");
    }
    if dice.one_in(20) {
        generator.set_resting(serial, true);
    }
    if dice.one_in(4) {
        (0..12).for_each(|serial| generator.set_resting(serial, false));
    }
    if dice.one_in(30) {
        generator.defragment().unwrap();
    }
}

/// A finished job equals its solo run; a cancelled one is a beginning of it.
fn compare(seed: u64, spec: JobSpec, done: &Completion) {
    let alone = solo(spec);
    if done.eos_reason == EosReason::Cancelled {
        assert!(alone.text.starts_with(&done.text), "script {seed}: {done:?} {alone:?}");
        assert!(alone.token_ids.starts_with(&done.token_ids), "script {seed}");
    } else {
        assert_eq!(*done, alone, "script {seed}");
        assert_eq!(done.rewinds, alone.rewinds, "script {seed}");
    }
}
