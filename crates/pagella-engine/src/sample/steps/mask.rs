//! Ids that may not be chosen: −∞, after everything that adds to logits, so nothing revives them.

use crate::sample::Bitmask;

/// Ids of one word of a mask.
const WORD_BITS: usize = 32;

/// Masks every id that `allowed` does not hold; ids it is not about are not allowed.
pub fn allow_only(allowed: &Bitmask, logits: &mut [f32]) {
    let words = allowed.words().iter().copied().chain(std::iter::repeat(0));
    for (chunk, word) in logits.chunks_mut(WORD_BITS).zip(words) {
        match word {
            u32::MAX => {}
            0 => chunk.fill(f32::NEG_INFINITY),
            word => {
                for (bit, logit) in chunk.iter_mut().enumerate() {
                    if word >> bit & 1 == 0 {
                        *logit = f32::NEG_INFINITY;
                    }
                }
            }
        }
    }
}

/// Masks these ids; ids beyond the row are ignored.
pub fn deny(ids: &[u32], logits: &mut [f32]) {
    for &id in ids {
        if let Some(logit) = logits.get_mut(id as usize) {
            *logit = f32::NEG_INFINITY;
        }
    }
}

/// Masks everything from `vocab` on: rows that no token has.
pub fn end_at(vocab: usize, logits: &mut [f32]) {
    if let Some(padding) = logits.get_mut(vocab..) {
        padding.fill(f32::NEG_INFINITY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(logits: &[f32]) -> Vec<usize> {
        (0..logits.len()).filter(|i| logits[*i] == 0.0).collect()
    }

    #[test]
    fn only_allowed_ids_remain() {
        let mut mask = Bitmask::new_all(70);
        mask.deny(5);
        for id in 32..64 {
            mask.deny(id);
        }
        let mut logits = vec![0.0; 100];
        allow_only(&mask, &mut logits);
        let expected: Vec<usize> = (0..70).filter(|i| *i != 5 && !(32..64).contains(i)).collect();
        assert_eq!(open(&logits), expected);
        deny(&[0, 1, 500], &mut logits);
        end_at(66, &mut logits);
        end_at(500, &mut logits);
        assert_eq!(open(&logits).len(), expected.len() - 2 - 4);
    }
}
