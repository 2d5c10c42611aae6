//! What the picture of the cache shows, and what clearing the cache takes away.

use crate::tests::stand_in::{StandIn, greedy_ids};
use crate::tests::support::{ended, generator, ids, job, records, run};
use crate::{CacheMap, Generator, GeneratorOptions, JobState};

/// Signs and users agree with the table and with what the jobs hold.
fn checked(generator: &Generator) -> CacheMap {
    let map = generator.cache_map();
    let table = generator.pages();
    let (state, refs): (Vec<char>, Vec<char>) =
        (map.state.chars().collect(), map.refs.chars().collect());
    assert_eq!((state.len(), refs.len()), (table.n_pages(), table.n_pages()));
    let mut users = vec![0; table.n_pages()];
    for job in &map.jobs {
        job.pages.iter().flat_map(|range| range.clone()).for_each(|page| users[page as usize] += 1);
    }
    for (page, &n_users) in users.iter().enumerate() {
        assert_eq!(refs[page], char::from_digit(n_users, 36).unwrap(), "page {page}");
        assert_eq!("rfgd".contains(state[page]), n_users > 0, "page {page} {}", state[page]);
    }
    let counts = table.counts();
    let count = |signs: &str| state.iter().filter(|sign| signs.contains(**sign)).count();
    assert_eq!(
        (count("."), count("cp"), count("rfgd")),
        (counts.free, counts.cached, counts.referenced)
    );
    map
}

#[test]
fn pages_go_through_their_states() {
    let model = StandIn::with_cache(4096, 16, 128);
    let mut generator = generator(&model, GeneratorOptions { batch_max: 1, ..Default::default() });
    let prompt = ids(700, 1);
    generator.enqueue(job(&prompt, 60)).unwrap();
    generator.enqueue(job(&ids(300, 2), 1)).unwrap();
    assert_eq!(checked(&generator).state, ".".repeat(16));
    let mut seen = generator.step();
    let map = checked(&generator);
    assert!(map.state.starts_with("fff"), "{}", map.state);
    assert_eq!((map.jobs[0].state, map.jobs[0].processed_tokens), (JobState::Prefill, 128));
    assert_eq!((map.queue.len(), map.queue[0].prompt_tokens, map.queue[0].pages), (1, 300, 2));
    while checked(&generator).jobs[0].new_tokens < 2 {
        seen.extend(generator.step());
    }
    let map = checked(&generator);
    assert!(map.state.starts_with("rrg"), "{}", map.state);
    let job = &map.jobs[0];
    assert_eq!((job.new_tokens_max, job.pages.len(), &job.pages[0]), (60, 1, &(0..3)));
    seen.extend(records(&mut generator));
    assert_eq!(ended(seen).len(), 2);
    let map = checked(&generator);
    assert!(map.jobs.is_empty() && map.queue.is_empty());
    assert!(map.state.starts_with("ccp"), "{}", map.state);
}

#[test]
fn clearing_forgets_what_nobody_uses_and_nothing_else() {
    let model = StandIn::with_cache(4096, 16, 512);
    let mut generator = generator(&model, GeneratorOptions::default());
    let (old, running) = (ids(600, 1), ids(600, 2));
    generator.enqueue(job(&old, 3)).unwrap();
    run(&mut generator);
    let serial = generator.enqueue(job(&running, 40)).unwrap();
    let mut seen = Vec::new();
    for _ in 0..10 {
        seen.extend(generator.step());
    }
    assert_eq!(generator.clear_cache(), 3);
    generator.check().unwrap();
    assert_eq!(checked(&generator).state.matches(['c', 'p']).count(), 0);
    seen.extend(records(&mut generator));
    assert_eq!(ended(seen)[&serial].token_ids, greedy_ids(&running, 40));
    // What was forgotten is computed again, what was in use is still there, to the last full id.
    let again = [&old, &running].map(|prompt| generator.enqueue(job(prompt, 1)).unwrap());
    let done = run(&mut generator);
    assert_eq!(again.map(|serial| done[&serial].cached_tokens), [0, 599]);
}
