//! What the model thinks of prompts, whatever the batch, the chunks and the cache.

use crate::tests::stand_in::StandIn;
use crate::tests::support::{generator, ids, job, job_with, records, roomy, up_to};
use crate::{
    EngineError, EosReason, GeneratorOptions, JobOptions, JobSpec, Record, Session, score,
};

fn scored(prompt: &[u32], n: usize) -> JobSpec {
    job_with(prompt, JobOptions { return_prompt_logprobs: Some(2), ..up_to(n) })
}

fn values(records: &[Record], serial: u64) -> Vec<f32> {
    let own = records.iter().filter(|record| record.serial == serial);
    own.flat_map(|record| &record.prompt_logprobs).map(|found| found.logprob).collect()
}

fn expected(prompt: &[u32]) -> Vec<f32> {
    let mut session = Session::new(Box::new(StandIn::new(16 * 1024, 512)));
    let scores = score(&mut session, prompt).unwrap();
    scores.iter().map(|token| token.logprob as f32).collect()
}

#[test]
fn prompts_are_scored_beside_other_jobs_and_whatever_the_cache_knows() {
    let (mut generator, _) = roomy();
    for length in [1, 2, 31, 32, 33, 300, 600] {
        let prompt = ids(length, 5);
        // The cache knows the prompt, and others write meanwhile.
        generator.enqueue(job(&prompt, 40)).unwrap();
        let (first, second) = (
            generator.enqueue(scored(&prompt, 3)).unwrap(),
            generator.enqueue(scored(&prompt, 1)).unwrap(),
        );
        generator.enqueue(job(&ids(100, 6), 40)).unwrap();
        let records = records(&mut generator);
        for serial in [first, second] {
            let found = values(&records, serial);
            let expected = expected(&prompt);
            assert_eq!(found.len(), expected.len(), "{length} ids");
            let close = found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-4);
            assert!(close, "{length} ids: {found:?} {expected:?}");
        }
        let told = records.iter().filter(|r| r.serial == first && !r.prompt_logprobs.is_empty());
        assert_eq!(told.count(), usize::from(length > 1), "in one record");
    }
}

#[test]
fn a_job_that_writes_nothing_computes_and_scores_its_prompt() {
    let (mut generator, _) = roomy();
    for length in [1, 2, 33, 600] {
        let prompt = ids(length, 7);
        let mut healed = scored(&prompt, 0);
        healed.options.healing = crate::Healing::Auto;
        let serials = [scored(&prompt, 0), healed, job(&prompt, 0)];
        let serials = serials.map(|job| generator.enqueue(job).unwrap());
        let records = records(&mut generator);
        for (serial, expected) in
            serials.into_iter().zip([expected(&prompt), expected(&prompt), Vec::new()])
        {
            let found = values(&records, serial);
            assert_eq!(found.len(), expected.len(), "{length} ids");
            assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-4));
            let last = records.iter().rfind(|record| record.serial == serial).unwrap();
            let done = last.eos.as_deref().unwrap();
            assert_eq!((done.new_tokens, done.eos_reason), (0, EosReason::MaxNewTokens));
            assert!(done.text.is_empty() && done.token_ids.is_empty());
        }
    }
    // The whole context may be prompt.
    let capacity = 16 * 1024;
    let serial = generator.enqueue(job(&ids(capacity, 8), 0)).unwrap();
    let done = crate::tests::support::run(&mut generator).remove(&serial).unwrap();
    assert_eq!((done.prompt_tokens, done.new_tokens), (capacity, 0));
}

#[test]
fn a_job_that_starts_over_scores_every_id_once() {
    // Room for one and a half of these jobs.
    let model = StandIn::with_cache(4096, 6, 64);
    let options = GeneratorOptions { copy_tokens_min: 1, ..GeneratorOptions::default() };
    let mut generator = generator(&model, options);
    let prompts = [ids(700, 1), ids(650, 2)];
    let serials: Vec<u64> =
        prompts.iter().map(|prompt| generator.enqueue(scored(prompt, 200)).unwrap()).collect();
    let records = records(&mut generator);
    for (prompt, serial) in prompts.iter().zip(serials) {
        assert_eq!(values(&records, serial).len(), prompt.len() - 1);
    }
}

#[test]
fn several_prompts_are_not_scored() {
    let (mut generator, _) = roomy();
    let guided = scored(&ids(10, 1), 2).guided_by(ids(8, 2), 1.5).unwrap();
    let refused = generator.enqueue(guided).unwrap_err();
    assert!(matches!(refused, EngineError::ScoredPrompts { prompts: 2 }));
}
