//! `History`: the n-grams of one text, and what followed them.

use std::mem::replace;

use super::{MATCH_IDS_MAX, TABLE_SLOTS_MIN, push_tight, slot_of};

/// The most that [`History`] takes for each of its ids, in bytes: the id and two previous ends with
/// a quarter of slack, and up to two heads.
#[cfg(test)]
pub(super) const HISTORY_ID_BYTES: usize = 23;

/// How many occurrences of one n-gram [`History`] compares, from the newest on.
const OCCURRENCES_MAX: usize = 256;
/// The longer n-gram of [`History`] has this many times the ids of the shorter one.
const LONG_GRAM_RATIO: usize = 3;

/// The n-grams of one text, for lookups of its own end in itself or of another text's end in it.
///
/// N-grams of two lengths lead to where they occur, newest first; [`OCCURRENCES_MAX`] of each are
/// compared id by id, and a longer match beyond those is not found. The longer n-grams keep common
/// short ones from hiding a long match far back.
#[derive(Clone, Debug)]
pub(crate) struct History {
    ids: Vec<u32>,
    /// The longer n-grams first.
    indexes: [GramIndex; 2],
}

impl History {
    /// Finds matches of `min_ids` ids and more, within 1 and [`MATCH_IDS_MAX`].
    pub(crate) fn new(min_ids: usize) -> Self {
        let short = min_ids.clamp(1, MATCH_IDS_MAX);
        let long = (short * LONG_GRAM_RATIO).min(MATCH_IDS_MAX);
        Self { ids: Vec::new(), indexes: [long, short].map(GramIndex::new) }
    }

    /// Appends ids that are certain. Fewer than 2^32 fit, far more than any context.
    pub(crate) fn push(&mut self, ids: &[u32]) {
        for &id in ids {
            push_tight(&mut self.ids, id);
            self.indexes.iter_mut().for_each(|index| index.push(&self.ids));
        }
    }

    /// Forgets all but the first `len` ids, as if no others had ever been pushed.
    pub(crate) fn truncate(&mut self, len: usize) {
        while self.ids.len() > len {
            self.indexes.iter_mut().for_each(|index| index.pop(&self.ids));
            self.ids.pop();
        }
    }

    /// Puts `max` ids into `out`, in place of what it holds: those that followed the longest suffix
    /// that occurred earlier, and, where they run into the end, their own repetition, so that a
    /// text of any period goes on with it. Returns the length of the match, 0 if there is none.
    pub(crate) fn propose(&self, max: usize, out: &mut Vec<u32>) -> usize {
        // Its own end is not followed by anything, and so no match.
        let n_matched = self.propose_for(&self.ids, max, out);
        let period = out.len();
        if period > 0 {
            (period..max).for_each(|at| out.push(out[at - period]));
        }
        n_matched
    }

    /// The same for a reader of another text, of whose last ids [`MATCH_IDS_MAX`] are enough; up to
    /// `max` ids, since nothing is known after the end of this text.
    pub(crate) fn propose_for(&self, reader_tail: &[u32], max: usize, out: &mut Vec<u32>) -> usize {
        out.clear();
        let mut found = self.indexes.iter().filter_map(|i| i.longest(&self.ids, reader_tail));
        let Some((n_matched, end)) = found.next() else { return 0 };
        out.extend(self.ids[end..].iter().take(max));
        n_matched
    }

    /// The memory taken: at most [`HISTORY_ID_BYTES`] for each id ever held at once, and 1 KiB.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        let of = |index: &GramIndex| index.heads.capacity() + index.previous.capacity();
        (self.ids.capacity() + self.indexes.iter().map(of).sum::<usize>()) * size_of::<u32>()
    }
}

/// Where the n-grams of one length end: an end is the number of ids up to there, 0 means none.
#[derive(Clone, Debug)]
struct GramIndex {
    gram_ids: usize,
    /// The newest end of the n-grams with this hash; one head for one or two ids.
    heads: Vec<u32>,
    /// For each id, the head before it came: a list of ends, and how to take back the last id.
    previous: Vec<u32>,
}

impl GramIndex {
    fn new(gram_ids: usize) -> Self {
        Self { gram_ids, heads: vec![0; TABLE_SLOTS_MIN], previous: Vec::new() }
    }

    /// Adds the n-gram at the end of `ids`, which have one id more than before.
    fn push(&mut self, ids: &[u32]) {
        push_tight(&mut self.previous, 0);
        let mut missing = ids.len()..ids.len() + 1;
        if ids.len() > self.heads.len() * 2 {
            self.heads = vec![0; self.heads.len() * 2];
            missing = 1..ids.len() + 1;
        }
        for end in missing {
            let head = self.head(&ids[..end]);
            self.previous[end - 1] = replace(&mut self.heads[head], end as u32);
        }
    }

    /// Takes back the last push, which was of these ids.
    fn pop(&mut self, ids: &[u32]) {
        let head = self.head(ids);
        self.heads[head] = self.previous.pop().unwrap_or(0);
    }

    /// Too few ids have a head too; comparing finds that they are no n-gram.
    fn head(&self, ids: &[u32]) -> usize {
        slot_of(&ids[ids.len().saturating_sub(self.gram_ids)..], self.heads.len())
    }

    /// Of the occurrences of the n-gram at the end of `tail`, the one with the longest match: its
    /// length, and where it ends. Only true occurrences are counted, not hashes that collide.
    fn longest(&self, ids: &[u32], tail: &[u32]) -> Option<(usize, usize)> {
        let (mut n_best, mut best_end, mut n_compared) = (0, 0, 0);
        let mut end = self.heads[self.head(tail)] as usize;
        while end != 0 && n_compared < OCCURRENCES_MAX && n_best < MATCH_IDS_MAX {
            let pairs = ids[..end].iter().rev().zip(tail.iter().rev()).take(MATCH_IDS_MAX);
            let n_matched = pairs.take_while(|(a, b)| a == b).count();
            if n_matched >= self.gram_ids && end < ids.len() {
                n_compared += 1;
                if n_matched > n_best {
                    (n_best, best_end) = (n_matched, end);
                }
            }
            end = self.previous[end - 1] as usize;
        }
        (n_best > 0).then_some((n_best, best_end))
    }
}
