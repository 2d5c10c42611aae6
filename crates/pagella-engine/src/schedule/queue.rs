//! The jobs that wait, and in which order they are looked at.
//!
//! First those that were preempted, then those that were overtaken as often as they allow, then by
//! priority, then by age. Every start of a later job counts as an overtaking, so no job starves.

use crate::job::{Job, JobState};

/// Waiting jobs.
#[derive(Default)]
pub(crate) struct Queue {
    jobs: Vec<Job>,
}

impl Queue {
    pub fn push(&mut self, mut job: Job) {
        job.queue_position = self.jobs.len();
        self.jobs.push(job);
    }

    /// Takes back a job that lost its pages.
    pub fn push_preempted(&mut self, job: Job) {
        self.jobs.push(job);
    }

    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    pub fn jobs(&self) -> &[Job] {
        &self.jobs
    }

    /// Removes the job with this number.
    pub fn take(&mut self, serial: u64) -> Option<Job> {
        let idx = self.jobs.iter().position(|job| job.serial == serial)?;
        Some(self.jobs.remove(idx))
    }

    /// Removes the job with this number if `wanted` holds for it.
    pub fn take_if(&mut self, serial: u64, wanted: impl FnOnce(&Job) -> bool) -> Option<Job> {
        self.get(serial).is_some_and(wanted).then(|| self.take(serial)).flatten()
    }

    /// Lets a waiting job rest, or go on.
    pub fn set_resting(&mut self, serial: u64, rests: bool) {
        if let Some(job) = self.jobs.iter_mut().find(|job| job.serial == serial) {
            job.resting = rests;
        }
    }

    /// Removes all jobs.
    pub fn drain(&mut self) -> Vec<Job> {
        std::mem::take(&mut self.jobs)
    }

    /// Numbers of the jobs in the order in which they may start.
    pub fn order(&self) -> Vec<u64> {
        let mut jobs: Vec<&Job> = self.jobs.iter().collect();
        jobs.sort_by_key(|job| (!blocks(job), -i64::from(job.options.priority), job.serial));
        // Preempted jobs come before all others.
        jobs.sort_by_key(|job| job.state != JobState::Preempted);
        jobs.iter().map(|job| job.serial).collect()
    }

    pub fn get(&self, serial: u64) -> Option<&Job> {
        self.jobs.iter().find(|job| job.serial == serial)
    }

    /// Counts the start of job `serial` as an overtaking of everyone older who does not rest.
    pub fn note_start(&mut self, serial: u64) {
        for job in &mut self.jobs {
            if job.serial < serial && !job.resting {
                job.skips = job.skips.saturating_add(1);
            }
        }
    }
}

/// Whether nobody may start before this job does.
pub(crate) fn blocks(job: &Job) -> bool {
    let overtaken = job.options.max_skips.is_some_and(|max| job.skips >= max);
    !job.resting && (job.state == JobState::Preempted || overtaken)
}
