//! Pages for a sequence: found by key, or taken from the cache.

use super::event::PageEvent;
use super::key::{Namespace, PageKey, Parent};
use super::record::Former;
use super::table::{PageIdx, PageTable};

/// The pages one sequence needs when its job starts.
#[derive(Clone, Copy, Debug)]
pub struct SequenceNeed<'a> {
    /// What the sequence's keys and values depend on besides ids.
    pub namespace: Namespace,
    /// The whole pages of its prompt, from its start on.
    pub keys: &'a [PageKey],
    /// How many pages follow them, for ids not known yet.
    pub unique: usize,
}

impl PageTable {
    /// The page lists of the sequences of one job, or `None` and no change if the unreferenced pages
    /// do not suffice.
    ///
    /// Prompt pages that nobody has become promised. The first page for unknown ids follows the last
    /// prompt page; those after it are detached until [`PageTable::seal`] tells what precedes them.
    pub fn open(&mut self, sequences: &[SequenceNeed<'_>]) -> Option<Vec<Vec<PageIdx>>> {
        if self.need(sequences) > self.n_unreferenced() {
            return None;
        }
        // First all hits, then the claims: a claim must not evict what a later page finds.
        let hits: Vec<Vec<Option<PageIdx>>> = sequences
            .iter()
            .map(|sequence| sequence.keys.iter().map(|&key| self.pin(key)).collect())
            .collect();
        sequences.iter().zip(&hits).map(|(sequence, hits)| self.open_one(sequence, hits)).collect()
    }

    /// One more page for ids not known yet, or `None` if every page is in use.
    pub fn grow(&mut self, parent: Parent) -> Option<PageIdx> {
        let page = self.claim_unique(parent)?;
        self.refresh_ancestors(parent, self.at(page).stamp);
        Some(page)
    }

    /// One more reference to a page that is in use, for a sequence that continues another one's
    /// ids. Before either writes it, [`PageTable::make_writable`] gives it a page of its own.
    ///
    /// Empty unique pages are not shared: the sequences may part before they reach it, and a page
    /// has one parent.
    pub fn share(&mut self, page: PageIdx) {
        assert!(self.refs(page) > 0, "page {page} is not in use");
        assert!(self.key(page).is_some() || self.fill(page) > 0, "page {page} holds nothing");
        let stamp = self.next_serial();
        self.edit(page, |record| {
            record.refs += 1;
            record.stamp = stamp;
        });
        let key = self.key(page);
        self.log.push(PageEvent::Shared { page, key });
    }

    /// `hits` are the pages already pinned, one for each key.
    fn open_one(
        &mut self,
        sequence: &SequenceNeed<'_>,
        hits: &[Option<PageIdx>],
    ) -> Option<Vec<PageIdx>> {
        let mut list = Vec::with_capacity(sequence.keys.len() + sequence.unique);
        let mut parent = Parent::Root(sequence.namespace);
        for (&key, &hit) in sequence.keys.iter().zip(hits) {
            // What was not there before may have been promised by this very call.
            let page = match hit.or_else(|| self.pin(key)) {
                Some(page) => {
                    let stamp = self.next_serial();
                    self.at_mut(page).stamp = stamp;
                    page
                }
                None => self.claim_promised(parent, key)?,
            };
            debug_assert_eq!(self.parent(page), parent, "the keys of a prompt are a chain");
            list.push(page);
            parent = Parent::Page(key);
        }
        let end = parent;
        for _ in 0..sequence.unique {
            list.push(self.claim_unique(parent)?);
            parent = Parent::Detached;
        }
        self.refresh_ancestors(end, self.serial);
        Some(list)
    }

    /// One more reference to the page with this key, if it is there.
    fn pin(&mut self, key: PageKey) -> Option<PageIdx> {
        let page = self.find(key)?;
        self.edit(page, |record| record.refs += 1);
        self.log.push(PageEvent::Shared { page, key: Some(key) });
        Some(page)
    }

    fn claim_promised(&mut self, parent: Parent, key: PageKey) -> Option<PageIdx> {
        let page = self.victim()?;
        let evicted = self.key(page);
        let stamp = self.next_serial();
        self.edit(page, |record| {
            record.clear();
            record.refs = 1;
            record.key = Some(key);
            record.parent = parent;
            record.stamp = stamp;
        });
        self.log.push(PageEvent::Promised { page, key, evicted });
        Some(page)
    }

    /// Takes the next victim for ids not known yet; its content is hidden until the first write.
    pub(super) fn claim_unique(&mut self, parent: Parent) -> Option<PageIdx> {
        let page = self.victim()?;
        let evicted = self.key(page);
        let stamp = self.next_serial();
        self.edit(page, |record| {
            record.former = Some(Box::new(Former {
                key: record.key.take(),
                parent: record.parent,
                ids: std::mem::take(&mut record.ids),
                stamp: record.stamp,
            }));
            record.refs = 1;
            record.parent = parent;
            record.stamp = stamp;
        });
        self.log.push(PageEvent::Claimed { page, evicted });
        Some(page)
    }
}
