//! What is in the cache already, and what a job would still need.

use std::collections::HashSet;

use super::claim::SequenceNeed;
use super::key::{PageKey, Parent};
use super::table::{PageIdx, PageTable};

impl PageTable {
    /// The page with this key, sealed or promised.
    pub fn find(&self, key: PageKey) -> Option<PageIdx> {
        self.by_key.get(&key).copied()
    }

    /// How many unreferenced pages [`PageTable::open`] would take.
    ///
    /// A page that somebody uses costs nothing, which is why many jobs over one long prompt fit in
    /// a small cache. A page that is cached but free counts: it leaves the pool.
    pub fn need(&self, sequences: &[SequenceNeed<'_>]) -> usize {
        let keys: HashSet<PageKey> = sequences.iter().flat_map(|s| s.keys).copied().collect();
        let in_use = |key: &PageKey| self.find(*key).is_some_and(|page| self.refs(page) > 0);
        let n_keys = keys.iter().filter(|key| !in_use(key)).count();
        sequences.iter().map(|s| s.unique).fold(n_keys, usize::saturating_add)
    }

    /// The page from whose start most can be copied into `own`, which is about to hold `ids`, and
    /// how many slots; the lowest index among equals. `None` if nothing matches.
    ///
    /// Looks at the pages right after `own`'s parent, referenced or not.
    pub fn partial_match(&self, own: PageIdx, ids: &[u32]) -> Option<(PageIdx, usize)> {
        self.best_prefix(self.parent(own), ids, Some(own))
    }

    /// The page after `parent`, other than `except`, that begins with most of `ids`, and with how
    /// many.
    pub fn best_prefix(
        &self,
        parent: Parent,
        ids: &[u32],
        except: Option<PageIdx>,
    ) -> Option<(PageIdx, usize)> {
        if parent == Parent::Detached {
            return None;
        }
        let mut best = None;
        for &page in self.children.get(&parent)? {
            let n_equal = self.ids(page).iter().zip(ids).take_while(|(a, b)| a == b).count();
            if Some(page) != except && n_equal > best.map_or(0, |(_, n)| n) {
                best = Some((page, n_equal));
            }
        }
        best
    }
}
