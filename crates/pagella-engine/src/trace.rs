//! `StepTrace`: where the time of one step went.
//!
//! On a device a step is launched and then runs beside the host, which waits for it at the end. What
//! the host does outside that wait is time in which the device has nothing to do.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::schedule::PlannedStep;

/// Where the time of one step went.
#[derive(Clone, Debug, Serialize)]
pub struct StepTrace {
    /// Number of the step.
    pub step: u64,
    /// Rows of the plan.
    pub rows: usize,
    /// Tokens of the plan.
    pub tokens: usize,
    /// Starting jobs, finding pages, planning.
    pub plan: Duration,
    /// Launching the forward pass: on a device until all of it is enqueued, on a CPU until it is
    /// computed.
    pub launch: Duration,
    /// From there until what was asked of the logits was there, without `mask_wait`.
    pub wait: Duration,
    /// The longest computation of a mask, which runs beside the forward pass.
    pub mask: Duration,
    /// How long the step waited for masks after its launch with nothing else under way. Where a
    /// device ended while masks were computed, all of the time since the launch counts.
    pub mask_wait: Duration,
    /// Sampling and text.
    pub sample: Duration,
    /// What the host did while no forward pass ran: everything but `wait`, and on a CPU but
    /// `launch`.
    pub host: Duration,
    /// Jobs that sampled.
    pub sampled: usize,
    /// Rows of logits that were read whole at once.
    pub whole_rows: usize,
    /// Rows that were read whole because their candidates did not decide.
    pub undecided_rows: usize,
    /// Everything.
    pub total: Duration,
    #[serde(skip)]
    began: Instant,
    #[serde(skip)]
    launch_began: Instant,
    #[serde(skip)]
    launch_ended: Instant,
    #[serde(skip)]
    read_ended: Instant,
    /// The forward pass runs beside the host.
    #[serde(skip)]
    beside: bool,
}

impl StepTrace {
    pub(crate) fn begin(step: u64) -> Self {
        let now = Instant::now();
        StepTrace {
            step,
            rows: 0,
            tokens: 0,
            plan: Duration::ZERO,
            launch: Duration::ZERO,
            wait: Duration::ZERO,
            mask: Duration::ZERO,
            mask_wait: Duration::ZERO,
            sample: Duration::ZERO,
            host: Duration::ZERO,
            sampled: 0,
            whole_rows: 0,
            undecided_rows: 0,
            total: Duration::ZERO,
            began: now,
            launch_began: now,
            launch_ended: now,
            read_ended: now,
            beside: false,
        }
    }

    pub(crate) fn planned(&mut self, planned: &PlannedStep) {
        (self.rows, self.tokens) = (planned.rows.len(), planned.plan.tokens());
        self.plan = self.began.elapsed();
    }

    /// The forward pass is about to be launched; `beside`: it will run beside the host.
    pub(crate) fn launch_begins(&mut self, beside: bool) {
        self.beside = beside;
        self.launch_began = Instant::now();
    }

    pub(crate) fn launched(&mut self) {
        self.launch_ended = Instant::now();
        self.launch = self.launch_ended - self.launch_began;
    }

    /// Masks are there; `done` says whether the step was, too, by then.
    pub(crate) fn masks(&mut self, spans: impl Iterator<Item = (Instant, Instant)>, done: bool) {
        for (started, ended) in spans {
            self.mask = self.mask.max(ended - started);
            let wait = ended.saturating_duration_since(self.launch_ended);
            self.mask_wait = self.mask_wait.max(if done { wait } else { Duration::ZERO });
        }
    }

    pub(crate) fn read(&mut self) {
        self.read_ended = Instant::now();
        self.wait = (self.read_ended - self.launch_ended).saturating_sub(self.mask_wait);
    }

    pub(crate) fn sampled(&mut self, jobs: usize) {
        self.sampled = jobs;
        self.sample = self.read_ended.elapsed();
    }

    /// From the launch of the forward pass to the end of the step.
    pub(crate) fn forward(&self) -> Duration {
        self.launch_began.elapsed()
    }

    pub(crate) fn end(&mut self) {
        self.total = self.began.elapsed();
        let computing = if self.beside { self.wait } else { self.wait + self.launch };
        self.host = self.total.saturating_sub(computing);
    }
}
