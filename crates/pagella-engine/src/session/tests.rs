//! Sessions on the stand-in model: prefix reuse, chunks, limits, failed steps.

use super::*;
use crate::tests::stand_in::StandIn;

fn session(step_tokens_max: usize) -> (Session, StandIn) {
    let model = StandIn::new(1024, step_tokens_max);
    (Session::new(Box::new(model.clone())), model)
}

/// `(past, tokens, logits)` of every step, each of which has one row.
fn steps_of(model: &StandIn) -> Vec<(usize, usize, usize)> {
    model.steps().concat().iter().map(|row| (row.past, row.tokens, row.logits)).collect()
}

#[test]
fn a_prompt_is_cut_into_chunks_and_only_the_last_token_has_logits() {
    let (mut s, model) = session(4);
    let prompt: Vec<u32> = (0..10).collect();
    assert_eq!(s.prefill(&prompt).unwrap(), Prefill { cached: 0, computed: 10 });
    assert_eq!(steps_of(&model), [(0, 4, 0), (4, 4, 0), (8, 2, 1)]);
    assert_eq!(s.ids(), prompt);
}

#[test]
fn chunks_and_reuse_never_change_the_logits() {
    let prompt: Vec<u32> = (0..300).map(|i| i * 7 % 50).collect();
    let (mut whole, _) = session(512);
    whole.prefill(&prompt).unwrap();
    let (mut pieces, _) = session(7);
    pieces.prefill(&prompt[..123]).unwrap();
    pieces.prefill(&[&prompt[..100], &[49, 49, 49]].concat()).unwrap();
    let reused = pieces.prefill(&prompt).unwrap();
    assert_eq!(reused, Prefill { cached: 100, computed: 200 });
    assert_eq!(whole.logits(), pieces.logits());
}

#[test]
fn the_same_prompt_again_computes_one_token() {
    let (mut s, _) = session(512);
    let prompt: Vec<u32> = (0..20).collect();
    s.prefill(&prompt).unwrap();
    let first = s.logits().to_vec();
    assert_eq!(s.prefill(&prompt).unwrap(), Prefill { cached: 19, computed: 1 });
    assert_eq!(s.logits(), first);
}

#[test]
fn decoded_tokens_are_found_in_the_cache_by_the_next_prompt() {
    let (mut s, _) = session(512);
    s.prefill(&[1, 2, 3]).unwrap();
    s.decode(4).unwrap();
    s.decode(5).unwrap();
    let next = s.prefill(&[1, 2, 3, 4, 5, 6, 7]).unwrap();
    assert_eq!(next, Prefill { cached: 5, computed: 2 });
}

#[test]
fn the_context_is_a_limit_with_a_clear_error() {
    let model = StandIn::new(8, 4);
    let mut s = Session::new(Box::new(model));
    assert_eq!(s.capacity(), 8);
    assert!(matches!(s.prefill(&[]), Err(EngineError::EmptyPrompt)));
    assert!(matches!(
        s.prefill(&[0; 9]),
        Err(EngineError::PromptTooLong { prompt: 9, capacity: 8 })
    ));
    s.prefill(&[0; 7]).unwrap();
    s.decode(1).unwrap();
    assert!(matches!(s.decode(1), Err(EngineError::ContextFull { capacity: 8 })));
    assert!(matches!(s.feed_all(&[1], |_, _| ()), Err(EngineError::PromptTooLong { .. })));
}

#[test]
fn a_failed_step_keeps_what_was_computed_and_nothing_else() {
    let (mut s, model) = session(4);
    let prompt: Vec<u32> = (0..10).collect();
    model.fail_at_step(1);
    assert!(s.prefill(&prompt).is_err());
    assert_eq!(s.ids(), &prompt[..4]);
    assert_eq!(s.prefill(&prompt).unwrap(), Prefill { cached: 4, computed: 6 });
    let (mut fresh, _) = session(512);
    fresh.prefill(&prompt).unwrap();
    assert_eq!(s.logits(), fresh.logits());
}

#[test]
fn feeding_all_visits_every_position_once() {
    let (mut s, _) = session(3);
    let ids: Vec<u32> = (0..8).collect();
    let mut rows = Vec::new();
    s.feed_all(&ids, |position, logits| rows.push((position, logits.to_vec()))).unwrap();
    assert_eq!(rows.iter().map(|(p, _)| *p).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
    for (position, logits) in rows {
        let (mut alone, _) = session(512);
        alone.prefill(&ids[..=position]).unwrap();
        assert_eq!(alone.logits(), logits);
    }
}

#[test]
fn writing_follows_the_highest_logit_whether_or_not_rows_are_narrowed() {
    let prompt: Vec<u32> = (0..20).collect();
    let write = |model: &StandIn| {
        let mut s = Session::new(Box::new(model.clone()));
        s.prefill(&prompt[..19]).unwrap();
        let mut ids = vec![prompt[19]];
        for _ in 0..30 {
            ids.push(s.write(ids[ids.len() - 1]).unwrap());
        }
        assert_eq!(s.ids(), [&prompt[..19], &ids[..30]].concat());
        ids
    };
    let (whole, narrowing) = (StandIn::new(1024, 512), StandIn::new(1024, 512).narrowing(64));
    let ids = write(&whole);
    assert_eq!(write(&narrowing), ids);
    let mut s = Session::new(Box::new(StandIn::new(1024, 512)));
    s.prefill(&prompt[..19]).unwrap();
    for pair in ids.windows(2) {
        s.decode(pair[0]).unwrap();
        assert_eq!(argmax(s.logits()) as u32, pair[1]);
    }
    // Of the narrowing one, only the prompt's last row was read.
    assert_eq!(narrowing.rows_read(), (1, 30));
}
