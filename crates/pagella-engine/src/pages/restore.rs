//! Content from elsewhere (host memory, a file, another process) enters the cache.

use pagella_backend::PAGE_TOKENS;

use super::event::PageEvent;
use super::key::{PageKey, Parent};
use super::table::{PageIdx, PageTable};

impl PageTable {
    /// Takes an unreferenced page for content that the caller will put there, sealed if it is full.
    ///
    /// `None` if it is in the cache already, or if there is no page for it. The page before it is
    /// not given up: the two are useful only together.
    pub fn restore(&mut self, parent: Parent, ids: &[u32]) -> Option<PageIdx> {
        assert!(ids.len() <= PAGE_TOKENS, "{} ids do not fit a page", ids.len());
        if ids.is_empty() || parent == Parent::Detached || self.holds(parent, ids) {
            return None;
        }
        let before = self.page_before(parent);
        let page = self.ranks.iter().map(|rank| rank.page).find(|&page| Some(page) != before)?;
        let is_full = ids.len() == PAGE_TOKENS;
        let key = if is_full { PageKey::below(parent, ids) } else { None };
        let evicted = self.key(page);
        let stamp = self.serial;
        self.edit(page, |record| {
            record.key = key;
            record.parent = parent;
            record.ids = ids.to_vec();
            record.stamp = stamp;
        });
        self.refresh_ancestors(parent, stamp);
        self.log.push(PageEvent::Restored { page, evicted });
        Some(page)
    }

    /// Empties an unreferenced page, for content that did not arrive after all.
    pub fn forget(&mut self, page: PageIdx) {
        assert_eq!(self.refs(page), 0, "page {page} is in use");
        self.edit(page, |record| record.clear());
    }

    /// Some page after `parent` starts with `ids`, or is going to.
    fn holds(&self, parent: Parent, ids: &[u32]) -> bool {
        let promised = ids.len() == PAGE_TOKENS
            && PageKey::below(parent, ids).is_some_and(|key| self.find(key).is_some());
        let mut after = self.children.get(&parent).into_iter().flatten();
        promised || after.any(|&page| self.ids(page).starts_with(ids))
    }
}
