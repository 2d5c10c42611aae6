//! The table seen from outside: counts, one character per page, one line per page.

use std::fmt;

use pagella_backend::PAGE_TOKENS;

use super::key::{PageKey, Parent};
use super::table::{PageIdx, PageTable};

/// How many pages are in which state. `free + cached + referenced = total`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, serde::Serialize)]
pub struct PageCounts {
    /// All pages.
    pub total: usize,
    /// Empty, and nobody uses them.
    pub free: usize,
    /// Nobody uses them, but they hold something that can be found.
    pub cached: usize,
    /// In use.
    pub referenced: usize,
    /// In use by more than one sequence.
    pub shared: usize,
    /// Holding something, but not full; in use or not.
    pub partial: usize,
}

/// One page, described.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageInfo {
    /// Physical index.
    pub index: PageIdx,
    /// How many sequences use it.
    pub refs: usize,
    /// Its key, if its final content is known.
    pub key: Option<PageKey>,
    /// What comes before it.
    pub parent: Parent,
    /// How many of its slots are valid.
    pub fill: usize,
    /// When it was last handed out, in pages handed out.
    pub stamp: u64,
}

impl fmt::Display for PageInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |key: PageKey| key.to_string()[..8].to_owned();
        let key = self.key.map_or_else(|| "-".to_owned(), short);
        let parent = match self.parent {
            Parent::Root(_) => "root".to_owned(),
            Parent::Page(key) => short(key),
            Parent::Detached => "-".to_owned(),
        };
        let Self { index, refs, fill, stamp, .. } = self;
        write!(f, "{index:5}  refs {refs:3}  key {key:8}  after {parent:8}  fill {fill:3}  ")?;
        write!(f, "stamp {stamp}")
    }
}

impl PageTable {
    /// How many pages are in which state.
    pub fn counts(&self) -> PageCounts {
        let mut counts = PageCounts { total: self.n_pages(), ..PageCounts::default() };
        for record in &self.pages {
            counts.free += usize::from(record.refs == 0 && record.ids.is_empty());
            counts.cached += usize::from(record.refs == 0 && !record.ids.is_empty());
            counts.referenced += usize::from(record.refs > 0);
            counts.shared += usize::from(record.refs > 1);
            counts.partial += usize::from((1..PAGE_TOKENS).contains(&record.ids.len()));
        }
        counts
    }

    /// One character per physical page: `.` if nobody uses it, else the number of users, `+` for ten
    /// or more; `#` marks a page that the order of eviction has wrongly lost or kept.
    pub fn map(&self) -> String {
        let mark = |record: &super::record::Page| match (record.refs, record.rank) {
            (0, Some(_)) => '.',
            (refs @ 1..=9, None) => char::from_digit(refs, 10).unwrap_or('#'),
            (10.., None) => '+',
            _ => '#',
        };
        self.pages.iter().map(mark).collect()
    }

    /// One sign per physical page, as far as the table knows: `.` empty, `c` cached and full, `p`
    /// cached in part, `r` in use and full, `f` promised by a prompt, `g` written in part, `d`
    /// reserved, `#` wrongly in or out of the order of eviction.
    pub(crate) fn signs(&self) -> Vec<char> {
        let sign = |record: &super::record::Page| match (record.refs, record.rank) {
            (0, None) | (1.., Some(_)) => '#',
            (0, _) if record.ids.is_empty() => '.',
            (0, _) if record.is_full() => 'c',
            (0, _) => 'p',
            _ if record.is_full() => 'r',
            _ if record.key.is_some() => 'f',
            _ if record.ids.is_empty() => 'd',
            _ => 'g',
        };
        self.pages.iter().map(sign).collect()
    }

    /// Every page, by physical index.
    pub fn describe(&self) -> Vec<PageInfo> {
        let info = |(index, record): (PageIdx, &super::record::Page)| PageInfo {
            index,
            refs: record.refs as usize,
            key: record.key,
            parent: record.parent,
            fill: record.ids.len(),
            stamp: record.stamp,
        };
        (0..).zip(&self.pages).map(info).collect()
    }
}
