//! Starting jobs: as many as the batch and the cache have room for.

use pagella_backend::PAGE_TOKENS;

use crate::job::{Job, JobState, Record, Sequence, Stage};
use crate::pages::{PageTable, SequenceNeed};
use crate::schedule::preempt::preempt;
use crate::schedule::queue::{Queue, blocks};
use crate::schedule::{GeneratorOptions, Reserve};

/// What starting jobs led to.
#[derive(Default)]
pub(crate) struct Admitted {
    /// Tokens that the started jobs found in the cache.
    pub cached_tokens: usize,
    /// Jobs at rest that had to give their pages up.
    pub preempted: usize,
}

/// Moves jobs from the queue to the active ones and says so.
pub(crate) fn admit(
    queue: &mut Queue,
    active: &mut Vec<Job>,
    table: &mut PageTable,
    options: &GeneratorOptions,
    records: &mut Vec<Record>,
) -> Admitted {
    let mut admitted = Admitted::default();
    for serial in queue.order() {
        let Some(job) = queue.get(serial).filter(|job| !job.resting) else { continue };
        let blocking = blocks(job);
        // Jobs that rest make room for one that could go on.
        while let Some(job) = queue.get(serial)
            && !fits(job, active, table, options)
            && let Some(victim) = (0..active.len()).rev().find(|&idx| active[idx].resting)
        {
            preempt(active.remove(victim), queue, table);
            admitted.preempted += 1;
        }
        // Someone who is passed over here may be passed over no more.
        let overtaken = |other: &Job| other.serial < serial && blocks(other);
        if !blocking && queue.jobs().iter().any(overtaken) {
            break;
        }
        let Some(mut job) = queue.take_if(serial, |job| fits(job, active, table, options)) else {
            if blocking {
                break;
            }
            continue;
        };
        let Some(pages) = table.open(&needs(&job, options.reserve)) else {
            queue.push_preempted(job);
            break;
        };
        admitted.cached_tokens += start(&mut job, pages, table);
        if job.preemptions == 0 {
            queue.note_start(serial);
            let queue_position = Some(job.queue_position);
            let cached_tokens = Some(job.cached_tokens);
            let stage = Stage::Started;
            records.push(Record { stage, queue_position, cached_tokens, ..job.record() });
        }
        active.push(job);
    }
    admitted
}

/// Whether batch and cache have room for a job.
fn fits(job: &Job, active: &[Job], table: &PageTable, options: &GeneratorOptions) -> bool {
    let rows: usize = active.iter().map(|job| job.sequences.len()).sum();
    rows + job.sequences.len() <= options.batch_max
        && table.need(&needs(job, options.reserve)) <= table.n_unreferenced()
}

/// Pages of every sequence of a job.
fn needs(job: &Job, reserve: Reserve) -> Vec<SequenceNeed<'_>> {
    let need = |sequence: &'_ Sequence| {
        let tokens = match reserve {
            Reserve::Grow => sequence.ids.len(),
            Reserve::Full => sequence.ids.len() + job.ids_left(),
        };
        Sequence::pages_for(tokens) - sequence.keys.len()
    };
    let needs = job.sequences.iter().map(|sequence| SequenceNeed {
        namespace: sequence.namespace,
        keys: &sequence.keys,
        unique: need(sequence),
    });
    needs.collect()
}

/// Hands the job its pages. Returns the tokens found in them.
fn start(job: &mut Job, pages: Vec<Vec<u32>>, table: &PageTable) -> usize {
    let mut cached = 0;
    for (sequence, pages) in job.sequences.iter_mut().zip(pages) {
        cached += sequence.open(pages, table);
    }
    if job.preemptions == 0 {
        job.cached_tokens += cached * PAGE_TOKENS;
    }
    job.state = if job.is_ready() { JobState::Decode } else { JobState::Prefill };
    cached * PAGE_TOKENS
}
