//! `Sequence`: the ids of one prompt and its continuation, and their place in the cache.
//!
//! Invariants: `kv ≤ ids.len()`; `pages` cover at least `kv` tokens; the first `keys.len()` pages
//! have these keys; page `i` holds ids `256·i ..` up to its fill mark, which for pages of this
//! sequence alone is where `kv` stands.

use pagella_backend::{AdapterUse, PAGE_TOKENS};

use crate::pages::{Namespace, PageIdx, PageKey, PageTable, Parent};

/// One sequence of a job.
#[derive(Clone, Debug)]
pub(crate) struct Sequence {
    /// Prompt and output so far.
    pub ids: Vec<u32>,
    /// Share in the mix of predictions.
    pub weight: f32,
    /// What else the keys and values depend on.
    pub namespace: Namespace,
    /// Adapters that its rows have; part of the namespace.
    pub adapters: Vec<AdapterUse>,
    /// Leading ids whose keys and values are in `pages`.
    pub kv: usize,
    /// Physical pages in order; empty while the job waits.
    pub pages: Vec<PageIdx>,
    /// Keys of the leading pages that are sealed or promised.
    pub keys: Vec<PageKey>,
}

impl Sequence {
    pub fn new(ids: Vec<u32>, weight: f32, namespace: Namespace) -> Self {
        let keys = Self::keys_of(&ids, ids.len(), namespace);
        let adapters = Vec::new();
        Sequence { ids, weight, namespace, adapters, kv: 0, pages: Vec::new(), keys }
    }

    /// Keys of the pages that lie entirely before the last id, which is always computed, and hold
    /// only ids that stay.
    fn keys_of(ids: &[u32], final_len: usize, namespace: Namespace) -> Vec<PageKey> {
        let certain = ids.len().saturating_sub(1).min(final_len);
        PageKey::chain(namespace, &ids[..certain / PAGE_TOKENS * PAGE_TOKENS])
    }

    /// All ids but the newest are in the cache.
    pub fn is_ready(&self) -> bool {
        self.kv + 1 >= self.ids.len()
    }

    /// Pages that `tokens` tokens need.
    pub fn pages_for(tokens: usize) -> usize {
        tokens.div_ceil(PAGE_TOKENS)
    }

    /// Tokens behind the newest id that the pages have room for. No page is taken for a guess.
    pub fn room(&self) -> usize {
        (self.pages.len() * PAGE_TOKENS).saturating_sub(self.ids.len())
    }

    /// Takes note of the pages the table gave, and of what they already hold. Returns the number of
    /// whole pages found filled.
    pub fn open(&mut self, pages: Vec<PageIdx>, table: &PageTable) -> usize {
        let full = |page: &&PageIdx| table.fill(**page) == PAGE_TOKENS;
        let cached = pages.iter().take(self.keys.len()).take_while(full).count();
        self.kv = cached * PAGE_TOKENS;
        self.pages = pages;
        cached
    }

    /// Gives all pages back; the ids stay, so that the sequence can be opened again. Ids from
    /// `final_len` on may still be taken back.
    pub fn close(&mut self, final_len: usize, table: &mut PageTable) {
        for page in std::mem::take(&mut self.pages) {
            table.release(page);
        }
        self.kv = 0;
        self.keys = Self::keys_of(&self.ids, final_len, self.namespace);
    }

    /// What the page after the last one has as its parent.
    pub fn next_parent(&self) -> Parent {
        self.parent(self.pages.len()).unwrap_or(Parent::Detached)
    }

    /// What comes before the page with this index; `None` if that is not certain yet.
    pub fn parent(&self, idx: usize) -> Option<Parent> {
        match idx.checked_sub(1) {
            None => Some(Parent::Root(self.namespace)),
            Some(before) => self.keys.get(before).map(|&key| Parent::Page(key)),
        }
    }

    /// The position after `kv` up to which someone else has computed the pages this sequence shares,
    /// where `fill` tells how many slots of a page are valid.
    pub fn filled_until(&self, mut kv: usize, fill: impl Fn(PageIdx) -> usize) -> usize {
        let end = self.ids.len().saturating_sub(1);
        // Only pages with a key are known to hold this sequence's ids.
        while let Some(&page) =
            self.pages[..self.keys.len().min(self.pages.len())].get(kv / PAGE_TOKENS)
            && kv < end
        {
            let filled = kv / PAGE_TOKENS * PAGE_TOKENS + fill(page);
            if filled <= kv {
                break;
            }
            kv = filled.min(end);
        }
        kv
    }

    /// Says that the next `n` tokens are about to be written to their pages.
    pub fn begin_write(&self, n: usize, table: &mut PageTable) {
        let pages = self.kv / PAGE_TOKENS..Self::pages_for(self.kv + n);
        self.pages[pages].iter().for_each(|page| table.begin_write(*page));
    }

    /// Records that the step computed `n` more ids.
    pub fn commit(&mut self, n: usize, table: &mut PageTable) {
        let end = self.kv + n;
        while self.kv < end {
            let idx = self.kv / PAGE_TOKENS;
            let stop = end.min((idx + 1) * PAGE_TOKENS);
            table.write(self.pages[idx], &self.ids[self.kv..stop]);
            self.kv = stop;
        }
    }

    /// Records which of the guesses that a step computed from position `start` on became ids, and
    /// returns how many. The newest id stays out of the cache, as always.
    pub fn commit_guesses(
        &mut self,
        start: usize,
        guesses: &[u32],
        table: &mut PageTable,
    ) -> usize {
        if self.kv != start {
            return 0; // The job went back to before them.
        }
        let came = self.ids.get(start..).unwrap_or_default();
        let same = guesses.iter().zip(came).take_while(|(a, b)| a == b).count();
        let committed = same.min(came.len().saturating_sub(1));
        self.commit(committed, table);
        committed
    }

    /// Forgets ids from `len` on. Pages follow with [`Sequence::truncate_pages`].
    pub fn truncate(&mut self, len: usize) {
        self.ids.truncate(len);
        self.kv = self.kv.min(len);
    }

    /// Lets the fill marks of this sequence's own pages follow `kv` after a truncation.
    pub fn truncate_pages(&mut self, table: &mut PageTable) {
        for (idx, &page) in self.pages.iter().enumerate().skip(self.keys.len()) {
            let fill = self.kv.saturating_sub(idx * PAGE_TOKENS).min(PAGE_TOKENS);
            if table.fill(page) > fill {
                table.truncate(page, fill);
            }
        }
    }

    /// Seals the pages that are full and hold nothing at or after `final_len`.
    pub fn seal(&mut self, final_len: usize, table: &mut PageTable) {
        let end = self.kv.min(final_len);
        while (self.keys.len() + 1) * PAGE_TOKENS <= end {
            let idx = self.keys.len();
            let sealed = table.seal(self.pages[idx], self.pages.get(idx + 1).copied());
            self.pages[idx] = sealed.page;
            self.keys.push(sealed.key);
        }
    }

    /// Checks that the pages hold this sequence's ids under the right parents.
    pub fn check(&self, table: &PageTable) -> Result<(), String> {
        for (idx, &page) in self.pages.iter().enumerate() {
            let begins = idx * PAGE_TOKENS;
            let n = self.kv.saturating_sub(begins).min(PAGE_TOKENS);
            let own = self.ids.get(begins..begins + n).unwrap_or_default();
            if n > 0 && table.ids(page).get(..n) != Some(own) {
                return Err(format!("page {page} does not hold ids {begins}.. of its sequence"));
            }
            let expected = self.parent(idx).unwrap_or(Parent::Detached);
            if table.parent(page) != expected {
                return Err(format!(
                    "page {page} has parent {:?}, not {expected:?}",
                    table.parent(page)
                ));
            }
        }
        Ok(())
    }
}
