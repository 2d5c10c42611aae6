//! A set of token ids as one bit each: the only currency of constraints.
//!
//! Must hold: bits at or beyond `vocab` are 0, so that counting and comparing need no care.

/// Ids of one word.
const WORD_BITS: usize = u32::BITS as usize;

/// A set of ids below `vocab`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bitmask {
    vocab: usize,
    /// `ceil(vocab / 32)` words; id `i` is bit `i % 32` of word `i / 32`.
    words: Vec<u32>,
}

impl Bitmask {
    /// Every id below `vocab`.
    pub fn new_all(vocab: usize) -> Self {
        let mut mask = Bitmask { vocab, words: vec![u32::MAX; vocab.div_ceil(WORD_BITS)] };
        mask.clear_padding();
        mask
    }

    /// No id.
    pub fn new_none(vocab: usize) -> Self {
        Bitmask { vocab, words: vec![0; vocab.div_ceil(WORD_BITS)] }
    }

    /// How many ids the set is about.
    pub fn vocab(&self) -> usize {
        self.vocab
    }

    /// Adds an id; ids at or beyond the vocabulary are ignored.
    pub fn allow(&mut self, id: u32) {
        if (id as usize) < self.vocab {
            self.words[id as usize / WORD_BITS] |= bit(id);
        }
    }

    /// Takes an id out; ids at or beyond the vocabulary are never in.
    pub fn deny(&mut self, id: u32) {
        if (id as usize) < self.vocab {
            self.words[id as usize / WORD_BITS] &= !bit(id);
        }
    }

    /// Whether an id is in the set.
    pub fn contains(&self, id: u32) -> bool {
        self.words.get(id as usize / WORD_BITS).is_some_and(|word| word & bit(id) != 0)
    }

    /// Keeps what is in both; ids that `other` is not about are taken out.
    pub fn intersect(&mut self, other: &Bitmask) {
        let others = other.words.iter().copied().chain(std::iter::repeat(0));
        self.words.iter_mut().zip(others).for_each(|(word, other)| *word &= other);
    }

    /// Makes the set full or empty, for the next position.
    pub fn fill(&mut self, allowed: bool) {
        self.words.fill(if allowed { u32::MAX } else { 0 });
        self.clear_padding();
    }

    /// How many ids are in the set.
    pub fn count_ones(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether no id is in the set.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// The ids of the set, in increasing order.
    pub fn ids(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.vocab as u32).filter(|id| self.contains(*id))
    }

    /// The words, 32 ids each.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// The words, for whoever fills many at once. Bits beyond the vocabulary have no meaning and
    /// must be left 0.
    pub fn words_mut(&mut self) -> &mut [u32] {
        &mut self.words
    }

    fn clear_padding(&mut self) {
        let used = self.vocab % WORD_BITS;
        if used != 0
            && let Some(last) = self.words.last_mut()
        {
            *last &= (1 << used) - 1;
        }
    }
}

fn bit(id: u32) -> u32 {
    1 << (id % u32::BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_go_in_and_out_and_unknown_ids_are_never_in() {
        let mut mask = Bitmask::new_none(40);
        mask.allow(0);
        mask.allow(39);
        mask.allow(40);
        mask.allow(u32::MAX);
        assert_eq!((mask.count_ones(), mask.words().len()), (2, 2));
        assert!(mask.contains(39) && !mask.contains(40) && !mask.contains(63));
        mask.deny(39);
        mask.deny(63);
        assert_eq!(mask.ids().collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn full_sets_have_no_bits_beyond_the_vocabulary() {
        for vocab in [0, 1, 31, 32, 33, 64, 100] {
            let mut mask = Bitmask::new_all(vocab);
            assert_eq!(mask.count_ones(), vocab);
            assert_eq!(mask.is_empty(), vocab == 0);
            mask.fill(false);
            assert_eq!(mask, Bitmask::new_none(vocab));
            mask.fill(true);
            assert_eq!(mask, Bitmask::new_all(vocab));
        }
    }

    #[test]
    fn intersection_keeps_common_ids_whatever_the_sizes() {
        let mut long = Bitmask::new_all(100);
        let mut short = Bitmask::new_all(40);
        short.deny(3);
        long.intersect(&short);
        assert_eq!((long.count_ones(), long.vocab()), (39, 100));
        short.intersect(&Bitmask::new_all(100));
        assert_eq!(short.count_ones(), 39);
    }
}
