//! JSON under a schema, written by a model that knows nothing of JSON.
//!
//! 200 random schemas with 5 seeds each: what the model writes parses and validates. The model is
//! small and samples at temperature 1, so the constraint does all the work.

use pagella_backend::KvFormat;
use pagella_engine::constraint::{
    ConstraintError, ConstraintFactory, ConstraintLimits, ConstraintSpec,
};
use pagella_engine::{
    BoxedConstraint, Completion, EosReason, Generator, GeneratorOptions, JobOptions, JobSpec,
    SampleOptions,
};
use pagella_text::BanRule;
use serde_json::{Value, json};

use crate::schemas::{Rng, random_schema, validate};
use crate::support::{generator, run, tokenizer};

const SCHEMAS: usize = 200;
const SEEDS: u64 = 5;
/// More than any of the random schemas needs.
const MAX_NEW_TOKENS: usize = 1500;

fn engine() -> (Generator, ConstraintFactory) {
    let options = GeneratorOptions::default();
    let generator = generator(KvFormat::F16, 64 * 1024, 512, options);
    let vocab = generator.forward().spec().vocab;
    let limits = ConstraintLimits::default();
    (generator, ConstraintFactory::new(&tokenizer(), vocab, limits).unwrap())
}

fn spec(factory: &ConstraintFactory, schema: &Value, seed: u64) -> JobSpec {
    let constraint = factory.compile(&ConstraintSpec::JsonSchema(schema.clone())).unwrap();
    let prompt = tokenizer().encode_text("An example in JSON: ").unwrap();
    let options = JobOptions {
        max_new_tokens: Some(MAX_NEW_TOKENS),
        sampling: SampleOptions { seed, ..SampleOptions::default() },
        stop_ids: vec![0, 4],
        constraint: Some(BoxedConstraint(constraint)),
        ..JobOptions::default()
    };
    JobSpec::new(prompt, options).unwrap()
}

fn assert_valid(schema: &Value, done: &Completion) {
    let parsed: Value = serde_json::from_str(&done.text).unwrap_or_else(|error| {
        panic!("{error} ({}): {:?} for {schema}", done.eos_reason.name(), done.text)
    });
    validate(schema, &parsed).unwrap_or_else(|problem| panic!("{problem}: {parsed} for {schema}"));
}

#[test]
fn what_is_written_under_a_schema_parses_and_validates() {
    let (mut engine, factory) = engine();
    let mut rng = Rng(2024);
    let schemas: Vec<Value> = (0..SCHEMAS).map(|_| random_schema(&mut rng, 2)).collect();
    let mut ended_early = 0;
    for batch in schemas.chunks(20) {
        let mut jobs = Vec::new();
        for schema in batch {
            for seed in 0..SEEDS {
                let mut spec = spec(&factory, schema, seed);
                // Some also have bans and stop strings, which must not break the structure.
                if seed == 3 {
                    spec.options.banned = vec![BanRule::text("ee"), BanRule::text("xyz")];
                }
                if seed == 4 {
                    spec.options.stop_strings = vec!["never written".into()];
                }
                jobs.push((engine.enqueue(spec).unwrap(), schema));
            }
        }
        let done = run(&mut engine);
        for (serial, schema) in jobs {
            let done = &done[&serial];
            let complete = [EosReason::StopToken, EosReason::EndFilter];
            if !complete.contains(&done.eos_reason) {
                // A ban can make a schema impossible; the job then says so.
                let reasons = [EosReason::BanExhausted, EosReason::FilterDeadEnd];
                assert!(reasons.contains(&done.eos_reason), "{done:?} for {schema}");
                ended_early += 1;
                continue;
            }
            assert_valid(schema, done);
        }
    }
    assert!(ended_early * 50 < SCHEMAS * SEEDS as usize, "{ended_early} ended early");
}

#[test]
fn a_limit_on_tokens_cuts_valid_json_and_says_so() {
    let (mut engine, factory) = engine();
    let schema = json!({"type": "object", "properties": {"name": {"type": "string", "maxLength": 30},
        "n": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["name", "n"]});
    for seed in 0..5 {
        let whole = engine.enqueue(spec(&factory, &schema, seed)).unwrap();
        let whole = run(&mut engine).remove(&whole).unwrap();
        assert_valid(&schema, &whole);
        for n in 1..whole.new_tokens.min(20) {
            let mut cut = spec(&factory, &schema, seed);
            cut.options.max_new_tokens = Some(n);
            let serial = engine.enqueue(cut).unwrap();
            let cut = run(&mut engine).remove(&serial).unwrap();
            assert_eq!((cut.eos_reason, cut.new_tokens), (EosReason::MaxNewTokens, n));
            assert!(whole.text.starts_with(&cut.text), "{:?} of {:?}", cut.text, whole.text);
        }
    }
}

#[test]
fn an_impossible_schema_is_refused_with_its_reason() {
    let (_, factory) = engine();
    let impossible = [
        json!(false),
        json!({"enum": []}),
        json!({"type": "integer", "minimum": 5, "maximum": 3}),
        json!({"allOf": [{"type": "string"}, {"type": "integer"}]}),
    ];
    for schema in impossible {
        let refused = factory.compile(&ConstraintSpec::JsonSchema(schema.clone())).err();
        let refused = refused.unwrap_or_else(|| panic!("{schema} was accepted"));
        assert!(
            matches!(
                refused,
                ConstraintError::Impossible { .. } | ConstraintError::InvalidSchema { .. }
            ),
            "{refused}"
        );
        assert!(refused.to_string().len() > 20, "{refused}");
    }
}
