//! How a text that was seen before went on: guesses for speculative decoding without a draft model.
//!
//! [`History`] looks in one text, mostly the prompt and output of a job itself; [`SuffixAutomaton`]
//! looks in many texts of the past, within a bound on memory. Both own copies of ids and nothing
//! else. What they propose is a guess that the model checks, so they may forget, but not be slow.
//!
//! For both holds:
//! - An occurrence counts only if another id of the same text follows it.
//! - The longest suffix of the reader's ids wins; of its occurrences, the newest. Suffixes longer
//!   than [`MATCH_IDS_MAX`] ids are not told apart: the newest occurrence of that many ids wins.
//! - What is proposed depends on the ids alone, never on hashes or on the sizes of tables.

mod automaton;
mod history;
#[cfg(test)]
mod tests;

pub(crate) use automaton::{Cursor, SuffixAutomaton};
pub(crate) use history::History;

/// The longest suffix that is looked for, in ids. One that long is as good as certain to go on in
/// the same way, and the bound makes the newest occurrence of every suffix cheap to know.
pub(crate) const MATCH_IDS_MAX: usize = 32;

/// Slots of a table with nothing in it.
const TABLE_SLOTS_MIN: usize = 64;

/// A place for these words in a table, whose size is a power of two.
fn slot_of(words: &[u32], n_slots: usize) -> usize {
    let mix = |hash: u64, &word: &u32| {
        (hash.rotate_left(29) ^ u64::from(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    };
    (words.iter().fold(0, mix) >> (u64::BITS - n_slots.trailing_zeros())) as usize
}

/// Grows by a quarter, not by twice: these tables are long and many.
fn push_tight<T>(items: &mut Vec<T>, item: T) {
    if items.len() == items.capacity() {
        items.reserve_exact(items.len() / 4 + 16);
    }
    items.push(item);
}
