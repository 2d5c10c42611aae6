//! What sampling needs to know of a vocabulary. Built once per model and shared by all jobs.

use pagella_text::Tokenizer;

use super::{Bitmask, DEFAULT_DRY_BREAKERS};

/// Sets of ids that depend on the tokenizer alone.
#[derive(Clone)]
pub struct VocabSets {
    /// Ids at or above this are never chosen, and break a repetition.
    pub vocab: usize,
    /// Ids that end a phrase for DRY, when the options name none.
    pub dry_breakers: Bitmask,
    /// Ids that XTC never excludes, when the options name none.
    pub xtc_ignored: Bitmask,
    /// Ids below `vocab` that stand for nothing and are never chosen, in increasing order.
    pub unused: Vec<u32>,
    /// For breakers given as texts.
    tokenizer: Option<Tokenizer>,
}

impl std::fmt::Debug for VocabSets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VocabSets")
            .field("vocab", &self.vocab)
            .field("dry_breakers", &self.dry_breakers.count_ones())
            .field("xtc_ignored", &self.xtc_ignored.count_ones())
            .field("unused", &self.unused.len())
            .finish_non_exhaustive()
    }
}

impl VocabSets {
    /// The sets of a vocabulary about which nothing is known but its size.
    pub fn plain(vocab: usize) -> Self {
        VocabSets {
            vocab,
            dry_breakers: Bitmask::new_none(vocab),
            xtc_ignored: Bitmask::new_none(vocab),
            unused: Vec::new(),
            tokenizer: None,
        }
    }

    /// The sets of a tokenizer: DRY is broken by punctuation, brackets, newline, tab, added
    /// and special tokens; XTC ignores newlines, added and special tokens.
    pub fn from_tokenizer(tokenizer: &Tokenizer) -> Self {
        let vocab = tokenizer.vocab_size();
        let mut sets = VocabSets { tokenizer: Some(tokenizer.clone()), ..VocabSets::plain(vocab) };
        for id in 0..vocab as u32 {
            let flags = tokenizer.flags(id);
            if flags.unused {
                sets.unused.push(id);
                continue;
            }
            let bytes = tokenizer.token_bytes(id);
            let control = flags.special || flags.added;
            if control || DEFAULT_DRY_BREAKERS.iter().any(|b| contains(bytes, b.as_bytes())) {
                sets.dry_breakers.allow(id);
            }
            if control || bytes.contains(&b'\n') {
                sets.xtc_ignored.allow(id);
            }
        }
        sets
    }

    /// All ids whose text contains `part`; `None` when no tokenizer is known.
    pub fn ids_containing(&self, part: &str) -> Option<Vec<u32>> {
        let tokenizer = self.tokenizer.as_ref()?;
        let ids = 0..self.vocab as u32;
        Some(ids.filter(|id| contains(tokenizer.token_bytes(*id), part.as_bytes())).collect())
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    part.is_empty() || bytes.windows(part.len()).any(|window| window == part)
}
