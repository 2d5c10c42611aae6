//! Starting jobs: as many as the batch and the cache have room for.

use pagella_backend::PAGE_TOKENS;

use crate::job::{Job, JobState, Record, Sequence, Stage};
use crate::pages::{PageTable, SequenceNeed};
use crate::schedule::queue::{Queue, blocks};
use crate::schedule::{GeneratorOptions, Reserve};

/// Moves jobs from the queue to the active ones and says so. Returns the tokens they found in the
/// cache.
pub(crate) fn admit(
    queue: &mut Queue,
    active: &mut Vec<Job>,
    table: &mut PageTable,
    options: &GeneratorOptions,
    records: &mut Vec<Record>,
) -> usize {
    let mut cached_tokens = 0;
    let mut rows: usize = active.iter().map(|job| job.sequences.len()).sum();
    for serial in queue.order() {
        if rows >= options.batch_max {
            break;
        }
        let Some(job) = queue.get(serial) else { continue };
        if waits_for_leader(job, queue, active) {
            continue;
        }
        let needs = needs(job, options.reserve);
        let fits = rows + job.sequences.len() <= options.batch_max
            && table.need(&needs) <= table.n_unreferenced();
        if !fits {
            if blocks(job) {
                break;
            }
            continue;
        }
        // Someone who is passed over here may be passed over no more.
        let overtaken =
            |other: &Job| other.serial < serial && other.leader.is_none() && blocks(other);
        if queue.jobs().iter().any(overtaken) && !blocks(job) {
            break;
        }
        let Some(pages) = table.open(&needs) else { break };
        drop(needs);
        let Some(mut job) = queue.take(serial) else { break };
        cached_tokens += start(&mut job, pages, table);
        if job.preemptions == 0 {
            queue.note_start(serial);
            let position = Some(job.queue_position);
            records.push(Record {
                stage: Stage::Started,
                queue_position: position,
                ..job.record()
            });
        }
        rows += job.sequences.len();
        active.push(job);
    }
    cached_tokens
}

/// Pages of every sequence of a job.
fn needs(job: &Job, reserve: Reserve) -> Vec<SequenceNeed<'_>> {
    let left = job.new_tokens_max - job.new_tokens + job.healing_bytes;
    let need = |sequence: &'_ Sequence| {
        let tokens = match reserve {
            Reserve::Grow => sequence.ids.len(),
            Reserve::Full => sequence.ids.len() + left,
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
        job.cached_pages += cached;
        job.cached_tokens += cached * PAGE_TOKENS;
    }
    job.state = if job.is_ready() { JobState::Decode } else { JobState::Prefill };
    cached * PAGE_TOKENS
}

/// Whether the prompt this job shares is still being computed by the one that came first.
fn waits_for_leader(job: &Job, queue: &Queue, active: &[Job]) -> bool {
    let Some(leader) = job.leader else { return false };
    let computing = active.iter().any(|a| a.serial == leader && a.state == JobState::Prefill);
    // A preempted leader has computed its prompt before.
    computing || queue.get(leader).is_some_and(|leader| leader.state == JobState::Queued)
}
