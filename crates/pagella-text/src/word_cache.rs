//! Words that were encoded already, with their ids: ordinary text repeats most of its words.
//!
//! Every word has one place; a word that comes later takes it. What is known belongs to one text.

/// Longest word that is remembered, in bytes.
const WORD_BYTES_MAX: usize = 23;
/// Most ids of a word that is remembered.
const IDS_MAX: usize = 5;
/// Most words that are remembered: 0.8 MB.
const WORDS_MAX: usize = 1 << 14;

/// A word's bytes, zeros behind them, and its length in the last byte.
type Key = [u64; 3];

#[derive(Clone, Copy, Default)]
struct Entry {
    key: Key,
    ids: [u32; IDS_MAX],
    n: u32,
}

/// The words of one text.
pub(crate) struct WordCache {
    /// A power of two of them.
    entries: Vec<Entry>,
}

/// Where a word would be remembered; `None` for one that is too long.
#[derive(Clone, Copy)]
pub(crate) struct Place(Option<(usize, Key)>);

impl WordCache {
    /// For a text of so many bytes.
    pub fn new(text_bytes: usize) -> Self {
        let n = (text_bytes / 8).next_power_of_two().clamp(1, WORDS_MAX);
        WordCache { entries: vec![Entry::default(); n] }
    }

    /// The ids of a word, or where to keep them.
    #[inline]
    pub fn find(&self, word: &[u8]) -> Result<&[u32], Place> {
        if word.len() > WORD_BYTES_MAX {
            return Err(Place(None));
        }
        let mut bytes = [0u8; 24];
        bytes[..word.len()].copy_from_slice(word);
        bytes[WORD_BYTES_MAX] = word.len() as u8;
        let mut key = [0; 3];
        for (part, bytes) in key.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *part = u64::from_le_bytes(*bytes);
        }
        let mix = |hash: u64, part: u64| {
            (hash ^ part).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
        };
        let hash = key.iter().fold(0, |hash, part| mix(hash, *part));
        let at = hash as usize & (self.entries.len() - 1);
        match &self.entries[at] {
            entry if entry.key == key => Ok(&entry.ids[..entry.n as usize]),
            _ => Err(Place(Some((at, key)))),
        }
    }

    /// Remembers the ids of a word that was not found.
    pub fn keep(&mut self, place: Place, ids: &[u32]) {
        let Some((at, key)) = place.0 else { return };
        if ids.len() <= IDS_MAX {
            let mut entry = Entry { key, n: ids.len() as u32, ..Entry::default() };
            entry.ids[..ids.len()].copy_from_slice(ids);
            self.entries[at] = entry;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_differ_in_length_or_in_zeros_are_told_apart() {
        let mut cache = WordCache::new(0);
        for (word, ids) in [(&b"a"[..], [1]), (b"a\0", [2]), (b"", [3]), (b"\0", [4])] {
            let place = cache.find(word).unwrap_err();
            cache.keep(place, &ids);
            assert_eq!(cache.find(word).ok(), Some(&ids[..]));
        }
        assert!(cache.find(b"a").is_err(), "there is one place, and others took it");
    }

    #[test]
    fn long_words_and_many_ids_are_not_kept() {
        let mut cache = WordCache::new(1 << 20);
        for (word, n) in [(vec![b'x'; 24], 1), (b"x".to_vec(), 6)] {
            let place = cache.find(&word).unwrap_err();
            cache.keep(place, &vec![7; n]);
            assert!(cache.find(&word).is_err());
        }
    }
}
