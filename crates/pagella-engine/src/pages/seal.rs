//! A page of generated ids becomes final: it gets its key, or gives way to a page that has it.

use super::event::PageEvent;
use super::key::{PageKey, Parent};
use super::table::{PageIdx, PageTable};

/// What became of a page that was sealed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sealed {
    /// The key of its content.
    pub key: PageKey,
    /// The page that the sequence uses from now on, in place of the one it had.
    pub page: PageIdx,
}

impl PageTable {
    /// Seals a full page whose ids are final and whose parent is known, and makes it the parent of
    /// the `next` page of its sequence.
    ///
    /// If another page has the content already, that one is shared and ours is given back. If the
    /// content is only promised by another page, ours stays as it is, without a key. Sealing a
    /// sealed page only tells `next` its parent.
    pub fn seal(&mut self, page: PageIdx, next: Option<PageIdx>) -> Sealed {
        let record = self.at(page);
        assert!(record.refs > 0 && record.is_full(), "page {page} is not a full page in use");
        assert!(record.parent != Parent::Detached, "page {page} has no known parent");
        let key = record.key.or_else(|| PageKey::below(record.parent, &record.ids));
        let key = key.expect("the parent is known");

        let page = match self.find(key) {
            Some(holder) if holder == page => page,
            Some(holder) if self.is_sealed(holder) && self.refs(page) == 1 => {
                self.replace(page, holder);
                holder
            }
            // Promised elsewhere, or others use our page: two pages with one content.
            Some(_) => page,
            None => {
                self.edit(page, |record| record.key = Some(key));
                self.log.push(PageEvent::Sealed { page, key });
                page
            }
        };
        if let Some(next) = next {
            self.follow(next, Parent::Page(key));
        }
        Sealed { key, page }
    }

    /// Gives `page` up for `kept`, which has the same content.
    fn replace(&mut self, page: PageIdx, kept: PageIdx) {
        let stamp = self.next_serial();
        self.edit(kept, |record| {
            record.refs += 1;
            record.stamp = stamp;
        });
        self.edit(page, |record| {
            record.clear();
            record.refs = 0;
        });
        self.refresh_ancestors(self.parent(kept), stamp);
        self.log.push(PageEvent::Deduplicated { page, kept });
    }

    /// Tells `next` what comes before it.
    fn follow(&mut self, next: PageIdx, parent: Parent) {
        if self.parent(next) == parent {
            return;
        }
        debug_assert!(self.key(next).is_none(), "page {next} is keyed under another parent");
        self.edit(next, |record| record.parent = parent);
        self.refresh_ancestors(parent, self.at(next).stamp);
    }
}
