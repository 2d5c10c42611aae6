//! Merges of a vocabulary by id, and the words that are short enough to be merged in place.
//!
//! Must hold: the result is that of the `tokenizers` crate: of all pairs that can be merged the one of
//! lowest rank goes first, and the leftmost of equals.

use std::hash::{BuildHasher as _, RandomState};

use ahash::AHashMap;

use crate::error::TextError;
use crate::source::{ModelParts, Parts};

/// Longest word that is merged in place, in characters or bytes. The work grows with the square of the
/// length.
pub(crate) const SHORT_MAX: usize = 64;
/// No pair.
const NONE: u32 = u32::MAX;

/// Left, right, and what they become.
type Triple = (u32, u32, u32);

/// The merges of a file by id, in its order; `None` in the place of those that make or take pieces which
/// are not `keep`t. Fails for one that names no piece.
pub(crate) fn usable(
    parts: &Parts,
    keep: &dyn Fn(&str, u32) -> bool,
) -> Result<Vec<Option<Triple>>, TextError> {
    let ModelParts::Bpe { pieces, merges, continuing_prefix, .. } = &parts.model else {
        return Ok(Vec::new());
    };
    let prefix = continuing_prefix.as_deref().unwrap_or("");
    let kept = |(piece, id): &(String, u32)| (*id, keep(piece, *id));
    let ids: AHashMap<&str, (u32, bool)> =
        pieces.iter().map(|piece| (piece.0.as_str(), kept(piece))).collect();
    let mut whole = String::new();
    let by_id = |(left, right): &(String, String)| {
        whole.clear();
        whole.push_str(left);
        whole.push_str(right.strip_prefix(prefix).unwrap_or(""));
        let found = (ids.get(left.as_str()), ids.get(right.as_str()), ids.get(whole.as_str()));
        match found {
            // The piece after a prefix may not be empty, or the backend would cut inside it.
            (Some(l), Some(r), Some(w)) if whole.len() > left.len() => {
                Ok((l.1 && r.1 && w.1).then_some((l.0, r.0, w.0)))
            }
            _ => {
                let field = format!("merge {left:?} + {right:?}");
                let problem = "names a token outside the vocabulary";
                Err(TextError::field(&parts.file, field, problem))
            }
        }
    };
    merges.iter().map(by_id).collect()
}

/// A pair of ids, where it stands among the merges, and what it becomes.
#[derive(Clone, Copy)]
struct Slot {
    left: u32,
    right: u32,
    rank: u32,
    becomes: u32,
}

const EMPTY: Slot = Slot { left: NONE, right: NONE, rank: NONE, becomes: NONE };

/// Merges of a vocabulary.
pub(crate) struct Merges {
    /// Open addressing; at least half of the slots are empty.
    slots: Box<[Slot]>,
    /// Random and odd: no file can know which pairs get in each other's way.
    factor: u64,
    /// What pairs become, by rank.
    results: Box<[u32]>,
}

impl Merges {
    /// Left, right and the id they become, by rank. Of equal pairs the last one counts.
    pub fn new(merges: &[Triple]) -> Self {
        let size = (2 * merges.len() + 1).next_power_of_two();
        let mut table = Merges {
            slots: vec![EMPTY; size].into_boxed_slice(),
            factor: RandomState::new().hash_one(size) | 1,
            results: merges.iter().map(|(_, _, becomes)| *becomes).collect(),
        };
        for (rank, (left, right, becomes)) in (0u32..).zip(merges) {
            let at = table.place(*left, *right);
            table.slots[at] = Slot { left: *left, right: *right, rank, becomes: *becomes };
        }
        table
    }

    /// The slot of a pair, or the empty one where it would be.
    #[inline]
    fn place(&self, left: u32, right: u32) -> usize {
        let key = u64::from(left) << 32 | u64::from(right);
        let mask = self.slots.len() - 1;
        // Both halves are mixed in before the high bits are taken.
        let hash = (key ^ key >> 29).wrapping_mul(self.factor);
        let mut at = (hash >> 36) as usize & mask;
        loop {
            let slot = self.slots[at];
            if (slot.left == left && slot.right == right) || slot.rank == NONE {
                return at;
            }
            at = (at + 1) & mask;
        }
    }

    /// Rank and result of a pair.
    #[inline]
    fn find(&self, left: u32, right: u32) -> (u32, u32) {
        let slot = self.slots[self.place(left, right)];
        (slot.rank, slot.becomes)
    }

    /// Where a pair stands among the merges.
    pub fn rank(&self, (left, right): (u32, u32)) -> Option<u32> {
        let (rank, _) = self.find(left, right);
        (rank != NONE).then_some(rank)
    }

    /// What the pairs of a rank become.
    pub fn result(&self, rank: u32) -> u32 {
        self.results[rank as usize]
    }

    /// Merges the first `n` of some ids, which stand for characters or bytes; what is left is at the
    /// beginning, and so many.
    pub fn merge_short(&self, ids: &mut [u32; SHORT_MAX], n: usize) -> usize {
        let mut n = n.min(SHORT_MAX);
        // Of the pair that begins at each place, its rank and what it becomes.
        let mut ranks = [NONE; SHORT_MAX];
        let mut results = [NONE; SHORT_MAX];
        for at in 1..n {
            (ranks[at - 1], results[at - 1]) = self.find(ids[at - 1], ids[at]);
        }
        while n > 1 {
            let mut best = 0;
            for at in 1..n - 1 {
                best = if ranks[at] < ranks[best] { at } else { best };
            }
            if ranks[best] == NONE {
                break;
            }
            ids[best] = results[best];
            ids.copy_within(best + 2..n, best + 1);
            ranks.copy_within(best + 1..n, best);
            results.copy_within(best + 1..n, best);
            n -= 1;
            if best + 1 < n {
                (ranks[best], results[best]) = self.find(ids[best], ids[best + 1]);
            }
            if best > 0 {
                (ranks[best - 1], results[best - 1]) = self.find(ids[best - 1], ids[best]);
            }
        }
        n
    }
}
