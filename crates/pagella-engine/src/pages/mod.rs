//! The page table: who uses which page of the key/value cache, and what each page holds.
//!
//! A page is [`PAGE_TOKENS`](pagella_backend::PAGE_TOKENS) consecutive positions of one sequence. A
//! full page is known by its [`PageKey`], a hash of its ids and of everything before them, so equal
//! prefixes meet in the same page whoever computed them. What nobody uses stays as a cache until its
//! room is needed.
//!
//! A page in use is one of three things:
//!
//! * **promised**: a whole page of a prompt. Its key is published before its content is there, so
//!   several sequences share it and whoever comes first fills it;
//! * **unique**: room for ids not known yet, written by one sequence. Until its first write it keeps
//!   what it cached before, and takes that up again if it is never reached;
//! * **sealed**: full and keyed. Nobody writes it any more.
//!
//! The table is data about pages and never touches keys and values. It tells its caller what to
//! copy ([`PageTable::partial_match`], [`PageTable::make_writable`]) or to move ([`Moves`]), and is
//! told what was written. Everything it decides is deterministic.
//!
//! Always true, and verified by [`PageTable::check`]: a page is either referenced or in the order of
//! eviction; keys are unique; a sealed page's key is the hash of its parent and its ids; a page
//! without a known parent is never found.

mod check;
mod claim;
mod cow;
mod defrag;
mod event;
mod evict;
mod key;
mod lookup;
mod map;
mod record;
mod release;
mod restore;
mod seal;
mod table;
#[cfg(test)]
mod tests;
mod write;

pub use claim::SequenceNeed;
pub use cow::Writable;
pub use defrag::Moves;
pub use event::PageEvent;
pub use key::{Namespace, PageKey, Parent};
pub use map::{PageCounts, PageInfo};
pub use seal::Sealed;
pub use table::{PageIdx, PageTable};
