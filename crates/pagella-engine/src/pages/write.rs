//! What a page holds changes: ids are appended, taken back, or lose their place.
//!
//! The one rule: nobody writes a page that is sealed, or one that others use, unless it is promised
//! and what is written is the promise.

use pagella_backend::PAGE_TOKENS;

use super::event::PageEvent;
use super::key::{PageKey, Parent};
use super::table::{PageIdx, PageTable};

impl PageTable {
    /// Says that slots of this page are about to be overwritten, whatever becomes of it.
    ///
    /// Must come before a step or a copy that may touch the page, or else a reservation would take
    /// up its former content after a failed step, or after rejected draft ids, with other keys and
    /// values under it. A page written to before needs no second call.
    pub fn begin_write(&mut self, page: PageIdx) {
        let record = self.at_mut(page);
        assert!(record.refs > 0, "page {page} is not in use");
        if let Some(former) = record.former.take()
            && !former.ids.is_empty()
        {
            self.evictions += 1;
            self.log.push(PageEvent::Evicted { page, key: former.key });
        }
    }

    /// Appends ids whose keys and values are now in the page. A promised page that becomes full is
    /// sealed; a unique one waits for [`PageTable::seal`].
    pub fn write(&mut self, page: PageIdx, ids: &[u32]) {
        if ids.is_empty() {
            return;
        }
        let record = self.at(page);
        let fill = record.ids.len();
        assert!(!record.is_sealed(), "page {page} is sealed");
        assert!(record.key.is_some() || record.refs == 1, "page {page} has several writers");
        assert!(fill + ids.len() <= PAGE_TOKENS, "{fill} + {} ids in page {page}", ids.len());
        self.begin_write(page);
        let record = self.at_mut(page);
        if record.ids.capacity() < PAGE_TOKENS {
            record.ids.reserve_exact(PAGE_TOKENS - fill);
        }
        record.ids.extend_from_slice(ids);
        if let (Some(key), true) = (record.key, record.is_full()) {
            debug_assert_eq!(
                PageKey::below(record.parent, &record.ids),
                Some(key),
                "page {page} does not hold what it promised"
            );
            self.log.push(PageEvent::Sealed { page, key });
        }
    }

    /// Takes back all ids of a unique page from slot `fill` on.
    ///
    /// If the page was sealed before it was made writable, the pages after it in the same sequence
    /// must be [detached](PageTable::detach): what precedes them has changed.
    pub fn truncate(&mut self, page: PageIdx, fill: usize) {
        let record = self.at_mut(page);
        assert!(fill <= record.ids.len(), "page {page} has fewer than {fill} ids");
        if fill < record.ids.len() {
            assert!(record.key.is_none() && record.refs == 1, "page {page} is not ours to change");
            record.ids.truncate(fill);
        }
    }

    /// Forgets what precedes a unique page, until [`PageTable::seal`] tells it again.
    pub fn detach(&mut self, page: PageIdx) {
        let record = self.at(page);
        assert!(record.key.is_none() && record.refs == 1, "page {page} is not ours to change");
        self.edit(page, |record| record.parent = Parent::Detached);
    }
}
