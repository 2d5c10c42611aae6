//! The table itself: page records, and the indexes that find them.
//!
//! Records change in [`PageTable::edit`] wherever key, parent or references are concerned, so the
//! indexes cannot fall behind. Everything else about pages is in the files beside this one.

use std::collections::{BTreeSet, HashMap};

use super::event::{EventLog, PageEvent};
use super::evict::Rank;
use super::key::{PageKey, Parent};
use super::record::Page;

/// A physical page: where its keys and values lie. It changes only in defragmentation.
pub type PageIdx = u32;

/// All pages of one key/value cache.
#[derive(Clone, Debug)]
pub struct PageTable {
    /// By physical index.
    pub(super) pages: Vec<Page>,
    /// Every page with a key, sealed or promised.
    pub(super) by_key: HashMap<PageKey, PageIdx>,
    /// The pages right after a parent, without those whose parent is not known. No empty sets.
    pub(super) children: HashMap<Parent, BTreeSet<PageIdx>>,
    /// Unreferenced pages, the next victim first.
    pub(super) ranks: BTreeSet<Rank>,
    /// Pages handed out so far, plus `n_pages`: initial stamps are the physical indices.
    pub(super) serial: u64,
    /// `serial` at the last attempt to defragment.
    pub(super) defragmented_at: u64,
    /// Cached content that made room for other, so far.
    pub(super) evictions: u64,
    pub(super) log: EventLog,
}

impl PageTable {
    /// A table of `n_pages` empty pages.
    pub fn new(n_pages: usize) -> Self {
        assert!(u32::try_from(n_pages).is_ok(), "{n_pages} pages do not fit a 32-bit page index");
        let mut table = Self {
            pages: (0..n_pages as u64).map(Page::empty).collect(),
            by_key: HashMap::new(),
            children: HashMap::new(),
            ranks: BTreeSet::new(),
            serial: n_pages as u64,
            defragmented_at: n_pages as u64,
            evictions: 0,
            log: EventLog::default(),
        };
        table.rebuild();
        table
    }

    /// Forgets everything that is cached. Does nothing and returns `false` if a page is in use.
    pub fn reset(&mut self) -> bool {
        if self.n_unreferenced() != self.n_pages() {
            return false;
        }
        let mut log = std::mem::take(&mut self.log);
        log.push(PageEvent::Reset);
        *self = Self { log, evictions: self.evictions, ..Self::new(self.n_pages()) };
        true
    }

    /// How many pages there are.
    pub fn n_pages(&self) -> usize {
        self.pages.len()
    }

    /// How many pages nobody uses, cached or empty.
    pub fn n_unreferenced(&self) -> usize {
        self.ranks.len()
    }

    /// Starts at the number of pages and grows by one with each page handed out.
    pub fn access_serial(&self) -> u64 {
        self.serial
    }

    /// How often cached content made room for other.
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// How many sequences use the page.
    pub fn refs(&self, page: PageIdx) -> usize {
        self.at(page).refs as usize
    }

    /// The number of leading slots whose keys and values are valid.
    pub fn fill(&self, page: PageIdx) -> usize {
        self.at(page).ids.len()
    }

    /// The ids of the valid slots.
    pub fn ids(&self, page: PageIdx) -> &[u32] {
        &self.at(page).ids
    }

    /// The page's key, if its final content is known.
    pub fn key(&self, page: PageIdx) -> Option<PageKey> {
        self.at(page).key
    }

    /// What comes before the page.
    pub fn parent(&self, page: PageIdx) -> Parent {
        self.at(page).parent
    }

    /// The page has a key and all its content. It is never written again.
    pub fn is_sealed(&self, page: PageIdx) -> bool {
        self.at(page).is_sealed()
    }

    /// The page has a key, but not all its content yet.
    pub fn is_promised(&self, page: PageIdx) -> bool {
        let record = self.at(page);
        record.key.is_some() && !record.is_full()
    }

    pub(super) fn at(&self, page: PageIdx) -> &Page {
        &self.pages[page as usize]
    }

    pub(super) fn at_mut(&mut self, page: PageIdx) -> &mut Page {
        &mut self.pages[page as usize]
    }

    /// The next stamp, for a page that is being handed out.
    pub(super) fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Changes a record and keeps the indexes in step.
    pub(super) fn edit(&mut self, page: PageIdx, change: impl FnOnce(&mut Page)) {
        self.unlink(page);
        change(self.at_mut(page));
        self.link(page);
    }

    /// Builds all indexes from the records.
    pub(super) fn rebuild(&mut self) {
        self.by_key.clear();
        self.children.clear();
        self.ranks.clear();
        for record in &mut self.pages {
            record.rank = None;
        }
        for page in 0..self.pages.len() as PageIdx {
            self.link(page);
        }
    }

    fn unlink(&mut self, page: PageIdx) {
        let (key, parent) = (self.at(page).key, self.at(page).parent);
        if let Some(key) = key {
            self.by_key.remove(&key);
        }
        if let Some(siblings) = self.children.get_mut(&parent) {
            siblings.remove(&page);
            if siblings.is_empty() {
                self.children.remove(&parent);
                self.rerank_parent(parent);
            }
        }
    }

    fn link(&mut self, page: PageIdx) {
        let (key, parent) = (self.at(page).key, self.at(page).parent);
        if let Some(key) = key {
            let other = self.by_key.insert(key, page);
            debug_assert!(other.is_none_or(|other| other == page), "key {key} twice");
        }
        if parent != Parent::Detached {
            let siblings = self.children.entry(parent).or_default();
            siblings.insert(page);
            if siblings.len() == 1 {
                self.rerank_parent(parent);
            }
        }
        self.rerank(page);
    }

    /// A page with its first child, or without its last one, changes its class.
    fn rerank_parent(&mut self, parent: Parent) {
        if let Some(page) = self.page_before(parent) {
            self.rerank(page);
        }
    }
}
