//! `Ticket`: which pieces of a job nobody took, and how many are not finished.
//!
//! A caller publishes a job, everybody takes pieces of it, and whoever took some reports them when it
//! finds no more. So the caller waits for pieces that somebody holds and for nobody else: a worker
//! that was put aside before it took one is not missed.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A value with cache lines of its own (they are fetched in pairs).
#[repr(align(128))]
#[derive(Default)]
pub(super) struct Apart<T>(pub(super) T);

/// Pieces of one job at a time.
#[derive(Default)]
pub(super) struct Ticket {
    /// `number of the job << 32 | pieces that nobody took`. With the number, whoever was put aside
    /// while taking cannot mistake another job for the one it saw.
    left: Apart<AtomicU64>,
    /// Pieces that were not reported.
    unfinished: Apart<AtomicU32>,
}

impl Ticket {
    /// Publishes a job of `pieces`. The job before is finished, and there is one caller at a time.
    pub(super) fn publish(&self, pieces: u32) {
        self.unfinished.0.store(pieces, Ordering::Relaxed);
        let number = (self.left.0.load(Ordering::Relaxed) >> 32).wrapping_add(1);
        // Like the two below, part of an agreement with `Sleeper`.
        self.left.0.store(number << 32 | u64::from(pieces), Ordering::SeqCst);
    }

    /// Whether there is something to take.
    pub(super) fn has_pieces(&self) -> bool {
        self.left.0.load(Ordering::SeqCst) as u32 > 0
    }

    /// Takes a piece: how many there were, this one included. Until it is reported, what was written
    /// before its job was published stays as it is and can be read.
    pub(super) fn take(&self) -> Option<u32> {
        let one = |state: u64| (state as u32 > 0).then(|| state - 1);
        let taken = self.left.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, one);
        taken.ok().map(|state| state as u32)
    }

    /// Takes all that are left, so that nobody works on them. How many they were.
    pub(super) fn take_all(&self) -> u32 {
        self.left.0.fetch_and(!u64::from(u32::MAX), Ordering::Acquire) as u32
    }

    /// Says that `pieces` which were taken are done. Whether they were the last.
    pub(super) fn report(&self, pieces: u32) -> bool {
        self.unfinished.0.fetch_sub(pieces, Ordering::SeqCst) == pieces
    }

    /// Whether every piece was reported: what their takers wrote can be read.
    pub(super) fn is_finished(&self) -> bool {
        self.unfinished.0.load(Ordering::SeqCst) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_taken_once_and_a_job_ends_with_the_last_report() {
        let ticket = Ticket::default();
        assert_eq!((ticket.take(), ticket.take_all(), ticket.is_finished()), (None, 0, true));
        ticket.publish(4);
        assert_eq!((ticket.take(), ticket.take()), (Some(4), Some(3)));
        assert!(!ticket.report(2) && ticket.has_pieces());
        assert_eq!((ticket.take_all(), ticket.take(), ticket.has_pieces()), (2, None, false));
        assert!(!ticket.is_finished() && ticket.report(2) && ticket.is_finished());
    }

    #[test]
    fn the_number_of_a_job_never_touches_its_pieces() {
        let ticket = Ticket::default();
        ticket.left.0.store(u64::from(u32::MAX) << 32, Ordering::Relaxed);
        ticket.publish(u32::MAX);
        assert_eq!(ticket.left.0.load(Ordering::Relaxed), u64::from(u32::MAX));
        assert_eq!(ticket.take(), Some(u32::MAX));
    }
}
