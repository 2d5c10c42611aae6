//! What a choice needs to know of a row that lies on a device: its best candidates, or all of it.
//!
//! Steps on logits change only ids of the history and of the bias list. Those, and ids that may not
//! be chosen, are set apart: the device reports their logits and leaves them out of everything else,
//! so what it says of the rest holds whatever the steps do.

use pagella_backend::{NARROW_APART_MAX, NARROW_TOP_MAX, NarrowAsk};

use super::Sampler;
use crate::sample::cut::Reach;
use crate::sample::{Bitmask, Draws, SamplerState, Scratch, Shape, Step};

/// Candidates where a step does not say how many it can keep.
const USUAL_TOP: usize = 256;
/// Ids of a word of the set.
const WORD_BITS: usize = u64::BITS as usize;

/// What a choice will be made from, except for the logits; see [`Row`](crate::sample::Row).
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Length of a row.
    pub vocab: usize,
    /// Prompt and output.
    pub history: &'a [u32],
    /// How many ids of the history are the prompt.
    pub prompt_len: usize,
    /// The only ids that may be chosen.
    pub mask: Option<&'a Bitmask>,
    /// Ids that may not be chosen here.
    pub denied: &'a [u32],
    /// How many of the final candidates to report.
    pub top: usize,
}

/// Memory of an ask, which is needed again when the answer is there.
#[derive(Debug, Default)]
pub struct AskBuffer {
    /// Ids set apart, increasing.
    pub(super) apart: Vec<u32>,
    /// What two masks allow together.
    mask: Vec<u32>,
}

impl Sampler {
    /// What to ask of a row so that [`Sampler::pick_narrowed`] can choose, in most cases; `None` where
    /// only the whole row will do. The number of the row is left to the caller.
    pub fn ask<'a>(
        &'a self,
        asked: &Asked<'a>,
        scratch: &mut Scratch,
        buffer: &'a mut AskBuffer,
    ) -> Option<NarrowAsk<'a>> {
        let mask = match (&self.allowed, asked.mask) {
            (None, mask) => mask.map(Bitmask::words),
            (Some(allowed), None) => Some(allowed.words()),
            (Some(allowed), Some(mask)) => {
                buffer.mask.clear();
                let both = allowed.words().iter().zip(mask.words());
                buffer.mask.extend(both.map(|(a, b)| a & b));
                Some(buffer.mask.as_slice())
            }
        };
        let (top, scale) = self.top_and_scale(asked.top, mask)?;
        let vocab = self.sets.vocab.min(asked.vocab);
        self.set_apart(asked, mask, vocab, scratch, &mut buffer.apart)?;
        Some(NarrowAsk { row: 0, vocab, mask, apart: &buffer.apart, top, scale })
    }

    /// How many candidates, and the scale of the mass where one is needed.
    fn top_and_scale(&self, top: usize, mask: Option<&[u32]>) -> Option<(usize, Option<f32>)> {
        if self.is_greedy() {
            return Some((1, None));
        }
        let any = Draws { id: 0.0, xtc: 0.0 };
        let usual = USUAL_TOP.max(2 * self.options.min_keep).max(2 * top);
        let found = match (self.reach(any, &SamplerState::default()), self.shape()) {
            (Reach::Count(n), _) => Some((n.max(2), None)),
            (Reach::Share(_), _) => Some((usual, None)),
            (Reach::All, _) | (_, Shape::Smooth { .. }) => None,
            (_, Shape::Linear { scale }) => Some((usual, Some(scale as f32))),
        };
        let all =
            |words: &[u32]| words.iter().map(|word| word.count_ones() as usize).sum::<usize>();
        let found = found.or_else(|| mask.map(|words| (all(words).max(1), None)));
        found.filter(|(top, _)| *top <= NARROW_TOP_MAX)
    }

    /// Lists what steps may change and what must not be chosen, of the ids that the mask allows;
    /// `None` if that is too much.
    fn set_apart(
        &self,
        asked: &Asked<'_>,
        mask: Option<&[u32]>,
        vocab: usize,
        scratch: &mut Scratch,
        apart: &mut Vec<u32>,
    ) -> Option<()> {
        apart.clear();
        let seen = &mut scratch.seen;
        seen.clear();
        seen.resize(vocab.div_ceil(WORD_BITS), 0);
        let never = self.never.iter().chain(asked.denied);
        let mut any = mark(never.copied(), vocab, seen);
        for step in &self.logit_steps {
            any |= match step {
                Step::Penalties => {
                    let scope = self.scope(asked.history, asked.prompt_len);
                    let reached = scope.iter().rev().take(self.penalties().reach(scope.len()));
                    mark(reached.copied(), vocab, seen)
                }
                Step::Bias => mark(self.options.logit_bias.keys().copied(), vocab, seen),
                _ => mark(asked.history.iter().copied(), vocab, seen),
            };
        }
        if self.options.no_repeat_ngram > 0 {
            any |= mark(asked.history.iter().copied(), vocab, seen);
        }
        if !any {
            return Some(());
        }
        let allowed = |word: usize| match mask {
            None => u64::MAX,
            Some(words) => {
                let half = |at: usize| u64::from(words.get(at).copied().unwrap_or(0));
                half(2 * word) | half(2 * word + 1) << 32
            }
        };
        for (word, bits) in seen.iter().enumerate() {
            let mut rest = bits & allowed(word);
            while rest != 0 {
                apart.push((word * WORD_BITS) as u32 + rest.trailing_zeros());
                rest &= rest - 1;
            }
        }
        (apart.len() <= NARROW_APART_MAX).then_some(())
    }
}

/// Adds ids below `vocab` to a set; whether there were any.
fn mark(ids: impl Iterator<Item = u32>, vocab: usize, set: &mut [u64]) -> bool {
    let mut any = false;
    for id in ids.map(|id| id as usize).filter(|id| *id < vocab) {
        set[id / WORD_BITS] |= 1 << (id % WORD_BITS);
        any = true;
    }
    any
}
