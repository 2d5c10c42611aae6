//! What must always be true of the table, written down once; tests and debug builds call it.

use std::collections::HashSet;

use pagella_backend::PAGE_TOKENS;

use super::key::{PageKey, Parent};
use super::table::{PageIdx, PageTable};

/// The error with this text unless the condition holds.
macro_rules! ensure {
    ($holds:expr, $($text:tt)+) => {
        if !$holds {
            return Err(format!($($text)+));
        }
    };
}

impl PageTable {
    /// Verifies every invariant that the table can see by itself, and says which one is broken.
    pub fn check(&self) -> Result<(), String> {
        for page in 0..self.n_pages() as PageIdx {
            self.check_content(page)?;
            self.check_rest(page)?;
            self.check_indexes(page)?;
        }
        // Each record was found where it belongs; equal sizes leave no room for anything else.
        let n_unreferenced = self.pages.iter().filter(|record| record.refs == 0).count();
        let n_keys = self.pages.iter().filter(|record| record.key.is_some()).count();
        let n_children =
            self.pages.iter().filter(|record| record.parent != Parent::Detached).count();
        ensure!(self.ranks.len() == n_unreferenced, "the order of eviction has strangers");
        ensure!(self.by_key.len() == n_keys, "the index of keys has strangers");
        let n_indexed: usize = self.children.values().map(|set| set.len()).sum();
        ensure!(n_indexed == n_children, "the index of children has strangers");
        let no_empty_set = self.children.values().all(|set| !set.is_empty());
        ensure!(no_empty_set, "the index of children keeps an empty set");
        Ok(())
    }

    /// Verifies that every page is referenced as often as it occurs in the page lists of sequences,
    /// and at most once in each.
    pub fn check_references(&self, lists: &[&[PageIdx]]) -> Result<(), String> {
        let mut n_found = vec![0; self.n_pages()];
        for list in lists {
            let mut seen = HashSet::new();
            for &page in *list {
                ensure!((page as usize) < self.n_pages(), "page {page} does not exist");
                ensure!(seen.insert(page), "page {page} is twice in one sequence");
                n_found[page as usize] += 1;
            }
        }
        for (page, &n_found) in (0..).zip(&n_found) {
            let refs = self.refs(page);
            ensure!(refs == n_found, "page {page}: {refs} references, {n_found} users");
        }
        Ok(())
    }

    /// A sealed page is keyed by its content; what goes with it for pages that are not sealed.
    fn check_content(&self, page: PageIdx) -> Result<(), String> {
        let record = self.at(page);
        ensure!(record.ids.len() <= PAGE_TOKENS, "page {page} holds more than a page");
        if record.is_sealed() {
            let key = PageKey::below(record.parent, &record.ids);
            ensure!(record.key == key, "page {page}: key is not that of its content");
        }
        if record.key.is_some() {
            ensure!(record.parent != Parent::Detached, "page {page}: keyed but detached");
        }
        if record.former.is_some() {
            let untouched = record.refs == 1 && record.key.is_none() && record.ids.is_empty();
            ensure!(untouched, "page {page}: written, and could still revert");
        }
        Ok(())
    }

    /// A page without users is sealed, partial with a known parent, or empty.
    fn check_rest(&self, page: PageIdx) -> Result<(), String> {
        let record = self.at(page);
        if record.refs > 0 {
            return Ok(());
        }
        let is_known = record.parent != Parent::Detached;
        let is_keyed = record.key.is_some();
        ensure!(record.former.is_none(), "page {page}: a reservation without a user");
        ensure!(is_keyed == record.is_full(), "page {page}: cached with a promise or unsealed");
        ensure!(is_known != record.ids.is_empty(), "page {page}: detached, but not empty");
        Ok(())
    }

    /// Each index has the record, and has it right.
    fn check_indexes(&self, page: PageIdx) -> Result<(), String> {
        let record = self.at(page);
        ensure!(record.rank == self.rank(page), "page {page}: rank is out of date");
        let is_ranked = record.rank.is_none_or(|rank| self.ranks.contains(&rank));
        ensure!(is_ranked, "page {page}: missing in the order of eviction");
        let is_found = record.key.is_none_or(|key| self.find(key) == Some(page));
        ensure!(is_found, "page {page}: not found by its key");
        let is_child = record.parent == Parent::Detached
            || self.children.get(&record.parent).is_some_and(|set| set.contains(&page));
        ensure!(is_child, "page {page}: missing among the children of its parent");
        Ok(())
    }
}
