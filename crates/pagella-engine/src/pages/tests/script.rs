//! Long random scripts of operations by several sequences, with everything verified after each one.

use proptest::prelude::*;

use super::world::World;
use super::*;

/// Few enough for constant eviction, enough for a handful of sequences.
const N_PAGES: usize = 12;

#[derive(Clone, Debug)]
enum Op {
    /// A prompt that leaves story 0 for another one somewhere.
    Open {
        adapter: bool,
        story: u32,
        leaves_at: usize,
        n_ids: usize,
        unique: usize,
    },
    /// Appends `n` generated ids, those of `story` at these positions.
    Say {
        who: usize,
        story: u32,
        n: usize,
    },
    Feed {
        who: usize,
        n: usize,
        copies: bool,
    },
    Fail {
        who: usize,
        n: usize,
    },
    Settle {
        who: usize,
    },
    Rewind {
        who: usize,
        n: usize,
    },
    Fork {
        who: usize,
    },
    Close {
        who: usize,
    },
    Restore {
        which: usize,
        n: usize,
    },
    Defragment {
        in_parts: bool,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let who = 0..6usize;
    // Lengths around page borders are where things go wrong.
    let length =
        prop_oneof![1..900usize, (1..4usize, 0..3usize).prop_map(|(p, d)| p * 256 + d - 1)];
    let many = prop_oneof![1..40usize, 200..600usize];
    prop_oneof![
        3 => (any::<bool>(), 0..3u32, 0..600usize, length, 0..3usize).prop_map(
            |(adapter, story, leaves_at, n_ids, unique)| {
                Op::Open { adapter, story, leaves_at, n_ids, unique }
            }
        ),
        4 => (who.clone(), 0..2u32, many.clone()).prop_map(|(who, story, n)| Op::Say { who, story, n }),
        8 => (who.clone(), many.clone(), any::<bool>())
            .prop_map(|(who, n, copies)| Op::Feed { who, n, copies }),
        1 => (who.clone(), many.clone()).prop_map(|(who, n)| Op::Fail { who, n }),
        3 => who.clone().prop_map(|who| Op::Settle { who }),
        2 => (who.clone(), many.clone()).prop_map(|(who, n)| Op::Rewind { who, n }),
        1 => who.clone().prop_map(|who| Op::Fork { who }),
        2 => who.prop_map(|who| Op::Close { who }),
        1 => (any::<usize>(), 1..=256usize).prop_map(|(which, n)| Op::Restore { which, n }),
        1 => any::<bool>().prop_map(|in_parts| Op::Defragment { in_parts }),
    ]
}

fn id_at(story: u32, position: usize) -> u32 {
    (position as u32 * 7 + story * 3) % 50
}

fn run(world: &mut World, op: &Op) {
    let n = world.sequences.len();
    let pick = |who: usize| if n == 0 { None } else { Some(who % n) };
    match *op {
        Op::Open { adapter, story, leaves_at, n_ids, unique } => {
            let namespace =
                if adapter { Namespace::of(&[("adapter", b"a")]) } else { Namespace::EMPTY };
            let source = |i: usize| if i < leaves_at { 0 } else { story };
            let ids = (0..n_ids.max(1)).map(|i| id_at(source(i), i)).collect();
            world.open(namespace, ids, unique);
        }
        Op::Say { who, story, n } => {
            let Some(who) = pick(who) else { return };
            let ids = &mut world.sequences[who].ids;
            ids.extend((ids.len()..ids.len() + n).map(|i| id_at(story, i)));
        }
        Op::Feed { who, n, copies } => pick(who).into_iter().for_each(|w| world.feed(w, n, copies)),
        Op::Fail { who, n } => pick(who).into_iter().for_each(|who| world.fail(who, n)),
        Op::Settle { who } => pick(who).into_iter().for_each(|who| world.settle(who)),
        Op::Fork { who } => pick(who).into_iter().for_each(|who| world.fork(who)),
        Op::Close { who } => pick(who).into_iter().for_each(|who| world.close(who)),
        Op::Rewind { who, n } => {
            let Some(who) = pick(who) else { return };
            if !world.rewind(who, n) {
                world.close(who);
            }
        }
        Op::Restore { which, n } => {
            if !world.library.is_empty() {
                let (parent, ids) = world.library[which % world.library.len()].clone();
                let n = if which % 3 == 0 { n } else { PAGE_TOKENS };
                world.restore(parent, &ids[..n]);
            }
        }
        Op::Defragment { in_parts } => {
            let moves = world.table.arrangement().expect("every page has a place");
            if in_parts {
                (0..moves.cycles.len()).for_each(|i| world.defragment(&moves.part(i..i + 1)));
            } else {
                world.defragment(&moves);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..Default::default() })]

    #[test]
    fn every_slot_a_sequence_reads_was_computed_from_its_own_ids(
        script in prop::collection::vec(op(), 1..150),
    ) {
        let mut world = World::new(N_PAGES);
        for op in &script {
            run(&mut world, op);
            world.verify();
        }
        while !world.sequences.is_empty() {
            world.close(0);
            world.verify();
        }
        prop_assert_eq!(world.table.counts().referenced, 0);
        prop_assert_eq!(world.table.n_unreferenced(), N_PAGES);
        prop_assert!(world.table.reset());
    }
}
