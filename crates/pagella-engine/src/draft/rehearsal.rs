//! `Rehearsal`: an answer that is known beforehand, as guesses of which a given share is right.
//!
//! What drafting gains depends on how often guesses are right, which weights made for measuring
//! speed cannot show. With the ids that a first run wrote, a second one can be given guesses of any
//! quality, while everything else, a draft model included, does its work.

use std::sync::Arc;

/// A known answer, and how much of it is told.
#[derive(Clone, Debug)]
pub struct Rehearsal {
    /// Ids of the answer, from its first on.
    pub ids: Arc<[u32]>,
    /// Share of guesses that are right, from 0 to 1.
    pub accepted: f64,
}

impl Rehearsal {
    /// Guesses of the ids from index `written` of the answer on, at most `max`. Whether one is right
    /// depends on its place alone, so that runs can be repeated.
    pub(crate) fn guess(&self, written: usize, max: usize, vocab: usize, out: &mut Vec<u32>) {
        out.clear();
        let known = self.ids.iter().enumerate().skip(written).take(max);
        out.extend(known.map(|(at, &id)| match is_told(at, self.accepted) {
            true => id,
            false => (id + 1) % vocab.max(1) as u32,
        }));
    }
}

/// Whether the id at this place is told as it is.
fn is_told(at: usize, share: f64) -> bool {
    let mixed = (at as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    ((mixed >> 11) as f64) < share * (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_guesses_are_right_as_was_asked_for() {
        let ids: Arc<[u32]> = (0..10_000).map(|at| at % 7).collect();
        for accepted in [0.0, 0.3, 0.7, 1.0] {
            let rehearsal = Rehearsal { ids: ids.clone(), accepted };
            let mut guesses = Vec::new();
            rehearsal.guess(0, usize::MAX, 7, &mut guesses);
            let right = guesses.iter().zip(&*ids).filter(|(a, b)| a == b).count();
            assert!((right as f64 / 1e4 - accepted).abs() < 0.02, "{right} for {accepted}");
            rehearsal.guess(9_998, 5, 7, &mut guesses);
            assert_eq!(guesses.len(), 2, "nothing is known beyond the end");
        }
    }
}
