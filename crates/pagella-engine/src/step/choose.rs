//! What a step does with its logits: jobs ask for what they need of their rows and choose.
//!
//! A job whose candidates do not decide gets its whole row and chooses again; nothing has happened to
//! it before.

use std::sync::Arc;
use std::time::Instant;

use rayon::prelude::*;

use crate::generator::Generator;
use crate::job::{Ending, Facts, Job, Record, Turn};
use crate::logit_rows::{LogitRows, RowAnswer, RowAsk};
use crate::sample::{AskBuffer, Scratch, mix};
use crate::schedule::PlannedStep;
use crate::trace::StepTrace;
use crate::{EngineError, Forward};

/// A choice from candidates takes about as long as this many logits of a whole row.
const NARROWED_WORK: usize = 1 << 14;

/// A row on its way through the sampler, kept between steps.
#[derive(Default)]
pub(crate) struct SampleBuffer {
    row: Vec<f32>,
    scratch: Scratch,
    /// What was asked of the row.
    ask: AskBuffer,
}

/// A job with its rows.
struct JobRows<'a> {
    job: &'a mut Job,
    buffer: &'a mut SampleBuffer,
    rows: &'a [usize],
    turn: Option<Turn>,
}

impl Generator {
    /// Waits for the step and gets what the jobs need of their rows, of which there are `n`. Those that
    /// score a prompt are needed whole.
    pub(super) fn read(
        &mut self,
        sampling: &[Sampling],
        n: usize,
        trace: &mut StepTrace,
    ) -> Result<(), EngineError> {
        let Generator { forward, active, buffers, rows, facts, .. } = self;
        buffers.resize_with(buffers.len().max(sampling.len()), SampleBuffer::default);
        let mut asks = vec![RowAsk::Whole; n];
        if forward.narrows() {
            for (of, buffer) in sampling.iter().zip(buffers) {
                let SampleBuffer { scratch, ask, .. } = buffer;
                // Several rows are mixed, which takes all of them.
                if let [row] = of.rows[..] {
                    asks[row] = active[of.job].ask(row, facts.vocab, scratch, ask);
                }
            }
        }
        forward.read(&asks, rows)?;
        trace.read();
        let whole = |row: &usize| matches!(rows.get(*row), RowAnswer::Whole(_));
        trace.whole_rows = (0..n).filter(whole).count();
        if rows.len() == n {
            Ok(())
        } else {
            Err(EngineError::LogitsShape { expected: n, found: rows.len() })
        }
    }

    /// Chooses an id for every job whose logits are there.
    pub(super) fn sample(
        &mut self,
        sampling: &[Sampling],
        trace: &mut StepTrace,
        records: &mut Vec<Record>,
    ) -> Vec<(u64, Record, Ending)> {
        let Generator { active, buffers, rows, facts, host, options, forward, counters, .. } = self;
        let of_job = |idx: usize| find_job(sampling, idx);
        let with_rows =
            active.iter_mut().enumerate().filter_map(|(i, job)| Some((job, of_job(i)?)));
        let mut jobs: Vec<JobRows<'_>> = with_rows
            .zip(buffers)
            .map(|((job, of), buffer)| JobRows { job, buffer, rows: &of.rows, turn: None })
            .collect();
        let work: usize = jobs.iter().map(|job| job.work(rows)).sum();
        // Waking threads for little costs more than it saves.
        let spread = jobs.len() > 1 && work >= options.parallel_logits_min;
        match spread.then(|| host.get()) {
            Some(Ok(pool)) => {
                pool.install(|| jobs.par_iter_mut().for_each(|job| job.run(rows, facts)));
            }
            // Without threads it takes longer, no more.
            Some(Err(_)) | None => jobs.iter_mut().for_each(|job| job.run(rows, facts)),
        }
        let failed = decide_the_rest(&mut jobs, rows, facts, forward.as_mut(), trace).err();
        let failed = failed.map(Arc::new);
        let mut endings = Vec::new();
        let now = Instant::now();
        for JobRows { job, turn, .. } in jobs {
            if let Some(time) = job.clock.note_tokens(job.new_tokens, now) {
                counters.note_token(time);
            }
            match (turn, &failed) {
                (Some(Turn { record, ending: None }), _) => records.push(record),
                (Some(Turn { record, ending: Some(ending) }), _) => {
                    endings.push((job.serial, record, ending));
                }
                (None, Some(error)) => {
                    endings.push((job.serial, job.record(), Ending::failed_by(error.clone())));
                }
                (None, None) => {}
            }
        }
        trace.sampled(sampling.len());
        endings
    }
}

/// Which rows of logits belong to a job.
pub(super) struct Sampling {
    /// Index of the job.
    pub job: usize,
    /// Numbers of its rows among those with logits.
    pub rows: Vec<usize>,
}

/// The jobs that choose an id in this step, in their order.
pub(super) fn sampling_jobs(planned: &PlannedStep) -> Vec<Sampling> {
    let mut jobs: Vec<Sampling> = Vec::with_capacity(planned.rows.len());
    let mut rows = 0;
    for row in &planned.rows {
        rows += row.logit_rows();
        if !row.logits.chooses() {
            continue;
        }
        let number = rows - 1;
        // Rows of one job follow each other.
        match jobs.last_mut().filter(|of| of.job == row.job) {
            Some(of) => of.rows.push(number),
            None => jobs.push(Sampling { job: row.job, rows: vec![number] }),
        }
    }
    jobs.sort_unstable_by_key(|of| of.job);
    jobs
}

/// What is sampled for the job with this index.
pub(super) fn find_job(sampling: &[Sampling], job: usize) -> Option<&Sampling> {
    sampling.binary_search_by_key(&job, |of| of.job).ok().map(|at| &sampling[at])
}

/// Reads the rows whose candidates did not decide, and lets their jobs choose from them.
fn decide_the_rest(
    jobs: &mut [JobRows<'_>],
    rows: &mut LogitRows,
    facts: &Facts,
    forward: &mut dyn Forward,
    trace: &mut StepTrace,
) -> Result<(), EngineError> {
    let mut asks = vec![RowAsk::Nothing; rows.len()];
    let undecided = jobs.iter().filter(|job| job.turn.is_none()).flat_map(|job| job.rows);
    undecided.for_each(|row| asks[*row] = RowAsk::Whole);
    let n = asks.iter().filter(|ask| matches!(ask, RowAsk::Whole)).count();
    if n == 0 {
        return Ok(());
    }
    trace.undecided_rows = n;
    forward.read(&asks, rows)?;
    let undecided = jobs.iter_mut().filter(|job| job.turn.is_none());
    undecided.for_each(|job| job.run(rows, facts));
    Ok(())
}

impl JobRows<'_> {
    /// How many logits there are to look at, or what takes as long.
    fn work(&self, rows: &LogitRows) -> usize {
        let of = |row: &usize| match rows.get(*row) {
            RowAnswer::Whole(logits) => logits.len(),
            RowAnswer::Narrowed(_) => NARROWED_WORK,
            RowAnswer::Nothing => 0,
        };
        self.rows.iter().map(of).sum()
    }

    /// Chooses, unless what is known of the row does not decide.
    fn run(&mut self, rows: &LogitRows, facts: &Facts) {
        let SampleBuffer { row, scratch, ask } = &mut *self.buffer;
        let alone = match self.rows {
            [only] => rows.get(*only),
            _ => RowAnswer::Nothing,
        };
        self.turn = match alone {
            RowAnswer::Narrowed(known) => self.job.turn_narrowed(known, ask, facts, scratch),
            RowAnswer::Whole(_) | RowAnswer::Nothing => {
                fill_row(self.job, self.rows, rows, row);
                Some(self.job.turn(row, &facts.tokenizer, scratch))
            }
        };
    }
}

/// The row a job samples from: its own, or the mix of several prompts.
fn fill_row(job: &Job, numbers: &[usize], rows: &LogitRows, out: &mut Vec<f32>) {
    let whole = |number: &usize| match rows.get(*number) {
        RowAnswer::Whole(logits) => Some(logits),
        RowAnswer::Narrowed(_) | RowAnswer::Nothing => None,
    };
    let rows: Vec<&[f32]> = numbers.iter().filter_map(whole).collect();
    match rows[..] {
        [row] => {
            out.clear();
            out.extend_from_slice(row);
        }
        _ => {
            let weights: Vec<f32> = job.sequences.iter().map(|s| s.weight).collect();
            mix(&rows, &weights, out);
        }
    }
}
