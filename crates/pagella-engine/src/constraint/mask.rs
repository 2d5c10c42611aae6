//! A set of token ids, one bit each: the only currency between constraints and sampling.
//!
//! Must hold: bits at and above the vocabulary's size are zero, so counts and comparisons over whole
//! words are exact.

/// Ids per word.
const WORD_BITS: usize = u32::BITS as usize;

/// Which ids may come next. Bit `id % 32` of word `id / 32` is set if `id` may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bitmask {
    words: Vec<u32>,
    vocab: usize,
}

impl Bitmask {
    /// A mask that allows every id below `vocab`.
    pub fn new_all(vocab: usize) -> Self {
        let mut mask = Self::new_none(vocab);
        mask.allow_all();
        mask
    }

    /// A mask that allows nothing.
    pub fn new_none(vocab: usize) -> Self {
        Self { words: vec![0; vocab.div_ceil(WORD_BITS)], vocab }
    }

    /// Number of ids the mask speaks of.
    pub fn vocab(&self) -> usize {
        self.vocab
    }

    /// Allows one id; ids outside the vocabulary are never allowed.
    pub fn allow(&mut self, id: u32) {
        if (id as usize) < self.vocab {
            self.words[id as usize / WORD_BITS] |= 1 << (id % u32::BITS);
        }
    }

    /// Denies one id.
    pub fn deny(&mut self, id: u32) {
        if (id as usize) < self.vocab {
            self.words[id as usize / WORD_BITS] &= !(1 << (id % u32::BITS));
        }
    }

    /// Allows every id.
    pub fn allow_all(&mut self) {
        self.words.fill(u32::MAX);
        self.clear_tail();
    }

    /// Denies every id.
    pub fn deny_all(&mut self) {
        self.words.fill(0);
    }

    /// Whether an id is allowed.
    pub fn contains(&self, id: u32) -> bool {
        (id as usize) < self.vocab
            && self.words[id as usize / WORD_BITS] & (1 << (id % u32::BITS)) != 0
    }

    /// Adds what `other` allows.
    pub fn unite(&mut self, other: &Bitmask) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word |= other;
        }
    }

    /// Keeps only what `other` allows too. What `other` does not speak of, it does not allow.
    pub fn intersect(&mut self, other: &Bitmask) {
        let common = other.words.len().min(self.words.len());
        for (word, theirs) in self.words.iter_mut().zip(&other.words) {
            *word &= theirs;
        }
        self.words[common..].fill(0);
    }

    /// Takes over the leading words of a longer or shorter set; ids beyond it are denied.
    pub fn copy_from_words(&mut self, words: &[u32]) {
        let common = words.len().min(self.words.len());
        self.words[..common].copy_from_slice(&words[..common]);
        self.words[common..].fill(0);
        self.clear_tail();
    }

    /// How many ids are allowed.
    pub fn count_ones(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether no id is allowed.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// The allowed ids, in increasing order.
    pub fn ids(&self) -> impl Iterator<Item = u32> + '_ {
        (0u32..).zip(&self.words).flat_map(|(index, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let bit = rest.trailing_zeros();
                // Clears the lowest set bit; of zero it stays zero.
                rest &= rest.wrapping_sub(1);
                (bit < u32::BITS).then_some(index * u32::BITS + bit)
            })
        })
    }

    /// The words, lowest ids first.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// The words, for code that combines whole masks. Bits above the vocabulary must stay zero.
    pub fn words_mut(&mut self) -> &mut [u32] {
        &mut self.words
    }

    fn clear_tail(&mut self) {
        let used = self.vocab % WORD_BITS;
        if let (Some(last), true) = (self.words.last_mut(), used != 0) {
            *last &= (1 << used) - 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tail_bits_stay_clear() {
        for vocab in [0, 1, 31, 32, 33, 64, 100] {
            let mut mask = Bitmask::new_all(vocab);
            assert_eq!(mask.count_ones(), vocab);
            mask.copy_from_words(&[u32::MAX; 9]);
            assert_eq!(mask, Bitmask::new_all(vocab));
            mask.allow(vocab as u32);
            mask.allow(u32::MAX);
            assert_eq!(mask.count_ones(), vocab);
            assert!(!mask.contains(vocab as u32));
            assert_eq!(mask.ids().collect::<Vec<_>>(), (0..vocab as u32).collect::<Vec<_>>());
            mask.deny_all();
            assert!(mask.is_empty() && mask.ids().next().is_none());
        }
    }

    #[test]
    fn single_ids() {
        let mut mask = Bitmask::new_none(70);
        for id in [0, 31, 32, 69] {
            mask.allow(id);
            assert!(mask.contains(id));
        }
        assert_eq!(mask.ids().collect::<Vec<_>>(), [0, 31, 32, 69]);
        mask.deny(31);
        mask.deny(700);
        assert_eq!(mask.ids().collect::<Vec<_>>(), [0, 32, 69]);
    }

    #[test]
    fn intersection_denies_what_the_other_does_not_speak_of() {
        let mut mask = Bitmask::new_all(100);
        mask.intersect(&Bitmask::new_all(40));
        assert_eq!(mask.ids().collect::<Vec<_>>(), (0..40).collect::<Vec<_>>());
        let mut short = Bitmask::new_all(40);
        short.intersect(&Bitmask::new_all(100));
        assert_eq!(short, Bitmask::new_all(40));
        let mut other = Bitmask::new_none(40);
        other.allow(7);
        short.intersect(&other);
        assert_eq!(short.ids().collect::<Vec<_>>(), [7]);
    }

    #[test]
    fn shorter_sets_deny_the_rest() {
        let mut mask = Bitmask::new_all(70);
        mask.copy_from_words(&[0b101]);
        assert_eq!(mask.ids().collect::<Vec<_>>(), [0, 2]);
    }
}
