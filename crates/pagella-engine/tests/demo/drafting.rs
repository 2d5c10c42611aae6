//! Guessed ids on real logits: every way of guessing writes what none writes.

use pagella_backend::KvFormat;
use pagella_engine::constraint::{ConstraintFactory, ConstraintLimits, ConstraintSpec};
use pagella_engine::{
    BoxedConstraint, Completion, DraftDepth, DraftOptions, Generator, GeneratorOptions, Healing,
    JobOptions, JobSpec, SampleOptions,
};
use pagella_text::BanRule;
use serde_json::json;

use crate::support::{draft_model, generator, on_cuda, run, tokenizer};

const TEMPERATURES: [f32; 3] = [0.0, 0.7, 1.2];
const SEEDS: u64 = 20;
const NEW_TOKENS: usize = 16;
const CACHE_TOKENS: usize = 256 * 2 * SEEDS as usize;

/// Ways to guess: how far, whether texts are looked at, whether a model guesses.
const WAYS: [(DraftDepth, bool, bool); 4] = [
    (DraftDepth::Fixed(5), true, false),
    (DraftDepth::Fixed(3), false, true),
    (DraftDepth::Adaptive, true, true),
    (DraftDepth::Adaptive, true, false),
];

fn drafting(format: KvFormat, (depth, lookup, model): (DraftDepth, bool, bool)) -> Generator {
    let draft = DraftOptions { depth, lookup, probability_min: 0.1, ..DraftOptions::default() };
    let options = GeneratorOptions { draft, ..GeneratorOptions::default() };
    let mut generator = generator(format, CACHE_TOKENS, 128, options);
    if model {
        // Its cache has a format of its own.
        generator.set_draft_model(draft_model(KvFormat::Q8, CACHE_TOKENS)).unwrap();
    }
    generator
}

/// Jobs of all kinds, one for each seed.
fn jobs(temperature: f32, factory: &ConstraintFactory) -> Vec<JobSpec> {
    let ids = |text: &str| tokenizer().encode_text(text).unwrap();
    let schema = json!({"type": "object", "additionalProperties": false,
        "properties": {"name": {"enum": ["map", "filter"]}, "pure": {"type": "boolean"}},
        "required": ["name", "pure"]});
    let job = |seed: u64| {
        let sampling = SampleOptions { temperature, seed, ..SampleOptions::default() };
        let mut options =
            JobOptions { max_new_tokens: Some(NEW_TOKENS), sampling, ..JobOptions::default() };
        match seed % 5 {
            1 => options.banned = vec![BanRule::text(" the"), BanRule::text("array")],
            2 => options.stop_strings = vec![". ".into(), "\n\n".into()],
            3 => {
                let spec = ConstraintSpec::JsonSchema(schema.clone());
                options.constraint = Some(BoxedConstraint(factory.compile(&spec).unwrap()));
            }
            4 => options.healing = Healing::Auto,
            _ => options.sampling.repetition_penalty = 1.1,
        }
        options.stop_ids = vec![0, 4];
        let prompt = "Call map(), then filter(), then map(), then filter(), then map(). ";
        let spec = JobSpec::new(ids(&prompt.repeat(1 + seed as usize % 3)), options).unwrap();
        match seed % 7 {
            6 => spec.guided_by(ids("Something else: "), 1.5).unwrap(),
            _ => spec,
        }
    };
    (0..SEEDS).map(job).collect()
}

fn complete(generator: &mut Generator, jobs: &[JobSpec]) -> Vec<Completion> {
    let serials: Vec<u64> =
        jobs.iter().map(|job| generator.enqueue(job.clone()).unwrap()).collect();
    let mut done = run(generator);
    serials.iter().map(|serial| done.remove(serial).unwrap()).collect()
}

#[test]
fn ids_are_the_same_with_every_way_of_guessing_temperature_and_cache_format() {
    let vocab = 4096;
    let factory = ConstraintFactory::new(&tokenizer(), vocab, ConstraintLimits::default()).unwrap();
    let mut accepted = [0; WAYS.len()];
    for (idx, format) in KvFormat::ALL.into_iter().enumerate() {
        if on_cuda() && format == KvFormat::F32 {
            continue; // Refused there, see the conformance cases.
        }
        let mut plain = generator(format, CACHE_TOKENS, 128, GeneratorOptions::default());
        // All ways with the first format, then one in turn, which is as good for the others.
        let ways = if idx == 0 { 0..WAYS.len() } else { idx % WAYS.len()..idx % WAYS.len() + 1 };
        let mut ways: Vec<_> = ways.map(|way| (way, drafting(format, WAYS[way]))).collect();
        for temperature in TEMPERATURES {
            let jobs = jobs(temperature, &factory);
            let expected = complete(&mut plain, &jobs);
            for (way, generator) in &mut ways {
                let done = complete(generator, &jobs);
                let said = format!("{:?}, {}, {temperature}", WAYS[*way], format.name());
                assert_eq!(done, expected, "{said}");
                accepted[*way] += done.iter().map(|done| done.accepted_draft_tokens).sum::<usize>();
            }
        }
    }
    println!("guesses that were right: {accepted:?}");
    assert!(accepted.iter().take(2).all(|n| *n > 100), "{accepted:?}");
}
