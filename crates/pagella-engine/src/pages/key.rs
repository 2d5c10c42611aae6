//! What a page is called: a hash of its ids and of everything that came before them.
//!
//! `key = BLAKE2b-128(previous key ‖ ids as 64-bit little-endian integers)`. The first page of a
//! sequence has its namespace where later pages have the previous key, and nothing at all if the
//! namespace is empty.

use std::fmt;

use blake2::digest::consts::U16;
use blake2::{Blake2b, Digest};
use pagella_backend::PAGE_TOKENS;

/// Identifies a full page together with everything before it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageKey([u8; 16]);

impl PageKey {
    /// The key of a sequence's first page, of exactly `PAGE_TOKENS` ids.
    pub fn first(namespace: Namespace, ids: &[u32]) -> Self {
        Self::hash(namespace.0.as_ref(), ids)
    }

    /// The key of the page that follows this one, of exactly `PAGE_TOKENS` ids.
    pub fn after(self, ids: &[u32]) -> Self {
        Self::hash(Some(&self.0), ids)
    }

    /// The keys of all whole pages in `ids`, in order.
    pub fn chain(namespace: Namespace, ids: &[u32]) -> Vec<PageKey> {
        let mut keys: Vec<PageKey> = Vec::with_capacity(ids.len() / PAGE_TOKENS);
        for page in ids.chunks_exact(PAGE_TOKENS) {
            keys.push(match keys.last() {
                None => Self::first(namespace, page),
                Some(previous) => previous.after(page),
            });
        }
        keys
    }

    /// The key of a full page below `parent`; `None` if the parent is not known.
    pub fn below(parent: Parent, ids: &[u32]) -> Option<Self> {
        match parent {
            Parent::Root(namespace) => Some(Self::first(namespace, ids)),
            Parent::Page(previous) => Some(previous.after(ids)),
            Parent::Detached => None,
        }
    }

    /// The digest itself.
    pub fn bytes(self) -> [u8; 16] {
        self.0
    }

    /// A key that was stored or sent as bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    fn hash(before: Option<&[u8; 16]>, ids: &[u32]) -> Self {
        debug_assert_eq!(ids.len(), PAGE_TOKENS, "only whole pages have keys");
        let mut hasher = Blake2b::<U16>::new();
        if let Some(before) = before {
            hasher.update(before);
        }
        for &id in ids {
            hasher.update(i64::from(id).to_le_bytes());
        }
        Self(hasher.finalize().into())
    }
}

impl fmt::Display for PageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for PageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Everything besides ids that keys and values depend on: adapters with their scales, the rotation
/// of positions, the number format of the cache. Pages of different namespaces never match.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug)]
pub struct Namespace(Option<[u8; 16]>);

impl Namespace {
    /// Keys and values depend on ids alone.
    pub const EMPTY: Namespace = Namespace(None);

    /// The namespace of these labelled parts, in this order; without parts the empty one.
    ///
    /// Labels and values are hashed with their lengths, so no two lists run into each other.
    pub fn of(parts: &[(&str, &[u8])]) -> Self {
        if parts.is_empty() {
            return Self::EMPTY;
        }
        let mut hasher = Blake2b::<U16>::new();
        for (label, value) in parts {
            for bytes in [label.as_bytes(), value] {
                hasher.update((bytes.len() as u64).to_le_bytes());
                hasher.update(bytes);
            }
        }
        Self(Some(hasher.finalize().into()))
    }
}

/// What comes right before a page.
///
/// "Nothing comes before it" and "not known" are different things: a page of unknown origin that
/// passes for a first page hands foreign keys and values to whoever starts with its ids.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Parent {
    /// The page is the first of a sequence in this namespace.
    Root(Namespace),
    /// The page follows the page with this key.
    Page(PageKey),
    /// Not known, or not known yet. Such a page matches nothing.
    Detached,
}
