//! `Drafting`: which guesses a step checks, for all jobs that write.

use std::time::Instant;

use super::acceptance::{Acceptance, Source};
use super::costs::StepCosts;
use super::depth::{self, GuessedJob};
use super::model::{DraftModel, DraftRow};
use super::recent::Recent;
use super::{DraftDepth, DraftOptions, DraftStats};
use crate::EngineError;
use crate::job::{Facts, Job};
use crate::pages::Namespace;

/// Share of the time that may go into guesses which are not expected to pay, to learn whether they do.
const TRIAL_SHARE: f64 = 0.01;
/// What a trial counts as at least, as a share of a step: free ones would otherwise never end.
const TRIAL_COST_MIN: f64 = 0.1;
/// Guesses of such trials; with the id before them they are as many tokens as devices like.
const TRIALS: [usize; 5] = [1, 3, 7, 15, 31];
/// Guesses of a trial of a draft model.
const MODEL_TRIAL: usize = 3;
/// Where nothing was worth a check for this many steps, and looking for guesses takes a noticeable share
/// of them, as with many rows, it is done now and then only.
const IDLE_STEPS: u32 = 16;
const NOTICEABLE_SHARE: f64 = 0.002;
const NOW_AND_THEN: u32 = 16;
/// Most guesses of a draft model.
const MODEL_GUESSES_MAX: usize = 15;

/// Everything about guesses that outlives a step.
pub(crate) struct Drafting {
    options: DraftOptions,
    recent: Recent,
    model: Option<DraftModel>,
    /// Of all jobs together.
    acceptance: Acceptance,
    costs: StepCosts,
    /// Of one step of the draft model, by rows.
    model_costs: StepCosts,
    /// Seconds that may still go into trials.
    trial_seconds: f64,
    /// Steps in a row in which no guess was checked.
    idle_steps: u32,
    /// Seconds that looking for guesses took last, and that steps usually take.
    look_seconds: f64,
    step_seconds: f64,
    /// Why the draft model was given up, until someone looks.
    error: Option<EngineError>,
    /// Nothing is guessed and nothing remembered, but what steps cost.
    pub paused: bool,
    pub stats: DraftStats,
}

/// The guesses found for one job.
struct Found {
    /// Index among the active jobs.
    job: usize,
    depth: DraftDepth,
    /// Most guesses that have room.
    max: usize,
    source: Option<Source>,
    guesses: Vec<u32>,
}

impl Drafting {
    /// `recorded`: steps are recorded when they are new, which takes longer.
    pub fn new(options: DraftOptions, recorded: bool) -> Self {
        Drafting {
            recent: Recent::new(if options.lookup { options.recent_ids_max } else { 0 }),
            options,
            model: None,
            acceptance: Acceptance::default(),
            costs: StepCosts::new(recorded),
            model_costs: StepCosts::new(recorded),
            trial_seconds: 0.0,
            idle_steps: 0,
            look_seconds: 0.0,
            step_seconds: 0.0,
            error: None,
            paused: false,
            stats: DraftStats::default(),
        }
    }

    pub fn set_model(&mut self, model: DraftModel) {
        self.model = Some(model);
    }

    pub fn model(&self) -> Option<&DraftModel> {
        self.model.as_ref()
    }

    /// Why the draft model was given up, if it was and nobody has looked.
    pub fn take_error(&mut self) -> Option<EngineError> {
        self.error.take()
    }

    /// A step that only wrote took so long for so many tokens.
    pub fn note_step(&mut self, tokens: usize, seconds: f64) {
        self.costs.note(tokens, seconds);
        let usual = self.costs.seconds(tokens).unwrap_or(seconds);
        self.step_seconds = usual;
        // Not more than a few steps' worth, however long nothing was worth a trial.
        self.trial_seconds = (self.trial_seconds + TRIAL_SHARE * usual).min(8.0 * usual);
    }

    /// Prompt and output of a job that ended.
    pub fn remember(&mut self, job: &Job) {
        let scored = job.options.return_prompt_logprobs.is_some();
        if self.options.depth != DraftDepth::Off && !scored && !self.paused {
            let sequence = &job.sequences[0];
            self.recent.remember(sequence.namespace, &sequence.ids);
        }
    }

    /// Gives every job that writes its guesses for the next step. Nobody depends on them: a draft model
    /// that fails is given up, and what was found elsewhere is checked.
    pub fn propose(&mut self, active: &mut [Job], facts: &Facts) {
        if self.paused {
            return active.iter_mut().for_each(|job| job.draft.clear());
        }
        let began = Instant::now();
        self.recent.take_in();
        if self.dozes(active) {
            self.idle_steps = self.idle_steps.wrapping_add(1);
            active.iter_mut().for_each(|job| job.draft.clear());
            return;
        }
        let (mut jobs, mut tokens) = (0, 0);
        let mut found = Vec::new();
        for (idx, job) in active.iter_mut().enumerate() {
            job.draft.clear();
            if job.resting || !job.is_ready() {
                continue;
            }
            (jobs, tokens) = (jobs + 1, tokens + job.sequences.len());
            job.draft.learn(&job.sequences[0].ids, &mut self.acceptance);
            let depth = job.draft.depth.unwrap_or(self.options.depth);
            let max = guesses_max(job, depth).min(self.options.guesses_max);
            if max > 0 {
                found.push(self.look(idx, job, depth, max));
            }
        }
        if found.is_empty() {
            return;
        }
        if let Err(error) = self.ask_model(active, &mut found, jobs, tokens) {
            self.stats.model_failures += 1;
            self.error = Some(error);
            self.model = None;
        }
        for of in &mut found {
            rehearse(&active[of.job], of, facts.vocab);
            cut(&active[of.job], of, facts);
        }
        let looked: Vec<usize> = found.iter().map(|of| of.job).collect();
        self.settle(active, found, jobs, tokens);
        let guessed = active.iter().any(|job| !job.draft.guesses().is_empty());
        self.idle_steps = if guessed { 0 } else { self.idle_steps.wrapping_add(1) };
        let took = began.elapsed();
        for &idx in &looked {
            active[idx].draft.time += took / looked.len() as u32;
        }
        self.look_seconds = took.as_secs_f64();
        self.stats.seconds += self.look_seconds;
    }

    /// Whether it is not worth looking for guesses in this step.
    fn dozes(&self, active: &[Job]) -> bool {
        self.idle_steps > IDLE_STEPS
            && !self.idle_steps.is_multiple_of(NOW_AND_THEN)
            && self.look_seconds > NOTICEABLE_SHARE * self.step_seconds
            && active.iter().all(|job| job.draft.depth.is_none())
    }

    /// What the constraint forces, or else what is found in texts that were seen.
    fn look(&self, idx: usize, job: &mut Job, depth: DraftDepth, max: usize) -> Found {
        let mut of = Found { job: idx, depth, max, source: None, guesses: Vec::new() };
        let forced = job.constraint.as_ref().map(|slot| slot.forced()).unwrap_or_default();
        if !forced.is_empty() {
            of.guesses.extend(forced.iter().take(max));
            of.source = Some(Source::Forced);
            return of;
        }
        let Job { draft, sequences, .. } = job;
        let recent = self.recent_of(sequences[0].namespace);
        of.source =
            draft.look_up(&sequences[0].ids, self.options.lookup, recent, max, &mut of.guesses);
        of
    }

    fn recent_of(&self, namespace: Namespace) -> Option<&super::lookup::SuffixAutomaton> {
        self.options.lookup.then(|| self.recent.of(namespace)).flatten()
    }

    /// Lets the draft model guess for the jobs for which nothing likelier was found.
    fn ask_model(
        &mut self,
        active: &[Job],
        found: &mut [Found],
        jobs: usize,
        tokens: usize,
    ) -> Result<(), EngineError> {
        let Some(capacity) = self.model.as_ref().map(DraftModel::capacity) else { return Ok(()) };
        let mut asking: Vec<&mut Found> = Vec::new();
        for of in found {
            let job = &active[of.job];
            let by_model = job.draft.likely(Source::Model, &self.acceptance);
            let better = of
                .source
                .is_some_and(|source| job.draft.likely(source, &self.acceptance) >= by_model);
            let len = job.sequences[0].ids.len();
            of.max = of.max.min(MODEL_GUESSES_MAX.max(of.guesses.len()));
            if !better && len + of.max <= capacity {
                asking.push(of);
            }
        }
        let depth = self.model_depth(active, &asking, jobs, tokens);
        let Some(model) = &mut self.model else { return Ok(()) };
        let mut rows: Vec<DraftRow<'_>> = Vec::new();
        asking.retain(|of| {
            let own = match of.depth {
                DraftDepth::Fixed(n) => n,
                DraftDepth::Adaptive | DraftDepth::Off => depth,
            };
            let depth = own.min(of.max).min(MODEL_GUESSES_MAX);
            if depth > 0 {
                let sequence = &active[of.job].sequences[0];
                rows.push(DraftRow { sequence, depth, guesses: Vec::new() });
            }
            depth > 0
        });
        if rows.is_empty() {
            return Ok(());
        }
        let drafted = model.draft(&mut rows, self.options.probability_min)?;
        if let (Some(seconds), true) = (drafted.seconds, drafted.levels > 0) {
            self.model_costs.note(drafted.rows, seconds / drafted.levels as f64);
        }
        // Where it is not sure of anything, or has to catch up, what was found elsewhere stays.
        for (of, row) in asking.into_iter().zip(rows).filter(|(_, row)| !row.guesses.is_empty()) {
            (of.guesses, of.source) = (row.guesses, Some(Source::Model));
        }
        Ok(())
    }

    /// How many ids the draft model guesses for jobs that leave it to the engine.
    fn model_depth(
        &mut self,
        active: &[Job],
        asking: &[&mut Found],
        jobs: usize,
        tokens: usize,
    ) -> usize {
        let adaptive = asking.iter().filter(|of| of.depth == DraftDepth::Adaptive);
        let candidates: Vec<GuessedJob> = adaptive
            .map(|of| {
                let Job { sequences, draft, .. } = &active[of.job];
                let source = match draft.rehearsal {
                    Some(_) => Source::Rehearsed,
                    None => Source::Model,
                };
                GuessedJob {
                    rows: sequences.len(),
                    likely: draft.likely(source, &self.acceptance),
                    guesses: of.max.min(MODEL_GUESSES_MAX),
                }
            })
            .collect();
        let rows = candidates.len();
        let per_level = self.model_costs.seconds(rows);
        let depth = depth::choose_level(&candidates, jobs, tokens, &self.costs, per_level);
        if depth > 0 || rows == 0 {
            return depth;
        }
        let Some(alone) = self.costs.seconds(tokens) else { return 0 };
        let checked = self.costs.seconds(tokens + MODEL_TRIAL * rows).unwrap_or(alone);
        let cost = checked - alone + MODEL_TRIAL as f64 * per_level.unwrap_or(0.0);
        if self.try_out(cost, alone) { MODEL_TRIAL } else { 0 }
    }

    /// Whether there is time for a trial that makes a step of `alone` seconds so much longer; it is then
    /// spent.
    fn try_out(&mut self, seconds: f64, alone: f64) -> bool {
        let seconds = seconds.max(TRIAL_COST_MIN * alone);
        let affordable = seconds <= self.trial_seconds;
        if affordable {
            self.trial_seconds -= seconds;
        }
        affordable
    }

    /// Decides how many of the guesses are checked.
    fn settle(&mut self, active: &mut [Job], found: Vec<Found>, jobs: usize, tokens: usize) {
        let found: Vec<(Found, Source)> =
            found.into_iter().filter_map(|of| of.source.map(|source| (of, source))).collect();
        let is_adaptive = |of: &Found| of.depth == DraftDepth::Adaptive;
        let candidates: Vec<GuessedJob> = found
            .iter()
            .map(|(of, source)| GuessedJob {
                rows: active[of.job].sequences.len(),
                likely: active[of.job].draft.likely(*source, &self.acceptance),
                guesses: if is_adaptive(of) { of.guesses.len() } else { 0 },
            })
            .collect();
        let mut depths = depth::choose(&candidates, jobs, tokens, &self.costs);
        for ((of, _), depth) in found.iter().zip(&mut depths) {
            if let DraftDepth::Fixed(n) = of.depth {
                *depth = n.min(of.guesses.len());
            }
        }
        self.explore(&candidates, &mut depths, jobs, tokens);
        for ((of, source), depth) in found.iter().zip(depths) {
            let job = &mut active[of.job];
            let ids = &job.sequences[0].ids;
            let (len, newest) = (ids.len(), ids.last().copied().unwrap_or_default());
            job.draft.set(newest, &of.guesses[..depth], *source);
            let unchecked = of.guesses.first().copied().filter(|_| depth == 0);
            job.draft.set_unchecked(len, unchecked, *source);
        }
    }

    /// Checks more guesses of the likeliest candidate than are expected to pay, where that would pay if
    /// a number of tokens whose steps were not measured lately took no longer than fewer do.
    fn explore(
        &mut self,
        candidates: &[GuessedJob],
        depths: &mut [usize],
        jobs: usize,
        tokens: usize,
    ) {
        let with_more = candidates.iter().enumerate().filter(|(_, of)| of.guesses > 0);
        let likeliest = with_more.max_by(|(_, a), (_, b)| a.likely.total_cmp(&b.likely));
        let Some((idx, candidate)) = likeliest else { return };
        let chosen = || candidates.iter().zip(depths.iter());
        let fed = tokens + chosen().map(|(of, depth)| of.rows * depth).sum::<usize>();
        let written = jobs as f64 + chosen().map(|(of, depth)| of.gain(*depth)).sum::<f64>();
        let Some(seconds) = self.costs.seconds(fed) else { return };
        let rate = written / seconds;
        let depth = depths[idx];
        for guesses in TRIALS.into_iter().filter(|n| (depth + 1..=candidate.guesses).contains(n)) {
            let fed = fed + candidate.rows * (guesses - depth);
            if fed > self.costs.reach() {
                return;
            }
            if self.costs.is_fresh(fed) {
                continue;
            }
            let written = written + candidate.gain(guesses) - candidate.gain(depth);
            let least = self.costs.seconds_min(fed).unwrap_or(seconds);
            let usual = self.costs.seconds(fed).unwrap_or(least);
            if written / least > depth::GAIN_MIN * rate
                && self.try_out(usual - written / rate, seconds)
            {
                depths[idx] = guesses;
            }
            return;
        }
    }
}

/// How many guesses a job has room and use for.
fn guesses_max(job: &Job, depth: DraftDepth) -> usize {
    let wanted = match depth {
        DraftDepth::Off => 0,
        DraftDepth::Adaptive => DraftOptions::GUESSES_MAX,
        DraftDepth::Fixed(n) => n.min(DraftOptions::GUESSES_MAX),
    };
    // What a healed prompt end still takes is not known beforehand.
    if job.healing_bytes > 0 {
        return 0;
    }
    // Prompts of one job end differently, until an id is chosen for all of them.
    let newest = job.sequences[0].ids.last();
    if job.sequences.iter().any(|sequence| sequence.ids.last() != newest) {
        return 0;
    }
    let room = job.sequences.iter().map(|sequence| sequence.room()).min().unwrap_or(0);
    wanted.min(room).min(job.ids_left().saturating_sub(1))
}

/// Puts known ids in the place of guesses, or where there are none.
fn rehearse(job: &Job, of: &mut Found, vocab: usize) {
    let Some(rehearsal) = &job.draft.rehearsal else { return };
    let max = match of.source {
        Some(Source::Model) => of.guesses.len(),
        _ => of.max,
    };
    let written = job.sequences[0].ids.len() - job.prompt_len;
    rehearsal.guess(written, max, vocab, &mut of.guesses);
    of.source = Some(Source::Rehearsed);
}

/// Cuts guesses before an id that ends the text, that the model does not know, or that the
/// constraint does not allow.
fn cut(job: &Job, of: &mut Found, facts: &Facts) {
    let ends = |id: &u32| {
        let by_constraint = job.constraint.is_some() && facts.tokenizer.eos_ids().contains(id);
        job.options.stop_ids.contains(id) || by_constraint || *id as usize >= facts.vocab
    };
    let mut keep = of.guesses.iter().take_while(|id| !ends(id)).count();
    if let (Some(slot), false) = (&job.constraint, of.source == Some(Source::Forced)) {
        keep = slot.allowed(&of.guesses[..keep]);
    }
    of.guesses.truncate(keep);
    if keep == 0 {
        of.source = None;
    }
}
