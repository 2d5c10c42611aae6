//! Random jobs, and random things done to them.

use std::collections::BTreeMap;

use pagella_text::BanRule;

use crate::sample::SampleOptions;
use crate::tests::stand_in::{END, StandIn};
use crate::tests::support::{check_stream, generator, ids, up_to};
use crate::{
    BanExhausted, Completion, EosReason, Generator, GeneratorOptions, Healing, JobSpec, Record,
    Reserve, StreamGranularity,
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
        ..GeneratorOptions::default()
    }
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
    let mut specs: BTreeMap<u64, JobSpec> = BTreeMap::new();
    let mut said: BTreeMap<u64, Vec<Record>> = BTreeMap::new();
    let family = dice.below(1000) as u32;
    let mut left = 3 + dice.below(8);
    let mut steps = 0;
    while left > 0 || generator.n_jobs() > 0 {
        if left > 0 && dice.one_in(3) {
            left -= 1;
            submit(&mut generator, random_spec(dice, family), dice, &mut specs);
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
    let alone = super::support::solo(spec);
    if done.eos_reason == EosReason::Cancelled {
        assert!(alone.text.starts_with(&done.text), "script {seed}: {done:?} {alone:?}");
        assert!(alone.token_ids.starts_with(&done.token_ids), "script {seed}");
    } else {
        assert_eq!(*done, alone, "script {seed}");
        assert_eq!(done.rewinds, alone.rewinds, "script {seed}");
    }
}
