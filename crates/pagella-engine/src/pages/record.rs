//! What the table remembers about one page.

use pagella_backend::PAGE_TOKENS;

use super::evict::Rank;
use super::key::{PageKey, Parent};

/// One page. Its place in the table's list is its physical index.
#[derive(Clone, Debug)]
pub(super) struct Page {
    /// How many sequences use it.
    pub refs: u32,
    /// Known if the content is final: already there (sealed) or promised by a prompt.
    pub key: Option<PageKey>,
    /// What comes before the page.
    pub parent: Parent,
    /// The ids whose keys and values are in the page, from its first slot on.
    pub ids: Vec<u32>,
    /// When it was last handed out, in pages handed out by the table.
    pub stamp: u64,
    /// What it held before it became a reservation; there until its first write.
    /// Invariant: then `refs == 1`, no key and no ids.
    pub former: Option<Box<Former>>,
    /// Its place in the order of eviction. Invariant: there exactly if `refs == 0`.
    pub rank: Option<Rank>,
}

/// What a reserved page held, and takes up again if it is never written.
#[derive(Clone, Debug)]
pub(super) struct Former {
    pub key: Option<PageKey>,
    pub parent: Parent,
    pub ids: Vec<u32>,
    pub stamp: u64,
}

impl Page {
    /// A page that holds nothing and that nobody uses.
    pub fn empty(stamp: u64) -> Self {
        let (key, former, rank) = (None, None, None);
        Self { refs: 0, key, parent: Parent::Detached, ids: Vec::new(), stamp, former, rank }
    }

    /// All slots are valid, keyed or not.
    pub fn is_full(&self) -> bool {
        self.ids.len() == PAGE_TOKENS
    }

    /// Full and keyed: never written again.
    pub fn is_sealed(&self) -> bool {
        self.key.is_some() && self.is_full()
    }

    /// Forgets content, key and parent.
    pub fn clear(&mut self) {
        self.key = None;
        self.parent = Parent::Detached;
        self.ids = Vec::new();
        self.former = None;
    }
}
