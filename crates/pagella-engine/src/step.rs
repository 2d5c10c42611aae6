//! One turn of the generator.
//!
//! The order is the contract: expire before admit, admit before guesses, guesses before plan, masks
//! beside the forward pass, logits read when both are there, pages recorded only after that succeeded,
//! accept before finish.

mod choose;
mod score_prompt;

use std::sync::Arc;
use std::time::Instant;

use pagella_backend::PAGE_TOKENS;

use crate::EngineError;
use crate::generator::Generator;
use crate::job::{Ending, EosReason, Job, JobState, Record, Stage};
use crate::schedule::{
    PageCopy, Plan, PlannedRow, PlannedStep, Planner, Reuse, Runnable, admit, make_room,
};
use crate::trace::StepTrace;

pub(crate) use choose::SampleBuffer;
use choose::{Sampling, find_job, sampling_jobs};
use score_prompt::scoring_rows;

impl Generator {
    /// Starts jobs, computes one step, and returns what the jobs say, in order. Empty when there is
    /// nothing to do.
    pub fn step(&mut self) -> Vec<Record> {
        let mut records = Vec::new();
        let mut trace = StepTrace::begin(self.counters.steps());
        self.expire(&mut records);
        let Generator { queue, active, table, options, .. } = self;
        let admitted = admit(queue, active, table, options, &mut records);
        let preempted = make_room(active, queue, table);
        self.counters.note_cached(admitted.cached_tokens);
        self.counters.note_preemptions(preempted + admitted.preempted);
        match self.plan(&mut records) {
            Ok(Some(step)) => self.compute(&step, &mut trace, &mut records),
            Ok(None) => self.stalled = records.is_empty(),
            Err(error) => self.fail_all(error, &mut records),
        }
        self.stalled &= !self.embed_step();
        self.tidy_adapters();
        self.defragment_if_idle();
        self.debug_check();
        records
    }

    /// Plans a step and takes over what the plan found in the cache. What is left is to be computed.
    fn plan(&mut self, records: &mut Vec<Record>) -> Result<Option<PlannedStep>, EngineError> {
        self.drafting.propose(&mut self.active, &self.facts);
        let jobs = Runnable::of(&self.active);
        let Plan { reuse, step } = Planner::new(&self.table, &self.options).plan(jobs)?;
        for found in &reuse {
            self.take_over(found)?;
        }
        // What the cache gave counts as progress even if nothing is computed.
        let mut idle: Vec<usize> = reuse.iter().map(|found| found.job).collect();
        idle.dedup();
        idle.retain(|job| !step.as_ref().is_some_and(|step| step.has_job(*job)));
        records.extend(idle.into_iter().map(|job| prefill_record(&self.active[job])));
        for row in step.iter().flat_map(|step| &step.rows) {
            let job = &mut self.active[row.job];
            job.clock.prefill.get_or_insert_with(Instant::now);
            if !row.is_prompt {
                job.state = JobState::Decode;
            }
            job.sequences[row.sequence].begin_write(row.tokens, &mut self.table);
        }
        Ok(step)
    }

    /// Moves a sequence over what the cache has of it.
    fn take_over(&mut self, found: &Reuse) -> Result<(), EngineError> {
        let job = &mut self.active[found.job];
        job.clock.prefill.get_or_insert_with(Instant::now);
        let sequence = &mut job.sequences[found.sequence];
        let before = sequence.kv;
        sequence.kv += found.filled;
        if let Some(PageCopy { from, to, tokens }) = found.copy {
            self.table.begin_write(to);
            self.forward.copy_page_prefix(from, to, tokens)?;
            sequence.commit(tokens - sequence.kv % PAGE_TOKENS, &mut self.table);
        }
        let gained = sequence.kv - before;
        self.counters.note_cached(gained);
        if job.preemptions == 0 && job.new_tokens == 0 {
            job.cached_tokens += gained;
        }
        Ok(())
    }

    /// Runs a plan and everything that follows from it.
    fn compute(&mut self, planned: &PlannedStep, trace: &mut StepTrace, records: &mut Vec<Record>) {
        trace.planned(planned);
        let sampling = sampling_jobs(planned);
        let launched = self.launch_with_masks(planned, &sampling, trace);
        let n_rows = planned.rows.iter().map(PlannedRow::logit_rows).sum();
        if let Err(error) = launched.and_then(|()| self.read(&sampling, n_rows, trace)) {
            return self.fail_planned(planned, error, records);
        }
        let scoring = scoring_rows(self, planned);
        self.score_prompts(&scoring);
        self.commit(planned, records);
        let endings = self.sample(&sampling, trace, records);
        let wasted = self.settle(planned);
        for (serial, record, ending) in endings {
            if let Some(idx) = self.active.iter().position(|job| job.serial == serial) {
                let job = self.close(idx);
                self.drafting.remember(&job);
                let record = job.finish(record, ending);
                self.note_end(&record);
                records.push(record);
            }
        }
        trace.end();
        if planned.prefill_tokens() == 0 {
            self.drafting.note_step(planned.plan.tokens(), trace.forward().as_secs_f64());
        }
        self.counters.note_step(planned, wasted, trace);
        self.push_trace(trace.clone());
    }

    /// The forward pass, and beside it, on the host threads, the masks of the next choices.
    fn launch_with_masks(
        &mut self,
        planned: &PlannedStep,
        sampling: &[Sampling],
        trace: &mut StepTrace,
    ) -> Result<(), EngineError> {
        let Generator { forward, active, host, counters, .. } = self;
        let mut slots: Vec<_> = active
            .iter_mut()
            .enumerate()
            .filter_map(|(idx, job)| {
                let of = find_job(sampling, idx)?;
                let guesses = &job.draft.guesses()[..of.guesses()];
                Some((job.constraint.as_mut()?, guesses, None))
            })
            .filter(|(slot, guesses, _)| slot.verdict.is_none() || !guesses.is_empty())
            .collect();
        // A device computes by itself once it is told to; a host has to do both at once.
        let beside = forward.narrows();
        trace.launch_begins(beside);
        let mut launch = || {
            let launched = forward.launch(&planned.plan);
            trace.launched();
            launched
        };
        if beside || slots.is_empty() {
            launch()?;
        }
        if slots.is_empty() {
            return Ok(());
        }
        host.get()?.in_place_scope(|scope| {
            for (slot, guesses, span) in &mut slots {
                scope.spawn(|_| {
                    let started = Instant::now();
                    slot.look_ahead(guesses);
                    *span = Some((started, Instant::now()));
                });
            }
            if beside { Ok(()) } else { launch() }
        })?;
        let spans = || slots.iter().filter_map(|(.., span)| *span);
        spans().for_each(|(began, ended)| counters.note_mask(ended - began));
        trace.masks(spans(), forward.is_done());
        Ok(())
    }

    /// Records what is in the cache now.
    fn commit(&mut self, planned: &PlannedStep, records: &mut Vec<Record>) {
        for row in &planned.rows {
            let job = &mut self.active[row.job];
            let known = row.tokens - row.guesses();
            job.sequences[row.sequence].commit(known, &mut self.table);
        }
        let mut last = None;
        for row in &planned.rows {
            let job = &self.active[row.job];
            if job.state == JobState::Prefill && last != Some(row.job) {
                records.push(prefill_record(job));
                last = Some(row.job);
            }
        }
    }

    /// Lets pages follow what the jobs decided: guesses that became ids, taken back, or final. Returns
    /// how many guesses did not become ids.
    fn settle(&mut self, planned: &PlannedStep) -> usize {
        let mut wasted = 0;
        for (idx, row) in planned.rows.iter().enumerate() {
            let job = &mut self.active[row.job];
            let final_len = job.final_len(row.sequence);
            let Job { sequences, draft, .. } = job;
            let sequence = &mut sequences[row.sequence];
            let guesses = &draft.guesses()[..row.guesses()];
            let start = planned.plan.past(idx) + row.tokens - guesses.len();
            wasted += guesses.len() - sequence.commit_guesses(start, guesses, &mut self.table);
            sequence.truncate_pages(&mut self.table);
            sequence.seal(final_len, &mut self.table);
        }
        wasted
    }

    /// Ends the jobs whose time has run out.
    fn expire(&mut self, records: &mut Vec<Record>) {
        let now = Instant::now();
        let jobs = self.queue.jobs().iter().chain(&self.active);
        let late = |job: &&Job| job.deadline.is_some_and(|deadline| deadline <= now);
        let late: Vec<u64> = jobs.filter(late).map(|job| job.serial).collect();
        for serial in late {
            records.extend(self.end(serial, || Ending::of(EosReason::Deadline)));
        }
    }

    /// Ends the jobs of a step that failed. What was not computed is not in the page table, so all
    /// others go on.
    fn fail_planned(
        &mut self,
        planned: &PlannedStep,
        error: EngineError,
        records: &mut Vec<Record>,
    ) {
        let error = Arc::new(error);
        let mut serials: Vec<u64> =
            planned.rows.iter().map(|row| self.active[row.job].serial).collect();
        serials.dedup();
        for serial in serials {
            records.extend(self.end(serial, || Ending::failed_by(error.clone())));
        }
    }

    /// Ends every started job after a failure that belongs to none of them.
    pub(crate) fn fail_all(&mut self, error: EngineError, records: &mut Vec<Record>) {
        let error = Arc::new(error);
        let serials: Vec<u64> = self.active.iter().map(|job| job.serial).collect();
        for serial in serials {
            records.extend(self.end(serial, || Ending::failed_by(error.clone())));
        }
    }

    /// Checks the invariants after every step of a debug build.
    fn debug_check(&self) {
        #[cfg(debug_assertions)]
        if let Err(problem) = self.check() {
            debug_assert!(false, "{problem}\n{}", self.table.map());
        }
    }
}

fn prefill_record(job: &Job) -> Record {
    let (done, total) = job.progress();
    Record {
        stage: Stage::Prefill,
        curr_progress: Some(done.min(total)),
        max_progress: Some(total),
        ..job.record()
    }
}
