//! Merges of a word that is very long, such as a megabyte of spaces.
//!
//! Must hold: the result is that of the `tokenizers` crate. There a heap holds every pair that can be
//! merged, by rank and then by place; with millions of them it is never in a processor's cache. Here
//! pairs of one rank lie together in the order in which they were found, which is nearly their order in
//! the word. Only pairs that come up at a rank that is already being merged need a heap, and files of
//! trained tokenizers have none.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::merges::Merges;

/// No neighbour.
const NONE: u32 = u32::MAX;

/// A word while it is merged: the id at each place and who stands beside it.
struct Chain {
    ids: Vec<u32>,
    next: Vec<u32>,
    prev: Vec<u32>,
}

impl Chain {
    /// The pair that begins at a place, and where its right half is.
    fn pair(&self, at: u32) -> Option<((u32, u32), u32)> {
        let right = self.next[at as usize];
        (right != NONE).then(|| ((self.ids[at as usize], self.ids[right as usize]), right))
    }
}

/// Pairs that wait to be merged.
#[derive(Default)]
struct Waiting {
    by_rank: BTreeMap<u32, Vec<u32>>,
    /// Of ranks that are not above the one being merged.
    urgent: BinaryHeap<Reverse<(u32, u32)>>,
}

impl Merges {
    /// Merges the ids of a word's characters or bytes; `None` if `goes_on` says so before the end.
    pub fn merge_long(&self, ids: Vec<u32>, goes_on: &dyn Fn() -> bool) -> Option<Vec<u32>> {
        let len = ids.len();
        let n = u32::try_from(len).ok()?;
        let mut chain = Chain {
            ids,
            next: (1..n).chain([NONE]).take(len).collect(),
            prev: [NONE].into_iter().chain(0..n).take(len).collect(),
        };
        let mut waiting = Waiting::default();
        for at in 0..n {
            self.enter(&chain, at, None, &mut waiting);
        }
        while let Some((rank, mut places)) = waiting.by_rank.pop_first() {
            if !goes_on() {
                return None;
            }
            places.sort();
            for at in places {
                while let Some(Reverse(first)) = waiting.urgent.peek().copied() {
                    if first > (rank, at) {
                        break;
                    }
                    waiting.urgent.pop();
                    self.merge(&mut chain, first.0, first.1, rank, &mut waiting);
                }
                self.merge(&mut chain, rank, at, rank, &mut waiting);
            }
            while let Some(Reverse((urgent, at))) = waiting.urgent.pop() {
                self.merge(&mut chain, urgent, at, rank, &mut waiting);
            }
        }
        let mut ids = Vec::new();
        let mut at = if n == 0 { NONE } else { 0 };
        while at != NONE {
            ids.push(chain.ids[at as usize]);
            at = chain.next[at as usize];
        }
        Some(ids)
    }

    /// Lets the pair at a place wait, if it is one. `now` is the rank that is being merged.
    fn enter(&self, chain: &Chain, at: u32, now: Option<u32>, waiting: &mut Waiting) {
        let Some(rank) = chain.pair(at).and_then(|(pair, _)| self.rank(pair)) else { return };
        match now {
            Some(now) if rank <= now => waiting.urgent.push(Reverse((rank, at))),
            _ => waiting.by_rank.entry(rank).or_default().push(at),
        }
    }

    /// Merges the pair at a place, if it still becomes what it became when it began to wait.
    fn merge(&self, chain: &mut Chain, rank: u32, at: u32, now: u32, waiting: &mut Waiting) {
        let becomes = |rank: u32| self.result(rank);
        // Places that were merged into the one before them have no id of their own any more.
        if chain.ids[at as usize] == NONE {
            return;
        }
        let Some((pair, right)) = chain.pair(at) else { return };
        if self.rank(pair).map(becomes) != Some(becomes(rank)) {
            return;
        }
        let after = chain.next[right as usize];
        (chain.ids[at as usize], chain.ids[right as usize]) = (becomes(rank), NONE);
        chain.next[at as usize] = after;
        if after != NONE {
            chain.prev[after as usize] = at;
        }
        let before = chain.prev[at as usize];
        if before != NONE {
            self.enter(chain, before, Some(now), waiting);
        }
        self.enter(chain, at, Some(now), waiting);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merges::SHORT_MAX;
    use proptest::prelude::*;
    use tokenizers::Model as _;
    use tokenizers::models::bpe::{BPE, Vocab};

    /// A vocabulary over four letters, and merges in any order: also such as no training makes.
    fn vocabulary(merges: &[(usize, usize)]) -> (BPE, Merges, [u32; 256]) {
        let mut pieces: Vec<String> = ["a", "b", "c", " "].map(str::to_owned).to_vec();
        let mut pairs: Vec<(String, String)> = Vec::new();
        for (left, right) in merges {
            let (left, right) = (left % pieces.len(), right % pieces.len());
            let pair = (pieces[left].clone(), pieces[right].clone());
            let whole = format!("{}{}", pair.0, pair.1);
            if whole.len() > 40 || pairs.contains(&pair) {
                continue;
            }
            if !pieces.contains(&whole) {
                pieces.push(whole);
            }
            pairs.push(pair);
        }
        // The latest pieces first: what a pair becomes may rank above the pair.
        pairs.sort_by_key(|(left, right)| (left.len() * 7 + right.len() * 3) % 5);
        let id = |piece: &str| pieces.iter().position(|known| known == piece).unwrap() as u32;
        let vocab = pieces.iter().map(|piece| (piece.clone(), id(piece)));
        let mut bytes = [0; 256];
        for piece in &pieces[..4] {
            bytes[usize::from(piece.as_bytes()[0])] = id(piece);
        }
        let triples = pairs.iter().map(|(l, r)| (id(l), id(r), id(&format!("{l}{r}"))));
        let triples: Vec<_> = triples.collect();
        let bpe = BPE::builder().vocab_and_merges(vocab.collect::<Vocab>(), pairs.clone());
        (bpe.build().unwrap(), Merges::new(&triples), bytes)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn words_of_any_length_are_merged_as_the_crate_does(
            merges in prop::collection::vec((0usize..40, 0usize..40), 0..40),
            word in prop_oneof!["[abc ]{0,80}", "a{0,90}", "(ab|aab| ){0,30}"],
        ) {
            let (bpe, merges, bytes) = vocabulary(&merges);
            let letters: Vec<u32> = word.bytes().map(|byte| bytes[usize::from(byte)]).collect();
            let expected: Vec<u32> = bpe.tokenize(&word).unwrap().iter().map(|t| t.id).collect();
            prop_assert_eq!(&merges.merge_long(letters.clone(), &|| true).unwrap(), &expected);
            if word.len() <= SHORT_MAX {
                let mut ids = [0; SHORT_MAX];
                ids[..letters.len()].copy_from_slice(&letters);
                let n = merges.merge_short(&mut ids, letters.len());
                prop_assert_eq!(&ids[..n], &expected);
            }
        }
    }

    #[test]
    fn a_reader_who_has_had_enough_is_obeyed() {
        let (_, merges, _) = vocabulary(&[(0, 0)]);
        assert_eq!(merges.merge_long(vec![0; 4], &|| false), None);
        assert_eq!(merges.merge_long(Vec::new(), &|| false), Some(Vec::new()));
    }
}
