//! A sequence gives a page back; what the page then holds is the prompt cache.

use super::event::PageEvent;
use super::key::{PageKey, Parent};
use super::record::Page;
use super::table::{PageIdx, PageTable};

/// What a page becomes when nobody uses it any more.
enum Rest {
    /// Sealed already: stays.
    Sealed,
    /// Full, and its content has no other page: gets its key.
    Seal(PageKey),
    /// Kept for the sake of its start. A promise is withdrawn.
    Partial,
    /// A reservation that was never written: becomes what it was.
    Revert,
    /// Nothing that could be found again.
    Empty,
}

impl PageTable {
    /// One reference less. With the last one the page becomes part of the cache, or empty.
    pub fn release(&mut self, page: PageIdx) {
        assert!(self.refs(page) > 0, "page {page} is not in use");
        let n_refs = self.at(page).refs - 1;
        self.log.push(PageEvent::Released { page, n_refs });
        if n_refs > 0 {
            self.edit(page, |record| record.refs = n_refs);
            return;
        }
        let rest = self.rest(page);
        self.edit(page, |record| {
            record.refs = 0;
            rest.apply(record);
        });
        match rest {
            Rest::Seal(key) => self.log.push(PageEvent::Sealed { page, key }),
            Rest::Revert => self.log.push(PageEvent::Reverted { page }),
            Rest::Empty => self.log.push(PageEvent::Emptied { page }),
            Rest::Sealed | Rest::Partial => {}
        }
    }

    fn rest(&self, page: PageIdx) -> Rest {
        let record = self.at(page);
        if let Some(former) = &record.former {
            let recreated = former.key.is_some_and(|key| self.find(key).is_some());
            return if recreated { Rest::Empty } else { Rest::Revert };
        }
        if record.is_sealed() {
            return Rest::Sealed;
        }
        // A page of unknown origin must not look like one that can be reused.
        if record.ids.is_empty() || record.parent == Parent::Detached {
            return Rest::Empty;
        }
        if !record.is_full() {
            return Rest::Partial;
        }
        match PageKey::below(record.parent, &record.ids) {
            Some(key) if self.find(key).is_none() => Rest::Seal(key),
            _ => Rest::Empty,
        }
    }
}

impl Rest {
    fn apply(&self, record: &mut Page) {
        match self {
            Rest::Sealed => {}
            Rest::Seal(key) => record.key = Some(*key),
            Rest::Partial => record.key = None,
            Rest::Empty => record.clear(),
            Rest::Revert => {
                if let Some(former) = record.former.take() {
                    record.key = former.key;
                    record.parent = former.parent;
                    record.ids = former.ids;
                    record.stamp = former.stamp;
                }
            }
        }
    }
}
