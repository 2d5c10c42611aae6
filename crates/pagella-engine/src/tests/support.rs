//! Running jobs to their end and looking at what they said.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use pagella_model::BoundAdapter;
use pagella_text::SpecialTokens;

use crate::constraint::{ConstraintFactory, ConstraintLimits, ConstraintSpec};
use crate::tests::stand_in::{StandIn, VOCAB, tokenizer};
use crate::{
    Adapter, BoxedConstraint, Completion, DraftModel, Generator, GeneratorOptions, JobOptions,
    JobSpec, Record, Stage,
};

/// Steps after which a set of jobs must have ended; far more than any test needs.
const STEPS_MAX: usize = 200_000;

/// A generator over a stand-in.
pub fn generator(model: &StandIn, options: GeneratorOptions) -> Generator {
    Generator::new(Box::new(model.clone()), tokenizer(), options).unwrap()
}

/// A stand-in that guesses for another.
pub fn draft_model(model: &StandIn) -> DraftModel {
    DraftModel::new(Box::new(model.clone()), &tokenizer(), &tokenizer()).unwrap()
}

/// A constraint over the stand-in's vocabulary.
pub fn constraint(spec: &ConstraintSpec) -> Option<BoxedConstraint> {
    static FACTORY: OnceLock<ConstraintFactory> = OnceLock::new();
    let factory = FACTORY.get_or_init(|| {
        ConstraintFactory::new(&tokenizer(), VOCAB, ConstraintLimits::default()).unwrap()
    });
    Some(BoxedConstraint(factory.compile(spec).unwrap()))
}

/// A generator with room for everything and the default options.
pub fn roomy() -> (Generator, StandIn) {
    let model = StandIn::new(16 * 1024, 512);
    (generator(&model, GeneratorOptions::default()), model)
}

/// A job that writes `n` tokens after `prompt`.
pub fn job(prompt: &[u32], n: usize) -> JobSpec {
    job_with(prompt, up_to(n))
}

/// A job that goes on from `prompt` as `options` say.
pub fn job_with(prompt: &[u32], options: JobOptions) -> JobSpec {
    JobSpec::new(prompt.to_vec(), options).unwrap()
}

/// Options that let a job write `n` tokens.
pub fn up_to(n: usize) -> JobOptions {
    JobOptions { max_new_tokens: Some(n), ..JobOptions::default() }
}

/// `n` ids that depend on `seed`.
pub fn ids(n: usize, seed: u32) -> Vec<u32> {
    (0..n as u32).map(|i| (i.wrapping_mul(2654435761) ^ seed.wrapping_mul(40503)) % 53).collect()
}

/// Everything the jobs of a generator say until nothing is left to do.
pub fn records(generator: &mut Generator) -> Vec<Record> {
    let mut all = Vec::new();
    for _ in 0..STEPS_MAX {
        if !generator.has_work() {
            return all;
        }
        all.extend(generator.step());
        generator.check().unwrap();
    }
    panic!("{} jobs never end", generator.n_jobs());
}

/// How the jobs ended, by number. Checks what must hold of every stream of records.
pub fn run(generator: &mut Generator) -> BTreeMap<u64, Completion> {
    ended(records(generator))
}

/// The completions among records, after checking each stream.
pub fn ended(records: Vec<Record>) -> BTreeMap<u64, Completion> {
    let mut streams: BTreeMap<u64, Vec<Record>> = BTreeMap::new();
    for record in records {
        streams.entry(record.serial).or_default().push(record);
    }
    streams.into_iter().map(|(serial, stream)| (serial, check_stream(&stream))).collect()
}

/// Joined records equal the summary; the last one comes last and once.
pub fn check_stream(stream: &[Record]) -> Completion {
    let (last, before) = stream.split_last().unwrap();
    assert!(before.iter().all(|record| record.eos.is_none()));
    let done = *last.eos.clone().expect("the last record ends the job");
    let mut text = String::new();
    for record in stream {
        if !record.text.is_empty() {
            assert_eq!(record.byte_offset, text.len());
        }
        text.push_str(&record.text);
        if let (Stage::Prefill, Some(at), Some(of)) =
            (record.stage, record.curr_progress, record.max_progress)
        {
            assert!(at <= of);
        }
    }
    let token_ids: Vec<u32> = stream.iter().flat_map(|r| r.token_ids.clone()).collect();
    assert_eq!(text, done.text);
    assert_eq!(token_ids, done.token_ids);
    let whole = tokenizer().decode(&done.token_ids, SpecialTokens::Hide);
    let whole_text = done.eos_string.is_none() && done.held.text.is_empty();
    if whole_text && !done.text.contains("<|") {
        // A healed beginning is not part of the text.
        assert!(whole.ends_with(&done.text), "{whole:?} and {:?}", done.text);
    }
    done
}

/// Loads an adapter under each of two names.
pub fn load_adapters(generator: &mut Generator) -> [Adapter; 2] {
    let bound = BoundAdapter::synthetic(generator.forward().spec(), 1, 0);
    ["first", "second"].map(|name| generator.load_adapter(name, &bound).unwrap())
}

/// What a job gives on a generator of its own with a large, empty cache.
pub fn solo(mut spec: JobSpec) -> Completion {
    let (mut generator, _) = roomy();
    if let Some(adapters) = spec.options.adapters.as_mut().filter(|used| !used.is_empty()) {
        // The same ones, of this generator.
        let own = load_adapters(&mut generator);
        for (adapter, _) in adapters {
            *adapter = own.iter().find(|own| own.name() == adapter.name()).unwrap().clone();
        }
    }
    let serial = generator.enqueue(spec).unwrap();
    run(&mut generator).remove(&serial).unwrap()
}

/// Some characters of a text.
pub fn chars(text: &str, range: std::ops::Range<usize>) -> String {
    text.chars().skip(range.start).take(range.len()).collect()
}
