//! Which page is given up next.
//!
//! Leaf first: the head of a prefix is what other prompts share, so it outlives its tail. All
//! unreferenced pages stand in one ordered set, so that finding a victim does not search.

use super::event::PageEvent;
use super::key::{PageKey, Parent};
use super::record::Page;
use super::table::{PageIdx, PageTable};

/// How much is lost with a page; the least comes first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Class {
    /// Holds nothing.
    Empty,
    /// Not full, so only a copy of its start can be reused.
    Partial,
    /// Full, and no page names it as parent.
    Leaf,
    /// Full, with pages after it that are of little use without it.
    Inner,
}

/// Place in the order of eviction: by class, then by age, then by physical index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Rank {
    pub class: Class,
    /// The page's stamp. Empty pages have no age: they are used from the lowest index upward,
    /// which keeps sequences together.
    pub age: u64,
    pub page: PageIdx,
}

impl PageTable {
    /// The page to be given up next, if any page is unreferenced.
    pub(super) fn victim(&self) -> Option<PageIdx> {
        self.ranks.first().map(|rank| rank.page)
    }

    /// Forgets everything that is cached and that nobody uses, also what reserved pages would take
    /// up again. Returns how many pages are empty that were not.
    pub fn forget_unused(&mut self) -> usize {
        let mut forgotten = 0;
        for page in 0..self.n_pages() as PageIdx {
            let record = self.at(page);
            let cached = record.refs == 0 && !record.ids.is_empty();
            if cached {
                self.edit(page, Page::clear);
                self.log.push(PageEvent::Emptied { page });
                forgotten += 1;
            } else if record.former.is_some() {
                self.edit(page, |record| record.former = None);
            }
        }
        forgotten
    }

    /// Where `page` belongs in the order of eviction; `None` while it is referenced.
    pub(super) fn rank(&self, page: PageIdx) -> Option<Rank> {
        let record = self.at(page);
        if record.refs > 0 {
            return None;
        }
        let class = match record.key {
            _ if record.ids.is_empty() => Class::Empty,
            Some(key) if !self.children.contains_key(&Parent::Page(key)) => Class::Leaf,
            Some(_) => Class::Inner,
            None => Class::Partial,
        };
        let age = if class == Class::Empty { 0 } else { record.stamp };
        Some(Rank { class, age, page })
    }

    /// Puts `page` where it belongs in the order of eviction.
    pub(super) fn rerank(&mut self, page: PageIdx) {
        let rank = self.rank(page);
        let old = std::mem::replace(&mut self.at_mut(page).rank, rank);
        if old != rank {
            if let Some(old) = old {
                self.ranks.remove(&old);
            }
            self.ranks.extend(rank);
        }
    }

    /// Marks every cached page before a page with this parent as used at `stamp`, so that a prefix
    /// is as young as the youngest page that continues it.
    pub(super) fn refresh_ancestors(&mut self, mut parent: Parent, stamp: u64) {
        while let Some(page) = self.page_before(parent) {
            let record = self.at_mut(page);
            record.stamp = record.stamp.max(stamp);
            parent = record.parent;
            self.rerank(page);
        }
    }

    /// The page that `parent` names, if it is in the cache.
    pub(super) fn page_before(&self, parent: Parent) -> Option<PageIdx> {
        let key: PageKey = match parent {
            Parent::Page(key) => key,
            Parent::Root(_) | Parent::Detached => return None,
        };
        self.find(key)
    }
}
