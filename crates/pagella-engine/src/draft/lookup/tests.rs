//! Lookups against brute force, and their bounds.

use super::automaton::{AUTOMATON_ID_BYTES, SEPARATOR};
use super::history::HISTORY_ID_BYTES;
use super::*;

/// The same ids for the same seed, all below `n_ids`.
fn random_ids(seed: u64, n_ids: u32, len: usize) -> Vec<u32> {
    let mut state = seed;
    let mut next = |_| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) as u32 % n_ids
    };
    (0..len).map(&mut next).collect()
}

/// By definition: the length of the longest match in `known`, and up to `max` ids after it.
fn brute_force(known: &[u32], tail: &[u32], min: usize, max: usize) -> (usize, Vec<u32>) {
    let (mut n_best, mut text) = (min - 1, &[][..]);
    for end in (1..known.len()).filter(|&end| known[end] != SEPARATOR).rev() {
        let pairs = known[..end].iter().rev().zip(tail.iter().rev());
        let n_equal = pairs.take(MATCH_IDS_MAX).take_while(|(a, b)| a == b).count();
        if n_equal > n_best {
            (n_best, text) = (n_equal, &known[end..]);
        }
    }
    let followed = text.iter().copied().take_while(|&id| id != SEPARATOR).take(max).collect();
    (if text.is_empty() { 0 } else { n_best }, followed)
}

fn proposed(propose: impl FnOnce(&mut Vec<u32>) -> usize) -> (usize, Vec<u32>) {
    let mut out = vec![7];
    (propose(&mut out), out)
}

#[test]
fn a_history_finds_what_brute_force_finds_also_after_truncation() {
    for (seed, min) in (0..40).zip([1, 2, 3, 4, 11, 40].into_iter().cycle()) {
        let (ids, reader) = (random_ids(seed, 3, 240), random_ids(seed + 100, 3, 50));
        let (mut history, mut known) = (History::new(min), Vec::new());
        for (at, &id) in ids.iter().enumerate() {
            history.push(&[id]);
            known.push(id);
            if at % 50 == 49 {
                known.truncate(at * 2 / 3);
                history.truncate(known.len());
            }
            let min = min.min(MATCH_IDS_MAX);
            let (n_matched, mut text) = brute_force(&known, &known, min, usize::MAX);
            (0..5 * text.len().min(1)).for_each(|at| text.push(text[at]));
            text.truncate(5);
            assert_eq!(proposed(|out| history.propose(5, out)), (n_matched, text), "{known:?}");
            let tail = &reader[..at % 50];
            let other = brute_force(&known, tail, min, 5);
            assert_eq!(proposed(|out| history.propose_for(tail, 5, out)), other, "{known:?}");
        }
    }
}

#[test]
fn a_text_of_any_period_goes_on_with_it() {
    for period in 1..=5 {
        let text: Vec<u32> = (0..100).map(|at| 10 + at % period).collect();
        for n_known in period as usize + 2..50 {
            let mut history = History::new(2);
            history.push(&text[..n_known]);
            let (n_matched, out) = proposed(|out| history.propose(40, out));
            assert_eq!(n_matched, (n_known - period as usize).min(MATCH_IDS_MAX));
            assert_eq!(out, text[n_known..n_known + 40], "period {period}, {n_known} ids");
        }
    }
}

#[test]
fn too_little_to_compare_proposes_nothing() {
    let (mut history, automaton) = (History::new(2), SuffixAutomaton::new(0));
    for ids in [&[][..], &[5], &[5, 5]] {
        history.truncate(0);
        history.push(ids);
        assert_eq!(proposed(|out| history.propose(4, out)), (0, vec![]));
        assert_eq!(proposed(|out| history.propose_for(&[5, 5], 4, out)), (0, vec![]));
        let cursor = &mut Cursor::default();
        assert_eq!(proposed(|out| automaton.propose(cursor, ids, 4, out)), (0, vec![]));
    }
    history.push(&[5]);
    assert_eq!(proposed(|out| history.propose(0, out)), (2, vec![]), "asked for none");
}

#[test]
fn an_automaton_finds_what_brute_force_finds_in_both_generations() {
    const MAX_IDS: usize = 300;
    for seed in 0..30 {
        let (mut automaton, mut known) = (SuffixAutomaton::new(MAX_IDS), [vec![], vec![]]);
        let ids = random_ids(seed, 2 + seed as u32 % 3, 700);
        // Ids that it shares with the texts, and some of its own, so that matches end.
        let reader = [&ids[200..260], &random_ids(seed + 50, 3, 20), &ids[230..260]].concat();
        let mut cursor = Cursor::default();
        for (at, &id) in ids.iter().enumerate() {
            if known[0].len() + 2 > MAX_IDS / 2 {
                let text = known[0].rsplit(|&id| id == SEPARATOR).next().unwrap_or(&[]);
                let cut = text[text.len().saturating_sub(MATCH_IDS_MAX)..].to_vec();
                known = [cut, std::mem::take(&mut known[0])];
            }
            known[0].push(id);
            automaton.push(id);
            if at * 7 % (60 + seed as usize) < 7 {
                known[0].push(SEPARATOR);
                automaton.end_text();
                automaton.end_text();
            }
            // Where it was before the push, back, on by a few, and far.
            for n_read in [59 + at % 50, at % 90, at % 90 + 1, at % 90 + 3, 60 + at % 50] {
                let tail = &reader[..n_read];
                let [new, old] = known.each_ref().map(|ids| brute_force(ids, tail, 1, 6));
                let best = if old.0 > new.0 { old } else { new };
                let found = proposed(|out| automaton.propose(&mut cursor, tail, 6, out));
                assert_eq!(found, best, "{tail:?} in {known:?}");
            }
        }
    }
}

#[test]
fn memory_stays_within_its_bound() {
    let n_ids = 20_000;
    for kind in 0..4 {
        let (mut automaton, mut history) = (SuffixAutomaton::new(n_ids), History::new(2));
        for (at, id) in random_ids(kind, 50_000, n_ids * 8).into_iter().enumerate() {
            // All different, few different, many states and edges, very short texts.
            let ids = [id, id % 2, u32::from(at % 100 == 0) * id, id % 9];
            automaton.push(ids[kind as usize]);
            if kind == 3 && id % 3 == 0 {
                automaton.end_text();
            }
            history.push(&[ids[kind as usize]]);
            let [most, few] = [n_ids * AUTOMATON_ID_BYTES, (at + 1) * HISTORY_ID_BYTES];
            assert!(automaton.bytes() <= most + 4096, "kind {kind}, {at} ids");
            assert!(history.bytes() <= few + 1024, "kind {kind}, {at} ids");
        }
        let n_held = automaton.n_ids();
        assert!((n_ids / 2 - 1..=n_ids).contains(&n_held), "kind {kind}: {n_held} ids");
    }
}
