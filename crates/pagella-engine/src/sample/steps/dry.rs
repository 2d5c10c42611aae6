//! DRY, "don't repeat yourself", on logits; and the ban on repeated n-grams, which uses the same
//! matching.
//!
//! An id that would extend a repetition of the end of the context by one is lowered, the more the
//! longer that repetition is already. Matching is a Z-function over the newest ids in reverse: for
//! every earlier place, how many ids before it equal the end of the context. One pass, no memory
//! from token to token, so nothing has to be rolled back.

use crate::sample::{Bitmask, SampleOptions, Scratch};

/// Whether the step does anything with these settings.
pub fn is_on(options: &SampleOptions) -> bool {
    options.dry_multiplier > 0.0
}

/// The largest penalty; enough to exclude any id, small enough to keep logits finite.
pub const PENALTY_MAX: f64 = 1e4;

/// Strength and reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dry {
    /// Penalty of a repetition of the allowed length.
    pub multiplier: f32,
    /// Factor for every further id.
    pub base: f32,
    /// Shorter repetitions are free.
    pub allowed_length: usize,
    /// Longer repetitions count as this long (they are not free).
    pub max_ngram: usize,
    /// How many of the newest ids are looked at; 0 means all.
    pub range: usize,
    /// Whether the penalty is multiplied by the number of occurrences.
    pub count_scaling: bool,
}

impl Dry {
    /// What is subtracted for extending a repetition of `length` ids seen `count` times.
    pub fn penalty(&self, length: usize, count: usize) -> f64 {
        let length = length.min(self.max_ngram);
        let exponent = length.saturating_sub(self.allowed_length) as f64;
        let once = f64::from(self.multiplier) * f64::from(self.base).powf(exponent);
        let times = if self.count_scaling { count as f64 } else { 1.0 };
        (once * times).min(PENALTY_MAX)
    }
}

/// Lowers ids that would extend a repetition. `breakers` and ids at or beyond `vocab` are never part
/// of one.
pub fn apply(
    dry: &Dry,
    breakers: &Bitmask,
    vocab: usize,
    history: &[u32],
    logits: &mut [f32],
    scratch: &mut Scratch,
) {
    let breaks = |id: u32| id as usize >= vocab || breakers.contains(id);
    let range = if dry.range == 0 { history.len() } else { dry.range.min(history.len()) };
    let newest = &history[history.len() - range..];
    // A repetition cannot reach back beyond the newest breaker.
    let phrase = newest.iter().rev().take_while(|id| !breaks(**id)).count();
    if phrase < dry.allowed_length {
        return;
    }
    find_extensions(newest, scratch);
    let limit = phrase.min(dry.max_ngram) as u32;
    let allowed = dry.allowed_length as u32;
    scratch.extensions.iter_mut().for_each(|(_, length)| *length = limit.min(*length));
    scratch.extensions.retain(|(id, length)| *length >= allowed && !breaks(*id));
    scratch.extensions.sort_unstable_by_key(|&(id, length)| (id, std::cmp::Reverse(length)));
    for same_id in scratch.extensions.chunk_by(|a, b| a.0 == b.0) {
        let (id, longest) = same_id[0];
        let count = same_id.iter().take_while(|(_, length)| *length == longest).count();
        if let Some(logit) = logits.get_mut(id as usize) {
            *logit -= dry.penalty(longest as usize, count) as f32;
        }
    }
}

/// Masks ids that would complete a group of `n` ids that occurred already.
pub fn deny_repeated_ngrams(n: usize, history: &[u32], logits: &mut [f32], scratch: &mut Scratch) {
    find_extensions(history, scratch);
    for &(id, length) in &scratch.extensions {
        if length as usize + 1 >= n
            && let Some(logit) = logits.get_mut(id as usize)
        {
            *logit = f32::NEG_INFINITY;
        }
    }
}

/// For every id of `context` with what stands before it: how many ids there equal the end of the
/// context. Result in `scratch.extensions`, newest first.
fn find_extensions(context: &[u32], scratch: &mut Scratch) {
    let Scratch { reversed, matches, extensions, .. } = scratch;
    reversed.clear();
    reversed.extend(context.iter().rev());
    common_prefixes(reversed, matches);
    extensions.clear();
    let before_each = matches.iter().skip(1).copied().chain(std::iter::once(0));
    extensions.extend(reversed.iter().copied().zip(before_each));
}

/// The Z-function: `out[i]` is how long `list[i..]` equals the beginning of `list`.
fn common_prefixes(list: &[u32], out: &mut Vec<u32>) {
    out.clear();
    out.resize(list.len(), 0);
    // The window `left..right` equals the beginning of the list and reaches farthest right.
    let (mut left, mut right) = (0, 0);
    for i in 1..list.len() {
        let mut length = if i < right { (out[i - left] as usize).min(right - i) } else { 0 };
        while i + length < list.len() && list[length] == list[i + length] {
            length += 1;
        }
        out[i] = length as u32;
        if i + length > right {
            (left, right) = (i, i + length);
        }
    }
}

#[cfg(test)]
mod tests;
