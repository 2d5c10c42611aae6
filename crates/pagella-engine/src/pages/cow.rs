//! Copy on write: whoever wants to change a page that others rely on gets a copy of its start.

use super::event::PageEvent;
use super::table::{PageIdx, PageTable};

/// Where a sequence may write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Writable {
    /// In the page itself.
    Own,
    /// In `to`, which stands for the old page from now on. The caller copies the kept slots of
    /// every layer, before anything else happens to the table.
    Copy {
        /// The new page.
        to: PageIdx,
    },
}

impl PageTable {
    /// A page like `page`, with its first `keep` ids, that the caller may append to; the caller's
    /// reference moves to it. `None`, and no change, if that takes a page and none is left.
    ///
    /// A sealed page that nobody else uses is rewritten in place, and lost to the cache, rather than
    /// refused: a job that reserved all its pages never fails for want of one more.
    ///
    /// If the page was sealed, see [`PageTable::truncate`] about the pages after it.
    pub fn make_writable(&mut self, page: PageIdx, keep: usize) -> Option<Writable> {
        let record = self.at(page);
        let fill = record.ids.len();
        assert!(record.refs > 0, "page {page} is not in use");
        assert!(keep <= fill, "page {page} has fewer than {keep} ids");
        let is_final = match record.key {
            // A promised page may be continued, but not be taken back.
            Some(_) => record.is_full() || keep < fill,
            None => record.refs > 1,
        };
        if !is_final {
            self.truncate(page, keep);
            return Some(Writable::Own);
        }
        if self.n_unreferenced() == 0 && record.refs == 1 {
            self.reopen(page, keep);
            return Some(Writable::Own);
        }
        let to = self.grow(record.parent)?;
        self.begin_write(to);
        let kept = self.ids(page)[..keep].to_vec();
        self.at_mut(to).ids = kept;
        self.log.push(PageEvent::Copied { from: page, to });
        self.release(page);
        Some(Writable::Copy { to })
    }

    /// Makes a keyed page with one user a unique one.
    fn reopen(&mut self, page: PageIdx, keep: usize) {
        let key = self.key(page);
        self.edit(page, |record| {
            record.key = None;
            record.ids.truncate(keep);
        });
        self.evictions += 1;
        self.log.push(PageEvent::Evicted { page, key });
    }
}
