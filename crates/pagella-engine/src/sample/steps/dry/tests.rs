//! DRY: values, breakers, range, and the matching against a plain search.

use super::*;

const VOCAB: usize = 100;
const DRY: Dry = Dry {
    multiplier: 1.0,
    base: 1.75,
    allowed_length: 2,
    max_ngram: 20,
    range: 0,
    count_scaling: false,
};

/// What is subtracted from every id.
fn penalties(dry: &Dry, breakers: &[u32], history: &[u32]) -> Vec<f32> {
    let mut mask = Bitmask::new_none(VOCAB);
    breakers.iter().for_each(|id| mask.allow(*id));
    let mut logits = vec![0.0; VOCAB];
    apply(dry, &mask, VOCAB, history, &mut logits, &mut Scratch::new());
    logits.iter().map(|l| -l).collect()
}

/// A phrase of `m` ids followed by 99, something else, and the phrase again.
fn repeated(m: u32) -> Vec<u32> {
    (1..=m).chain([99, 98]).chain(1..=m).collect()
}

#[test]
fn penalties_have_the_published_values() {
    for (m, expected) in [(1, 0.0), (2, 1.0), (3, 1.75), (5, 5.359), (10, 87.96)] {
        let found = penalties(&DRY, &[], &repeated(m))[99];
        assert!((found - expected).abs() < 5e-3, "{m}: {found}");
    }
}

#[test]
fn long_repetitions_are_penalised_like_the_longest_that_counts() {
    let mut last = 0.0;
    for m in 1..=64 {
        let found = penalties(&DRY, &[], &repeated(m))[99];
        assert!(found >= last && (m < 2 || found > 0.0), "{m}: {found}");
        last = found;
    }
    let weak = Dry { base: 1.1, ..DRY };
    let at = |m: u32| penalties(&weak, &[], &repeated(m))[99];
    assert!(at(19) < at(20) && at(20) == at(21) && at(20) == at(64));
    assert_eq!(last, PENALTY_MAX as f32);
}

#[test]
fn every_id_has_the_penalty_of_its_own_longest_repetition_once() {
    // 1 2 3 → 7; 2 3 → 8, three times; the context ends in 1 2 3.
    let history = [1, 2, 3, 7, 2, 3, 8, 50, 2, 3, 8, 51, 2, 3, 8, 1, 2, 3];
    let found = penalties(&DRY, &[], &history);
    assert_eq!((found[7], found[8]), (1.75, 1.0));
    let scaled = penalties(&Dry { count_scaling: true, ..DRY }, &[], &history);
    assert_eq!((scaled[7], scaled[8]), (1.75, 3.0));
}

#[test]
fn repetitions_do_not_cross_breakers_and_breakers_are_free() {
    let history = repeated(6);
    assert_eq!(penalties(&DRY, &[], &history)[99], 1.75f32.powi(4));
    // A breaker within the phrase leaves only what follows it.
    assert_eq!(penalties(&DRY, &[3], &history)[99], 1.75);
    assert_eq!(penalties(&DRY, &[5], &history)[99], 0.0);
    assert_eq!(penalties(&DRY, &[6], &history)[99], 0.0);
    assert_eq!(penalties(&DRY, &[99], &history)[99], 0.0);
    // Ids that are no tokens break too.
    let mut outside = history.clone();
    outside[2] = VOCAB as u32 + 7;
    outside[10] = VOCAB as u32 + 7;
    assert_eq!(penalties(&DRY, &[], &outside)[99], 1.75);
}

#[test]
fn the_range_limits_how_far_back_repetitions_are_found() {
    let history = repeated(4); // Ten ids; the first phrase starts ten from the end.
    let at = |range| penalties(&Dry { range, ..DRY }, &[], &history)[99];
    assert_eq!([at(10), at(9), at(8), at(7), at(1)], [1.75f32.powi(2), 1.75, 1.0, 0.0, 0.0]);
    assert_eq!(at(1000), at(0));
}

#[test]
fn the_matching_equals_a_plain_search() {
    for seed in 0..200u64 {
        let n = 1 + (seed * 7 % 60) as usize;
        let history: Vec<u32> =
            (0..n as u64).map(|i| (crate::sample::uniform(seed, i) * 3.0) as u32).collect();
        let mut expected = [None::<usize>; 3];
        for i in 0..n {
            let m = (0..=i).take_while(|m| history[i - m..i] == history[n - m..]).count() - 1;
            let longest = &mut expected[history[i] as usize];
            *longest = Some(longest.map_or(m, |known| known.max(m)));
        }
        let found = penalties(&DRY, &[], &history);
        for id in 0..3 {
            let m = expected[id].filter(|m| *m >= 2);
            let penalty = m.map_or(0.0, |m| DRY.penalty(m, 1) as f32);
            assert_eq!(found[id], penalty, "{history:?} {id}");
        }
    }
}

#[test]
fn no_group_of_ids_is_completed_twice() {
    let denied = |n: usize, history: &[u32]| {
        let mut logits = vec![0.0; 8];
        deny_repeated_ngrams(n, history, &mut logits, &mut Scratch::new());
        (0..8).filter(|i| logits[*i] < 0.0).collect::<Vec<usize>>()
    };
    assert_eq!(denied(3, &[1, 2, 3, 4, 1, 2]), [3]);
    assert_eq!(denied(2, &[1, 2, 1, 3, 1]), [2, 3]);
    assert_eq!(denied(1, &[5, 6, 900]), [5, 6]);
    assert_eq!(denied(3, &[]), Vec::<usize>::new());
}
