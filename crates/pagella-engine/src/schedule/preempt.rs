//! Pages on demand: a job that writes takes one more page, if need be from a job that ranks below.
//!
//! Ranks are strict (awake, then priority, then age), a job only takes from jobs below it, and the first of all
//! fits the cache alone; so someone always gets on.

use std::cmp::Reverse;

use crate::job::{Job, JobState, Sequence};
use crate::pages::PageTable;
use crate::schedule::Queue;

/// Makes sure that every ready job has a page for its newest id. Returns how many jobs lost theirs.
pub(crate) fn make_room(active: &mut Vec<Job>, queue: &mut Queue, table: &mut PageTable) -> usize {
    let awake = active.iter().filter(|job| !job.resting);
    let mut ranked: Vec<_> = awake.map(|job| (rank(job), job.serial)).collect();
    ranked.sort_unstable();
    let mut preempted = 0;
    for (_, serial) in ranked {
        // The job may have lost its pages to one before it.
        while let Some(idx) = active.iter().position(|job| job.serial == serial) {
            if !active[idx].is_ready() || grow(&mut active[idx], table) {
                break;
            }
            let Some(victim) = lowest(active) else { break };
            preempt(active.remove(victim), queue, table);
            preempted += 1;
        }
    }
    preempted
}

/// Lower goes first; jobs at rest go last.
fn rank(job: &Job) -> (bool, Reverse<i32>, u64) {
    (job.resting, Reverse(job.options.priority), job.serial)
}

/// The job that ranks below all others.
fn lowest(active: &[Job]) -> Option<usize> {
    (0..active.len()).max_by_key(|&idx| rank(&active[idx]))
}

/// Takes the pages that the sequences of a job lack; false if there are not enough.
fn grow(job: &mut Job, table: &mut PageTable) -> bool {
    for sequence in &mut job.sequences {
        while sequence.pages.len() < Sequence::pages_for(sequence.ids.len()) {
            let Some(page) = table.grow(sequence.next_parent()) else { return false };
            sequence.pages.push(page);
        }
    }
    true
}

/// Sends a job back to the queue. Its ids, draws and held text stay with it.
pub(crate) fn preempt(mut job: Job, queue: &mut Queue, table: &mut PageTable) {
    for idx in 0..job.sequences.len() {
        let final_len = job.final_len(idx);
        job.sequences[idx].close(final_len, table);
    }
    job.state = JobState::Preempted;
    job.preemptions += 1;
    queue.push_preempted(job);
}
