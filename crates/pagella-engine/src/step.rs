//! One turn of the generator.
//!
//! The order is the contract: expire before admit, admit before plan, masks beside the forward pass,
//! pages recorded only after the pass succeeded, accept before finish.

use std::sync::Arc;
use std::time::Instant;

use pagella_text::Tokenizer;
use rayon::prelude::*;

use crate::EngineError;
use crate::generator::Generator;
use crate::job::{Ending, EosReason, Job, JobState, Record, Stage, Turn};
use crate::sample::{Scratch, mix};
use crate::schedule::{Planned, Planner, admit, make_room};
use crate::stats::StepTrace;

/// A row on its way through the sampler, kept between steps.
#[derive(Default)]
pub(crate) struct SampleBuffer {
    row: Vec<f32>,
    scratch: Scratch,
}

/// A job with its row.
struct Task<'a> {
    job: &'a mut Job,
    buffer: &'a mut SampleBuffer,
    turn: Option<Turn>,
}

impl Generator {
    /// Starts jobs, computes one step, and returns what the jobs say, in order. Empty when there is
    /// nothing to do.
    pub fn iterate(&mut self) -> Vec<Record> {
        let mut records = Vec::new();
        let mut trace = StepTrace::begin(self.counters.steps());
        self.expire(&mut records);
        let Generator { queue, active, table, options, .. } = self;
        let admitted = admit(queue, active, table, options, &mut records);
        let preempted = make_room(active, queue, table);
        self.counters.note_cached(admitted.cached_tokens);
        self.counters.note_preemptions(preempted + admitted.preempted);
        match self.plan(&mut records) {
            Ok(Some(planned)) => self.compute(&planned, &mut trace, &mut records),
            Ok(None) => self.stalled = records.is_empty(),
            Err(error) => self.fail_all(error, &mut records),
        }
        self.defragment_if_idle();
        self.debug_check();
        records
    }

    fn plan(&mut self, records: &mut Vec<Record>) -> Result<Option<Planned>, EngineError> {
        let before: Vec<usize> = self.active.iter().map(|job| job.progress().0).collect();
        let Generator { table, forward, options, active, .. } = self;
        let planned = Planner::new(table, forward.as_mut(), options).plan(active)?;
        // What the cache gave counts as progress even if nothing is computed.
        for (job, before) in self.active.iter().zip(before) {
            let progress = job.progress();
            if progress.0 > before {
                self.counters.note_cached(progress.0 - before);
                let computes = |planned: &Planned| {
                    planned.rows.iter().any(|row| self.active[row.job].serial == job.serial)
                };
                if !planned.as_ref().is_some_and(computes) {
                    records.push(prefill_record(job));
                }
            }
        }
        Ok(planned)
    }

    /// Runs a plan and everything that follows from it.
    fn compute(&mut self, planned: &Planned, trace: &mut StepTrace, records: &mut Vec<Record>) {
        trace.planned(planned);
        let result = self.forward_with_masks(planned, trace);
        if let Err(error) = result.and_then(|()| self.check_logits(planned)) {
            return self.fail_planned(planned, error, records);
        }
        self.commit(planned, records);
        self.counters.note_step(planned);
        let endings = self.sample(planned, trace, records);
        self.settle(planned);
        for (serial, record, ending) in endings {
            if let Some(idx) = self.active.iter().position(|job| job.serial == serial) {
                let record = self.close(idx).finish(record, ending);
                self.note_end(&record);
                records.push(record);
            }
        }
        trace.end();
        self.push_trace(trace.clone());
    }

    /// The forward pass here, masks of the next choices on the host threads meanwhile.
    fn forward_with_masks(
        &mut self,
        planned: &Planned,
        trace: &mut StepTrace,
    ) -> Result<(), EngineError> {
        let Generator { forward, active, host, logits, .. } = self;
        let samples = |idx: usize| planned.rows.iter().any(|row| row.job == idx && row.logits);
        let mut slots: Vec<_> = active
            .iter_mut()
            .enumerate()
            .filter(|(idx, _)| samples(*idx))
            .filter_map(|(_, job)| job.constraint.as_mut())
            .filter(|slot| slot.verdict.is_none())
            .map(|slot| (slot, None))
            .collect();
        let mut run = || {
            let started = Instant::now();
            let result = forward.forward(&planned.plan, logits);
            (result, started, Instant::now())
        };
        if slots.is_empty() {
            let (result, started, ended) = run();
            trace.forward(started, ended);
            return result;
        }
        let (result, started, ended) = host.get()?.in_place_scope(|scope| {
            for (slot, span) in &mut slots {
                scope.spawn(|_| {
                    let started = Instant::now();
                    slot.verdict = Some(slot.constraint.mask(&mut slot.mask));
                    *span = Some((started, Instant::now()));
                });
            }
            run()
        });
        trace.forward(started, ended);
        trace.masks(slots.iter().filter_map(|(_, span)| *span));
        result
    }

    fn check_logits(&self, planned: &Planned) -> Result<(), EngineError> {
        let expected = planned.plan.logit_tokens().len() * self.facts.vocab;
        let found = self.logits.len();
        if expected == found { Ok(()) } else { Err(EngineError::LogitsShape { expected, found }) }
    }

    /// Records what is in the cache now.
    fn commit(&mut self, planned: &Planned, records: &mut Vec<Record>) {
        for row in &planned.rows {
            let job = &mut self.active[row.job];
            job.sequences[row.sequence].commit(row.tokens, &mut self.table);
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

    /// Chooses an id for every job whose logits are there.
    fn sample(
        &mut self,
        planned: &Planned,
        trace: &mut StepTrace,
        records: &mut Vec<Record>,
    ) -> Vec<(u64, Record, Ending)> {
        let vocab = self.facts.vocab;
        let Generator { active, buffers, logits, facts, host, options, .. } = self;
        let rows = planned.rows.iter().filter(|row| row.logits);
        let mut of_job: Vec<Vec<&[f32]>> = vec![Vec::new(); active.len()];
        for (row, logits) in rows.zip(logits.chunks_exact(vocab.max(1))) {
            of_job[row.job].push(logits);
        }
        let n = of_job.iter().filter(|rows| !rows.is_empty()).count();
        buffers.resize_with(buffers.len().max(n), SampleBuffer::default);
        let with_rows = active.iter_mut().zip(&of_job).filter(|(_, rows)| !rows.is_empty());
        let mut tasks: Vec<Task<'_>> = with_rows
            .zip(buffers)
            .map(|((job, rows), buffer)| {
                fill_row(job, rows, &mut buffer.row);
                Task { job, buffer, turn: None }
            })
            .collect();
        let run = |task: &mut Task<'_>| task.run(&facts.tokenizer);
        // Waking threads for little costs more than it saves.
        let spread = n > 1 && n * vocab >= options.parallel_logits_min;
        match spread.then(|| host.get()) {
            Some(Ok(pool)) => pool.install(|| tasks.par_iter_mut().for_each(run)),
            // Without threads it takes longer, no more.
            Some(Err(_)) | None => tasks.iter_mut().for_each(run),
        }
        let mut endings = Vec::new();
        for Task { job, turn, .. } in tasks {
            let Some(Turn { record, ending }) = turn else { continue };
            match ending {
                Some(ending) => endings.push((job.serial, record, ending)),
                None => records.push(record),
            }
        }
        trace.sampled(n);
        endings
    }

    /// Lets pages follow what the jobs decided: taken back, or final.
    fn settle(&mut self, planned: &Planned) {
        for row in &planned.rows {
            let job = &mut self.active[row.job];
            let final_len = job.final_len(row.sequence);
            let sequence = &mut job.sequences[row.sequence];
            sequence.truncate_pages(&mut self.table);
            sequence.seal(final_len, &mut self.table);
        }
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
    fn fail_planned(&mut self, planned: &Planned, error: EngineError, records: &mut Vec<Record>) {
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

impl Task<'_> {
    fn run(&mut self, tokenizer: &Tokenizer) {
        let SampleBuffer { row, scratch } = &mut *self.buffer;
        self.turn = Some(self.job.turn(row, tokenizer, scratch));
    }
}

/// The row a job samples from: its own, or the mix of several prompts.
fn fill_row(job: &Job, rows: &[&[f32]], out: &mut Vec<f32>) {
    match rows {
        [row] => {
            out.clear();
            out.extend_from_slice(row);
        }
        rows => {
            let weights: Vec<f32> = job.sequences.iter().map(|s| s.weight).collect();
            mix(rows, &weights, out);
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
