//! `Generator`: any number of jobs over one model and one cache, one step at a time.
//!
//! It has no thread of its own: whoever holds it calls [`Generator::step`] until nothing is left.
//! [`Worker`](crate::Worker) does that on a thread. State is split by owner: the page table owns
//! pages, the queue the waiting order, each job its ids and text; this file only hands them to each
//! other.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use pagella_backend::PAGE_TOKENS;
use pagella_text::Tokenizer;

use crate::adapter::{Adapters, DefaultAdapters, EngineId};
use crate::draft::{DraftModel, Drafting};
use crate::embed::{EmbedJob, Embeddings};
use crate::host::HostPool;
use crate::job::{Ending, EosReason, Facts, Job, JobOptions, JobSpec, JobState, Record, prepare};
use crate::logit_rows::LogitRows;
use crate::pages::PageTable;
use crate::sample::VocabSets;
use crate::schedule::{GeneratorOptions, Queue};
use crate::stats::{Counters, Stats};
use crate::step::SampleBuffer;
use crate::trace::StepTrace;
use crate::{EngineError, Forward};

/// Steps whose timings are kept.
const TRACE_STEPS_MAX: usize = 4096;

/// Tokens written to warm up.
const WARMUP_TOKENS: usize = 32;

/// Steps of every number of rows: one runs as it is, the next is recorded, the last is replayed.
const WARMUP_STEPS: usize = 3;

/// Any number of jobs over one model.
pub struct Generator {
    pub(crate) forward: Box<dyn Forward>,
    pub(crate) facts: Arc<Facts>,
    pub(crate) serials: Arc<AtomicU64>,
    pub(crate) options: GeneratorOptions,
    pub(crate) table: PageTable,
    pub(crate) queue: Queue,
    /// Started jobs in the order of their start.
    pub(crate) active: Vec<Job>,
    /// What is guessed, and what was learnt about it.
    pub(crate) drafting: Drafting,
    /// Texts that become vectors.
    pub(crate) embeddings: Embeddings,
    /// The last step found nothing to do, and nothing has changed since.
    pub(crate) stalled: bool,
    pub(crate) host: HostPool,
    pub(crate) rows: LogitRows,
    pub(crate) buffers: Vec<SampleBuffer>,
    pub(crate) counters: Counters,
    pub(crate) trace: VecDeque<StepTrace>,
    pub(crate) adapters: Adapters,
}

impl Generator {
    /// A generator over a model and its cache.
    pub fn new(
        forward: Box<dyn Forward>,
        tokenizer: Tokenizer,
        mut options: GeneratorOptions,
    ) -> Result<Self, EngineError> {
        let n_pages = forward.cache_tokens() / PAGE_TOKENS;
        let budget =
            options.step_tokens.unwrap_or(usize::MAX).min(forward.step_tokens_max()).max(1);
        options.step_tokens = Some(budget);
        options.batch_max = options.batch_max.clamp(1, budget);
        let context = options.context.unwrap_or(usize::MAX).min(forward.spec().context);
        let facts = Facts {
            sets: Arc::new(VocabSets::from_tokenizer(&tokenizer)),
            vocab: forward.spec().vocab,
            hidden: forward.spec().hidden,
            capacity: context.min(n_pages * PAGE_TOKENS),
            n_pages,
            batch_max: options.batch_max,
            spec: forward.spec().clone(),
            engine: EngineId::default(),
            default_adapters: DefaultAdapters::default(),
            tokenizer,
        };
        let drafting = Drafting::new(options.draft, !forward.recorded_tokens().is_empty());
        Ok(Generator {
            table: PageTable::new(n_pages),
            forward,
            facts: Arc::new(facts),
            serials: Arc::default(),
            host: HostPool::new(options.host_threads)?,
            drafting,
            adapters: Adapters::new(options.adapter_bytes_max),
            options,
            queue: Queue::default(),
            active: Vec::new(),
            embeddings: Embeddings::default(),
            stalled: false,
            rows: LogitRows::default(),
            buffers: Vec::new(),
            counters: Counters::new(),
            trace: VecDeque::new(),
        })
    }

    /// Lets a small model guess for this one. Its cache must have at least as many tokens as this one's.
    pub fn set_draft_model(&mut self, model: DraftModel) -> Result<(), EngineError> {
        let (found, expected) = (model.forward().cache_tokens(), self.forward.cache_tokens());
        if found < expected {
            return Err(EngineError::DraftCache { found, expected });
        }
        self.drafting.set_model(model);
        Ok(())
    }

    /// The model that guesses, if there is one.
    pub fn draft_model(&self) -> Option<&DraftModel> {
        self.drafting.model()
    }

    /// Checks a job and puts it into the queue. Returns its number; numbers grow and never repeat.
    pub fn enqueue(&mut self, spec: JobSpec) -> Result<u64, EngineError> {
        if self.queue.len() >= self.options.queue_max {
            return Err(self.busy());
        }
        let serial = self.serials.fetch_add(1, Ordering::Relaxed);
        self.queue_prepared(prepare(spec, serial, &self.facts)?);
        Ok(serial)
    }

    /// Several completions of one prompt, with seeds counting up. The prompt is computed once.
    pub fn enqueue_n(&mut self, spec: &JobSpec, n: usize) -> Result<Vec<u64>, EngineError> {
        if n > self.options.queue_max.saturating_sub(self.queue.len()) {
            return Err(self.busy());
        }
        let jobs = prepare_n(spec, n, &self.serials, &self.facts)?;
        let serials = jobs.iter().map(|job| job.serial).collect();
        jobs.into_iter().for_each(|job| self.queue_prepared(job));
        Ok(serials)
    }

    /// Puts a checked job into the queue, whose length the caller has looked at.
    pub(crate) fn queue_prepared(&mut self, job: Job) {
        self.stalled = false;
        self.queue.push(job);
    }

    /// Takes texts to make vectors of.
    pub(crate) fn queue_texts(&mut self, job: EmbedJob) {
        self.stalled = false;
        self.embeddings.push(job);
    }

    fn busy(&self) -> EngineError {
        EngineError::Busy { queued: self.queue.len(), queue_max: self.options.queue_max }
    }

    /// Ends a job. Its last record comes from here; `None` if there is no such job (any more). Texts
    /// that become vectors are forgotten without a word.
    pub fn cancel(&mut self, serial: u64) -> Option<Record> {
        if self.embeddings.cancel(serial, &mut self.table) {
            self.stalled = false;
            return None;
        }
        let record = self.end(serial, || Ending::of(EosReason::Cancelled));
        self.tidy_adapters();
        self.defragment_if_idle();
        record
    }

    /// Whether a job waits or runs.
    pub fn has_job(&self, serial: u64) -> bool {
        self.queue.get(serial).is_some() || self.active.iter().any(|job| job.serial == serial)
    }

    /// Writes a few tokens and forgets them, so that the first jobs do not pay for what is made on first
    /// use; they are not counted. Where a device records steps, that is done with the longest step and with every number of
    /// tokens it records, one of each row. Does nothing while there are jobs.
    pub fn warmup(&mut self) -> Result<(), EngineError> {
        if self.n_jobs() > 0 || self.embeddings.len() > 0 {
            return Ok(());
        }
        let counters = std::mem::replace(&mut self.counters, Counters::new());
        let trace = std::mem::take(&mut self.trace);
        self.drafting.paused = true;
        let warmed = self.warm_up();
        self.drafting.paused = false;
        (self.counters, self.trace) = (counters, trace);
        self.table.reset();
        warmed
    }

    fn warm_up(&mut self) -> Result<(), EngineError> {
        let GeneratorOptions { batch_max, queue_max, .. } = self.options;
        let rows_max = batch_max.min(queue_max).min(self.facts.n_pages);
        let mut sizes: Vec<usize> =
            self.forward.recorded_tokens().iter().map(|rows| *rows.min(&rows_max)).collect();
        sizes.dedup();
        if !sizes.is_empty() {
            let longest =
                self.options.step_tokens.unwrap_or(1).min(self.facts.capacity.saturating_sub(1));
            self.warm_up_rows(1, longest.max(1), 1)?;
        }
        // The largest first: memory that grows makes what was recorded before worthless.
        for rows in sizes.into_iter().rev() {
            self.warm_up_rows(rows, 1, WARMUP_STEPS)?;
        }
        self.warm_up_rows(1, 1, WARMUP_TOKENS)
    }

    /// Lets so many rows with prompts of so many tokens write together.
    fn warm_up_rows(
        &mut self,
        rows: usize,
        prompt_tokens: usize,
        new_tokens: usize,
    ) -> Result<(), EngineError> {
        let room = self.facts.capacity.saturating_sub(prompt_tokens);
        for row in 0..rows {
            let prompt = vec![(row % self.facts.vocab) as u32; prompt_tokens];
            let max_new_tokens = Some(new_tokens.min(room).max(1));
            let options = JobOptions { max_new_tokens, ..JobOptions::default() };
            self.enqueue(JobSpec::new(prompt, options)?)?;
        }
        while self.n_jobs() > 0 {
            for record in self.step() {
                if let Some(error) = record.eos.and_then(|done| done.error) {
                    self.clear_queue();
                    return Err(EngineError::Failed(error));
                }
            }
        }
        Ok(())
    }

    /// Ends every job; their last records.
    pub fn clear_queue(&mut self) -> Vec<Record> {
        let jobs = self.queue.jobs().iter().chain(&self.active);
        let mut serials: Vec<u64> = jobs.map(|job| job.serial).collect();
        serials.sort_unstable();
        serials.into_iter().filter_map(|serial| self.cancel(serial)).collect()
    }

    /// Removes a job, wherever it is, and gives its pages back.
    pub(crate) fn end(&mut self, serial: u64, ending: impl FnOnce() -> Ending) -> Option<Record> {
        let job = match self.queue.take(serial) {
            Some(job) => job,
            None => {
                let idx = self.active.iter().position(|job| job.serial == serial)?;
                self.close(idx)
            }
        };
        self.stalled = false;
        let record = job.stop(ending());
        self.note_end(&record);
        Some(record)
    }

    /// Ends every job after a panic in the middle of a step, when nothing between pages and jobs can
    /// be relied on. The cache is empty afterwards and the generator can be used.
    pub(crate) fn recover(&mut self) -> Vec<Record> {
        let jobs = self.queue.drain().into_iter().chain(std::mem::take(&mut self.active));
        let error = Arc::new(EngineError::Panicked);
        let records: Vec<Record> =
            jobs.map(|job| job.stop(Ending::failed_by(error.clone()))).collect();
        records.iter().for_each(|record| self.note_end(record));
        self.embeddings.fail_all(&error);
        self.table = PageTable::new(self.facts.n_pages);
        records
    }

    /// Takes an active job out and releases its pages.
    pub(crate) fn close(&mut self, idx: usize) -> Job {
        let mut job = self.active.remove(idx);
        for sequence in &mut job.sequences {
            sequence.close(0, &mut self.table);
        }
        job
    }

    /// Counts a finished job.
    pub(crate) fn note_end(&mut self, record: &Record) {
        if let Some(done) = &record.eos {
            self.counters.note_end(done);
        }
    }

    /// Waiting and running jobs.
    pub fn n_jobs(&self) -> usize {
        self.queue.len() + self.active.len()
    }

    /// Whether [`Generator::step`] could do something now. False without jobs and texts, and when
    /// everything rests or waits for a job that does.
    pub fn has_work(&self) -> bool {
        self.n_jobs() + self.embeddings.len() > 0 && !self.stalled
    }

    /// The next moment at which a job's time runs out.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.queue.jobs().iter().chain(&self.active).filter_map(|job| job.deadline).min()
    }

    /// Lets a job rest, or go on. It keeps its pages while it rests, unless others need them.
    pub fn set_resting(&mut self, serial: u64, rests: bool) {
        self.stalled = false;
        self.queue.set_resting(serial, rests);
        if let Some(job) = self.active.iter_mut().find(|job| job.serial == serial) {
            job.resting = rests;
        }
    }

    /// Forgets all cached pages; false while a job uses some.
    pub fn reset_page_table(&mut self) -> bool {
        self.table.reset()
    }

    /// Forgets the cached pages that no job uses; returns how many.
    pub fn clear_cache(&mut self) -> usize {
        self.table.forget_unused()
    }

    /// Jobs that have begun.
    pub(crate) fn active(&self) -> &[Job] {
        &self.active
    }

    /// Jobs that wait, in the order in which they may start.
    pub(crate) fn waiting(&self) -> Vec<&Job> {
        self.queue.order().into_iter().filter_map(|serial| self.queue.get(serial)).collect()
    }

    /// The model below.
    pub fn forward(&self) -> &dyn Forward {
        self.forward.as_ref()
    }

    /// Longest sequence, reply included, in tokens.
    pub fn capacity(&self) -> usize {
        self.facts.capacity
    }

    /// The page table, to look at.
    pub fn pages(&self) -> &PageTable {
        &self.table
    }

    /// Starts or stops recording page movements; [`Generator::take_page_events`] returns them.
    pub fn record_pages(&mut self, on: bool) {
        self.table.set_recording(on);
    }

    /// Page movements since the last call, oldest first.
    pub fn take_page_events(&mut self) -> Vec<crate::pages::PageEvent> {
        let mut events = Vec::new();
        self.table.take_events(&mut events);
        events
    }

    /// Timings of recent steps, oldest first.
    pub fn trace(&self) -> impl Iterator<Item = &StepTrace> {
        self.trace.iter()
    }

    pub(crate) fn push_trace(&mut self, step: StepTrace) {
        if self.trace.len() == TRACE_STEPS_MAX {
            self.trace.pop_front();
        }
        self.trace.push_back(step);
    }

    /// Everything worth counting, now.
    pub fn stats(&self) -> Stats {
        let in_state = |state| self.active.iter().filter(|job| job.state == state).count();
        let preempted = |job: &&Job| job.state == JobState::Preempted;
        let stats = self.counters.stats(
            crate::stats::QueueStats {
                pending: self.queue.len(),
                active: self.active.len(),
                decoding: in_state(JobState::Decode),
                prefilling: in_state(JobState::Prefill),
                preempted: self.queue.jobs().iter().filter(preempted).count(),
                resting: self
                    .queue
                    .jobs()
                    .iter()
                    .chain(&self.active)
                    .filter(|job| job.resting)
                    .count(),
                embedding: self.embeddings.len(),
            },
            self.table.counts(),
            self.table.evictions(),
            self.drafting.stats,
        );
        let (adapters, adapter_bytes) = (self.adapters().count(), self.adapter_bytes());
        Stats { adapters, adapter_bytes, ..stats }
    }

    /// Checks what must always hold between pages and jobs.
    pub fn check(&self) -> Result<(), String> {
        let sequences = self.active.iter().flat_map(|job| &job.sequences);
        let mut lists: Vec<&[u32]> = sequences.clone().map(|s| s.pages.as_slice()).collect();
        lists.push(self.embeddings.pages());
        self.table.check()?;
        self.table.check_references(&lists)?;
        sequences.clone().try_for_each(|sequence| sequence.check(&self.table))?;
        let waiting = self.queue.jobs().iter().flat_map(|job| &job.sequences);
        match waiting.into_iter().find(|sequence| !sequence.pages.is_empty()) {
            Some(_) => Err("a waiting job holds pages".to_owned()),
            None => Ok(()),
        }
    }
}

/// Checks a request once for each of `n` completions.
pub(crate) fn prepare_n(
    spec: &JobSpec,
    n: usize,
    serials: &AtomicU64,
    facts: &Facts,
) -> Result<Vec<Job>, EngineError> {
    let jobs = (0..n).map(|idx| {
        let mut spec = spec.clone();
        let seed = &mut spec.options.sampling.seed;
        *seed = seed.wrapping_add(idx as u64);
        let serial = serials.fetch_add(1, Ordering::Relaxed);
        prepare(spec, serial, facts)
    });
    jobs.collect()
}
