//! What happened to pages, in order, for dashboards and for finding out why something was recomputed.
//!
//! Recording is off unless asked for, and bounded: a log that nobody reads does not grow.

use super::key::PageKey;
use super::table::{PageIdx, PageTable};

/// Events kept between two calls of [`PageTable::take_events`].
const EVENTS_MAX: usize = 4096;

/// Something that happened to a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
#[expect(missing_docs, reason = "fields are pages and keys, and the variants say which")]
pub enum PageEvent {
    /// A page was found by key and got one more user.
    Shared { page: PageIdx, key: Option<PageKey> },
    /// A page was taken for a page of a prompt that is still to be computed.
    Promised { page: PageIdx, key: PageKey, evicted: Option<PageKey> },
    /// A page was taken for ids not known yet. `evicted` is hidden until the reservation is
    /// reverted or written.
    Claimed { page: PageIdx, evicted: Option<PageKey> },
    /// The hidden content of a reservation, or the key of a page to be rewritten, is gone for good.
    Evicted { page: PageIdx, key: Option<PageKey> },
    /// A full page got its key and can be found.
    Sealed { page: PageIdx, key: PageKey },
    /// A page turned out to hold what `kept` holds; its user now shares that one.
    Deduplicated { page: PageIdx, kept: PageIdx },
    /// A page that must not be written was copied for its writer.
    Copied { from: PageIdx, to: PageIdx },
    /// A page lost one user.
    Released { page: PageIdx, n_refs: u32 },
    /// A reservation that was never written took up its former content again.
    Reverted { page: PageIdx },
    /// A page without users holds nothing that could be found, and is empty.
    Emptied { page: PageIdx },
    /// Content from elsewhere was put into a page.
    Restored { page: PageIdx, evicted: Option<PageKey> },
    /// Defragmentation moved a page.
    Moved { from: PageIdx, to: PageIdx },
    /// Everything was forgotten.
    Reset,
    /// So many later events were not recorded because nobody had taken the earlier ones.
    Lost { n_events: u64 },
}

/// The recorder.
#[derive(Clone, Debug, Default)]
pub(super) struct EventLog {
    enabled: bool,
    kept: Vec<PageEvent>,
    n_lost: u64,
}

impl EventLog {
    pub fn push(&mut self, event: PageEvent) {
        if !self.enabled {
            return;
        }
        if self.kept.len() < EVENTS_MAX {
            self.kept.push(event);
        } else {
            self.n_lost += 1;
        }
    }
}

impl PageTable {
    /// Starts or stops recording events. Stopping discards what was recorded.
    pub fn set_recording(&mut self, enabled: bool) {
        self.log = EventLog { enabled, ..EventLog::default() };
    }

    /// Moves the events since the last call to the end of `out`, oldest first.
    pub fn take_events(&mut self, out: &mut Vec<PageEvent>) {
        out.append(&mut self.log.kept);
        let n_events = std::mem::take(&mut self.log.n_lost);
        if n_events > 0 {
            out.push(PageEvent::Lost { n_events });
        }
    }
}
