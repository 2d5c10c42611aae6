//! What is computed once although several jobs need it.

use crate::tests::stand_in::{StandIn, greedy_ids};
use crate::tests::support::{generator, ids, job, job_with, records, roomy, run, up_to};
use crate::{EosReason, GeneratorOptions, JobOptions, Reserve, Stage};

#[test]
fn two_equal_prompts_queued_together_compute_each_token_once() {
    let (mut generator, model) = roomy();
    let prompt = ids(2100, 1);
    let serials = [(); 2].map(|()| generator.enqueue(job(&prompt, 2)).unwrap());
    let done = run(&mut generator);
    for serial in serials {
        assert_eq!(done[&serial].token_ids, greedy_ids(&prompt, 2));
    }
    // The prompt once, its last token again for the second job's logits, and the first new token of
    // each. What lies behind the last whole page was copied.
    assert_eq!((model.forwarded(), model.copied()), (2100 + 1 + 2, 51));
}

#[test]
fn prompts_shorter_than_a_page_are_computed_once_also_in_small_chunks() {
    for step_tokens in [512, 40] {
        let model = StandIn::with_cache(4096, 40, 512);
        let step_tokens = Some(step_tokens);
        let options = GeneratorOptions { step_tokens, ..GeneratorOptions::default() };
        let mut generator = generator(&model, options);
        let system = ids(200, 1);
        let chats: Vec<Vec<u32>> =
            (0..8).map(|seed| [system.clone(), ids(10, seed + 50)].concat()).collect();
        let serials: Vec<u64> =
            chats.iter().map(|chat| generator.enqueue(job(chat, 5)).unwrap()).collect();
        let done = run(&mut generator);
        for (serial, chat) in serials.iter().zip(&chats) {
            assert_eq!(done[serial].token_ids, greedy_ids(chat, 5));
        }
        // Each its own question and answer; parts too small to be copied may be computed again.
        let own = model.forwarded() - 200;
        assert!(own <= 8 * (10 + 4 + 16), "{own}");
    }
}

#[test]
fn many_chats_over_one_long_prompt_fit_a_small_cache_and_compute_it_once() {
    // Without sharing they would need 224 pages.
    let model = StandIn::with_cache(4096, 80, 512);
    let mut generator = generator(&model, GeneratorOptions::default());
    let system = ids(1500, 1);
    let chats: Vec<Vec<u32>> =
        (0..32).map(|seed| [system.clone(), ids(30, seed + 50)].concat()).collect();
    let serials: Vec<u64> =
        chats.iter().map(|chat| generator.enqueue(job(chat, 20)).unwrap()).collect();
    let done = run(&mut generator);
    for (serial, chat) in serials.iter().zip(&chats) {
        assert_eq!(done[serial].token_ids, greedy_ids(chat, 20));
    }
    // Five shared pages once, the other 220 tokens of the system prompt by one of them and copied by
    // the others; each its own question and answer.
    let own = model.forwarded() - 1280;
    assert!(own <= 220 + 32 * (30 + 20), "{own}");
    assert!(model.copied() >= 31 * 200);
}

#[test]
fn the_second_turn_computes_only_what_is_new() {
    let (mut generator, model) = roomy();
    let first = ids(600, 2);
    let serial = generator.enqueue(job(&first, 50)).unwrap();
    let answer = run(&mut generator)[&serial].token_ids.clone();
    let second = [first, answer, ids(25, 9)].concat();
    let before = model.forwarded();
    let serial = generator.enqueue(job(&second, 1)).unwrap();
    let done = run(&mut generator).remove(&serial).unwrap();
    // The last answer token was never fed.
    assert_eq!((done.cached_tokens, model.forwarded() - before), (649, 26));
    assert_eq!(done.token_ids, greedy_ids(&second, 1));
}

#[test]
fn completions_of_one_prompt_share_it_and_differ_by_seed() {
    let (mut generator, model) = roomy();
    let prompt = ids(400, 3);
    let mut spec = job(&prompt, 10);
    spec.options.sampling = crate::SampleOptions { seed: 5, ..Default::default() };
    let serials = generator.enqueue_n(&spec, 4).unwrap();
    let done = run(&mut generator);
    assert!(model.forwarded() <= 400 + 3 + 4 * 10, "{}", model.forwarded());
    for (idx, serial) in serials.iter().enumerate() {
        let mut alone = spec.clone();
        alone.options.sampling.seed += idx as u64;
        assert_eq!(done[serial], super::support::solo(alone));
    }
    assert_ne!(done[&serials[0]].token_ids, done[&serials[1]].token_ids);
}

#[test]
fn a_full_reservation_never_preempts_and_growth_does_so_invisibly() {
    for reserve in [Reserve::Full, Reserve::Grow] {
        let model = StandIn::with_cache(4096, 7, 512);
        let options = GeneratorOptions { reserve, ..GeneratorOptions::default() };
        let mut generator = generator(&model, options);
        let prompts: Vec<_> = (0..6).map(|seed| ids(100, seed)).collect();
        let serials: Vec<u64> =
            prompts.iter().map(|prompt| generator.enqueue(job(prompt, 500)).unwrap()).collect();
        let done = run(&mut generator);
        let preemptions: u32 = done.values().map(|done| done.preemptions).sum();
        assert_eq!(preemptions > 0, reserve == Reserve::Grow);
        for (serial, prompt) in serials.iter().zip(&prompts) {
            assert_eq!(done[serial].token_ids, greedy_ids(prompt, 500));
        }
    }
}

#[test]
fn the_job_of_highest_priority_keeps_its_pages() {
    let model = StandIn::with_cache(4096, 4, 512);
    let mut generator = generator(&model, GeneratorOptions::default());
    let ranked = |priority| JobOptions { priority, ..up_to(600) };
    let low = generator.enqueue(job_with(&ids(200, 1), ranked(-1))).unwrap();
    let high = generator.enqueue(job_with(&ids(200, 2), ranked(1))).unwrap();
    let done = run(&mut generator);
    assert_eq!(done[&high].preemptions, 0);
    assert!(done[&low].preemptions > 0);
}

#[test]
fn a_job_whose_time_runs_out_ends_wherever_it_is() {
    let (mut generator, _) = roomy();
    let spec = job_with(&[1], JobOptions { timeout: Some(std::time::Duration::ZERO), ..up_to(5) });
    let serial = generator.enqueue(spec).unwrap();
    assert_eq!(run(&mut generator)[&serial].eos_reason, EosReason::Deadline);
}

#[test]
fn priorities_start_first_and_equal_ones_in_order() {
    let model = StandIn::with_cache(4096, 40, 512);
    let options = GeneratorOptions { batch_max: 1, ..GeneratorOptions::default() };
    let mut generator = generator(&model, options);
    let serials: Vec<u64> = [0, 0, 2, 1, 2]
        .map(|priority| job_with(&[1], JobOptions { priority, ..up_to(2) }))
        .map(|spec| generator.enqueue(spec).unwrap())
        .to_vec();
    let all = records(&mut generator);
    let starts: Vec<u64> =
        all.iter().filter(|r| r.stage == Stage::Started).map(|r| r.serial).collect();
    assert_eq!(starts, [2, 4, 3, 0, 1].map(|idx: usize| serials[idx]));
}

#[test]
fn counts_add_up() {
    let (mut generator, model) = roomy();
    let prompt = ids(600, 1);
    for _ in 0..3 {
        generator.enqueue(job(&prompt, 10)).unwrap();
        run(&mut generator);
    }
    let stats = generator.stats();
    assert_eq!((stats.prefill_tokens + stats.decode_tokens) as usize, model.forwarded());
    assert_eq!(stats.finished["max_new_tokens"], 3);
    assert!(stats.cached_tokens >= 2 * 599);
    assert_eq!(stats.queue, crate::QueueStats::default());
    let counts = stats.pages;
    assert_eq!(counts.free + counts.cached + counts.referenced, counts.total);
    assert!(generator.trace().count() > 10);
}
