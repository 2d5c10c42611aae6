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

/// A choice from candidates takes about as long as this many logits of a whole row: some 1 µs, text and
/// records included.
const NARROWED_WORK: usize = 1 << 11;

/// Rows of a job on their way through the sampler, kept between steps.
#[derive(Default)]
pub(crate) struct SampleBuffer {
    row: Vec<f32>,
    scratch: Scratch,
    /// What was asked of each of its rows.
    asks: Vec<AskBuffer>,
}

/// A job with its rows.
struct JobRows<'a> {
    job: &'a mut Job,
    buffer: &'a mut SampleBuffer,
    /// By guess, then by prompt: see [`Sampling`].
    positions: &'a [Vec<usize>],
    /// Ids before the first choice.
    len: usize,
    /// Right and wrong guesses before.
    known: (usize, usize),
    /// The position whose choice is to be made; behind the last one when none is.
    next: usize,
    turns: Vec<Turn>,
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
        let narrows = forward.narrows();
        if narrows {
            sampling.iter().for_each(|of| active[of.job].append_guesses(of.guesses()));
            for (of, buffer) in sampling.iter().zip(buffers) {
                ask_of(of, &active[of.job], facts.vocab, buffer, &mut asks);
            }
        }
        let read = forward.read(&asks, rows);
        if narrows {
            sampling.iter().for_each(|of| active[of.job].remove_guesses(of.guesses()));
        }
        read?;
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
        let draft = &mut self.drafting.stats;
        let of_job = |idx: usize| find_job(sampling, idx);
        let with_rows =
            active.iter_mut().enumerate().filter_map(|(i, job)| Some((job, of_job(i)?)));
        let mut jobs: Vec<JobRows<'_>> = with_rows
            .zip(buffers)
            .map(|((job, of), buffer)| JobRows::new(job, buffer, &of.positions))
            .collect();
        let work: usize = jobs.iter().map(|job| job.work(rows)).sum();
        // Waking threads for little costs more than it saves, and so does waking more than there is
        // work for.
        let spread = jobs.len() > 1 && work >= options.parallel_logits_min;
        let pieces = (2 * work).checked_div(options.parallel_logits_min).unwrap_or(jobs.len());
        let piece_jobs = jobs.len().div_ceil(pieces.max(1)).max(1);
        match spread.then(|| host.get()) {
            Some(Ok(pool)) => pool.install(|| {
                let jobs = jobs.par_iter_mut().with_min_len(piece_jobs);
                jobs.for_each(|job| job.run(rows, facts));
            }),
            // Without threads it takes longer, no more.
            Some(Err(_)) | None => jobs.iter_mut().for_each(|job| job.run(rows, facts)),
        }
        let failed = decide_the_rest(&mut jobs, rows, facts, forward.as_mut(), trace).err();
        let failed = failed.map(Arc::new);
        let mut endings = Vec::new();
        let now = Instant::now();
        let guessed = sampling.iter().map(Sampling::guesses).sum::<usize>() as u64;
        (draft.guessed, draft.steps) =
            (draft.guessed + guessed, draft.steps + u64::from(guessed > 0));
        for JobRows { job, turns, positions, next, known, .. } in jobs {
            draft.note_accepted(job.draft.accepted - known.0);
            draft.rejected += (job.draft.rejected - known.1) as u64;
            if let Some((n, time)) = job.clock.note_tokens(job.new_tokens, now) {
                (0..n).for_each(|_| counters.note_token(time));
            }
            let undecided = next < positions.len();
            for Turn { record, ending } in turns {
                match ending {
                    None => records.push(record),
                    Some(ending) => endings.push((job.serial, record, ending)),
                }
            }
            if let (true, Some(error)) = (undecided, &failed) {
                endings.push((job.serial, job.record(), Ending::failed_by(error.clone())));
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
    /// Numbers of its rows among those with logits: for the next choice and for that after each guess,
    /// those of all its prompts.
    positions: Vec<Vec<usize>>,
}

impl Sampling {
    /// Guesses that are checked.
    pub fn guesses(&self) -> usize {
        self.positions.len().saturating_sub(1)
    }
}

/// The jobs that choose ids in this step, in their order.
pub(super) fn sampling_jobs(planned: &PlannedStep) -> Vec<Sampling> {
    let mut jobs: Vec<Sampling> = Vec::with_capacity(planned.rows.len());
    let mut rows = 0;
    for row in &planned.rows {
        rows += row.logit_rows();
        if !row.logits.chooses() {
            continue;
        }
        let numbers = rows - 1 - row.guesses()..rows;
        // Rows of one job follow each other.
        match jobs.last_mut().filter(|of| of.job == row.job) {
            Some(of) => of.positions.iter_mut().zip(numbers).for_each(|(of, n)| of.push(n)),
            None => {
                let positions = numbers.map(|number| vec![number]).collect();
                jobs.push(Sampling { job: row.job, positions });
            }
        }
    }
    jobs.sort_unstable_by_key(|of| of.job);
    jobs
}

/// What a job needs of its rows, behind whose ids the guesses stand.
fn ask_of<'a>(
    of: &Sampling,
    job: &'a Job,
    vocab: usize,
    buffer: &'a mut SampleBuffer,
    asks: &mut [RowAsk<'a>],
) {
    let SampleBuffer { scratch, asks: buffers, .. } = buffer;
    buffers.resize_with(buffers.len().max(of.positions.len()), AskBuffer::default);
    for ((guesses, rows), buffer) in of.positions.iter().enumerate().zip(buffers) {
        // Several rows are mixed, which takes all of them.
        if let [row] = rows[..] {
            let unknown = of.guesses() - guesses;
            asks[row] = job.ask(row, guesses, unknown, vocab, scratch, buffer);
        }
    }
}

/// What is sampled for the job with this index.
pub(super) fn find_job(sampling: &[Sampling], job: usize) -> Option<&Sampling> {
    sampling.binary_search_by_key(&job, |of| of.job).ok().map(|at| &sampling[at])
}

/// Reads the rows whose candidates did not decide, and lets their jobs choose from them. A job that
/// goes on behind a guess may need another.
fn decide_the_rest(
    jobs: &mut [JobRows<'_>],
    rows: &mut LogitRows,
    facts: &Facts,
    forward: &mut dyn Forward,
    trace: &mut StepTrace,
) -> Result<(), EngineError> {
    loop {
        let mut asks = vec![RowAsk::Nothing; rows.len()];
        let undecided = jobs.iter().filter_map(|job| job.positions.get(job.next)).flatten();
        undecided.for_each(|row| asks[*row] = RowAsk::Whole);
        let n = asks.iter().filter(|ask| matches!(ask, RowAsk::Whole)).count();
        if n == 0 {
            return Ok(());
        }
        trace.undecided_rows += n;
        forward.read(&asks, rows)?;
        jobs.iter_mut().for_each(|job| job.run(rows, facts));
    }
}

impl<'a> JobRows<'a> {
    fn new(job: &'a mut Job, buffer: &'a mut SampleBuffer, positions: &'a [Vec<usize>]) -> Self {
        let len = job.sequences[0].ids.len();
        let known = (job.draft.accepted, job.draft.rejected);
        JobRows { job, buffer, positions, len, known, next: 0, turns: Vec::new() }
    }

    /// How many logits there are to look at, or what takes as long.
    fn work(&self, rows: &LogitRows) -> usize {
        let of = |row: &usize| match rows.get(*row) {
            RowAnswer::Whole(logits) => logits.len(),
            RowAnswer::Narrowed(_) => NARROWED_WORK,
            RowAnswer::Nothing => 0,
        };
        self.positions.iter().flatten().map(of).sum()
    }

    /// Chooses id after id, until what is known of a row does not decide, or no row is left that
    /// follows the ids that were chosen.
    fn run(&mut self, rows: &LogitRows, facts: &Facts) {
        while let Some(numbers) = self.positions.get(self.next) {
            let Some(turn) = self.choose(numbers, rows, facts) else { return };
            let ended = turn.ending.is_some();
            self.turns.push(turn);
            let guesses = self.positions.len() - 1;
            let at = self.next;
            let guess = self.job.draft.guesses().get(at).filter(|_| at < guesses);
            let ids = &self.job.sequences[0].ids;
            let came = ids.len() == self.len + at + 1 && ids.last() == guess && guess.is_some();
            if came && !ended {
                self.next += 1;
                continue;
            }
            // A guess behind the end of the text was neither right nor wrong.
            let right = at + usize::from(came);
            self.job.draft.checked(guesses, right, !ended && at < guesses);
            self.next = self.positions.len();
        }
    }

    /// Chooses one id from these rows; `None` if what is known of them does not decide.
    fn choose(&mut self, numbers: &[usize], rows: &LogitRows, facts: &Facts) -> Option<Turn> {
        let SampleBuffer { row, scratch, asks } = &mut *self.buffer;
        if let [only] = numbers
            && let RowAnswer::Narrowed(known) = rows.get(*only)
        {
            return self.job.turn_narrowed(known, asks.get(self.next)?, facts, scratch);
        }
        fill_row(self.job, numbers, rows, row)?;
        Some(self.job.turn(row, &facts.tokenizer, scratch))
    }
}

/// The row a job samples from: its own, or the mix of several prompts. `None` if one of them was not
/// read.
fn fill_row(job: &Job, numbers: &[usize], rows: &LogitRows, out: &mut Vec<f32>) -> Option<()> {
    let whole = |number: &usize| match rows.get(*number) {
        RowAnswer::Whole(logits) => Some(logits),
        RowAnswer::Narrowed(_) | RowAnswer::Nothing => None,
    };
    let rows: Vec<&[f32]> = numbers.iter().map(whole).collect::<Option<_>>()?;
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
    Some(())
}
