//! Jobs in the engine, and everything a request holds while they run. Dropping it gives all of it
//! back: jobs are cancelled, places and counts are free, the request is no longer listed.

use std::sync::Arc;
use std::time::Instant;

use pagella_conversation::{Ending, Splitter};
use pagella_engine::constraint::{Block, ConstraintSpec};
use pagella_engine::{
    BoxedConstraint, Completion, EosReason, JobOptions, JobSpec, JobStream, Record, Stage,
};
use pagella_text::{AddBos, EncodeBudget, Span};
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::choices::Choices;
use super::cut_short::CutShort;
use super::ending::{answer_finish_reason, finish_reason, text_error};
use super::journal::Journal;
use super::request::GenerationRequest;
use super::shape::constraint_limits;
use crate::access::{AccessEntry, Facts, Times};
use crate::adapters::Signature;
use crate::admission::Ticket;
use crate::app::{App, Phase};
use crate::call::Call;
use crate::fields::out_of_range;
use crate::metrics::Lead;
use crate::model::{Closing, ServedModel};
use crate::requests::{Listed, Live, Progress};
use crate::wire::error::{ApiError, Code};

/// A prompt as ids, and what to steer away from.
pub struct Prompt {
    /// Token ids.
    pub ids: Vec<u32>,
    /// Ids of the negative prompt.
    pub negative: Option<Vec<u32>>,
}

/// A request that has entered: it is counted and listed.
pub struct Entered {
    pub(crate) ticket: Ticket,
    pub(crate) listed: Listed,
    pub(crate) access: Arc<AccessEntry>,
    pub(crate) phases: watch::Receiver<Phase>,
}

/// A request whose jobs run.
pub struct Running {
    /// The jobs' records.
    choices: Choices,
    /// What the request counts for.
    pub ticket: Ticket,
    /// Finished jobs.
    pub done: Vec<Option<Completion>>,
    /// Tokens of all prompts.
    pub prompt_tokens: usize,
    /// What the answer says of what computed it.
    pub signature: Signature,
    listed: Listed,
    access: Arc<AccessEntry>,
    cut_short: CutShort,
    /// Who answers.
    model: Arc<ServedModel>,
    prompt_field: &'static str,
    app: Arc<App>,
    /// Jobs per prompt.
    n: usize,
    /// What passed before the engine had the jobs.
    lead: Lead,
    /// Errors may say what they came from.
    traces: bool,
    _place: Option<OwnedSemaphorePermit>,
}

/// The error of a server that is ending.
pub fn draining() -> ApiError {
    ApiError::new(Code::Draining, "the server is shutting down: ask another one, or later")
}

/// Lets a request in, before anything costly is done for it.
pub fn enter(call: &Call) -> Result<Entered, ApiError> {
    if call.app.phase() >= Phase::Draining {
        return Err(draining());
    }
    let key = &call.caller.key;
    let ticket = call.app.admission.enter(key, call.app.model.batch_max())?;
    let listed = call.app.requests.list(&call.id, call.route.path, &key.name);
    let (access, phases) = (call.access.clone(), call.app.phases());
    access.note(|facts| facts.phase = Some(Progress::Preparing.name()));
    Ok(Entered { ticket, listed, access, phases })
}

impl Entered {
    /// Submits `ask.n` jobs per prompt. `prompt_field` is what errors call the prompt.
    pub async fn submit(
        self,
        call: &Call,
        model: &Arc<ServedModel>,
        generation: GenerationRequest,
        prompts: Vec<Prompt>,
        prompt_field: &'static str,
    ) -> Result<Running, ApiError> {
        let most = call.app.settings.limits.max_choices;
        if prompts.len().saturating_mul(generation.n) > most {
            let allowed = format!("so few that there are at most {most} choices");
            return Err(out_of_range("n", &allowed));
        }
        let prompt_tokens = prompts.iter().map(|prompt| prompt.ids.len()).sum();
        self.note(model, &generation, prompts.len(), prompt_tokens);
        let Entered { ticket, listed, access, mut phases } = self;
        let signature = generation.signature.clone();
        let GenerationRequest { mut job, constraint, constraint_field, block, n, .. } = generation;
        job.prediction = expected_ids(call, model, generation.prediction).await?;
        if let Some(block) = &block {
            listed.live.reasons(block.switch.clone());
        }
        let constraint = compile(call, model, constraint, block, constraint_field).await?;
        listed.live.reach(Progress::Queued);
        access.note(|facts| facts.phase = Some(Progress::Queued.name()));
        ticket.is_jobs(n * prompts.len());
        let most_tokens = job.max_new_tokens;
        let tokens = prompt_tokens + n * most_tokens.unwrap_or(0);
        let asked = Instant::now();
        let place = turn(&ticket, &mut phases, tokens, job.priority).await?;
        let waited = asked.elapsed();
        let cut_short = CutShort::watch(phases, model.closings(), listed.live.clone());
        let model = model.clone();
        let (submitter, journal) = (model.clone(), Journal::of(call));
        let submit = move || {
            if let Some(journal) = journal {
                journal.write(&submitter, &job, n, &prompts);
            }
            let at = Instant::now();
            let jobs = submit_all(&submitter, &job, constraint.as_ref(), n, prompts, prompt_field);
            Ok((jobs?, at))
        };
        let (streams, submitted) = call.app.blocking.run(submit).await?;
        let lead = Lead { passed: submitted.saturating_duration_since(call.begun), waited };
        ticket.charge(prompt_tokens);
        call.app.metrics.note_asked(n, most_tokens);
        let done = streams.iter().map(|_| None).collect();
        let choices = Choices::new(streams);
        listed.live.owns(choices.cancellers());
        Ok(Running {
            choices,
            ticket,
            done,
            prompt_tokens,
            signature,
            listed,
            access,
            cut_short,
            model,
            prompt_field,
            app: call.app.clone(),
            n,
            lead,
            traces: call.traces(),
            _place: place,
        })
    }
}

impl Entered {
    /// Lists and writes down what is asked of whom.
    fn note(
        &self,
        model: &ServedModel,
        generation: &GenerationRequest,
        n_prompts: usize,
        prompt_tokens: usize,
    ) {
        let signature = &generation.signature;
        self.listed.live.prompt_is(prompt_tokens);
        self.listed.live.adapter_is(signature.names.as_deref());
        self.access.note(|facts| {
            facts.prompt_tokens = prompt_tokens;
            facts.model = Some(model.parts.id.clone());
            facts.adapter.clone_from(&signature.adapter);
            facts.n = n_prompts * generation.n;
        });
    }
}

/// What the answer is expected to be, as ids. No answer is longer than the context, so what lies
/// beyond cannot come.
async fn expected_ids(
    call: &Call,
    model: &Arc<ServedModel>,
    text: Option<String>,
) -> Result<Vec<u32>, ApiError> {
    let Some(text) = text else { return Ok(Vec::new()) };
    let model = model.clone();
    let encode = move |budget: EncodeBudget| {
        let encoded =
            model.parts.tokenizer.encode_within(&[Span::Text(text)], AddBos::Never, &budget);
        let mut ids = encoded.map_err(|error| text_error(&error).at("prediction"))?;
        ids.truncate(model.capacity());
        Ok(ids)
    };
    call.app.blocking.prepare(call.body_bytes, encode).await
}

/// What the text must look like, compiled; `None` where it may be anything. `field` is what errors
/// blame.
async fn compile(
    call: &Call,
    model: &Arc<ServedModel>,
    spec: Option<ConstraintSpec>,
    block: Option<Block>,
    field: &'static str,
) -> Result<Option<BoxedConstraint>, ApiError> {
    if spec.is_none() && block.is_none() {
        return Ok(None);
    }
    let (model, app) = (model.clone(), call.app.clone());
    let compile = move || {
        let limits = constraint_limits(&app.settings.limits);
        let times = &app.metrics.constraint_time;
        model.compile(spec.as_ref(), block.as_ref(), &limits, times)
    };
    let compiled = call.app.blocking.run(compile).await;
    let blame = |error: ApiError| match error.code.status().as_u16() {
        400 => error.at(field),
        _ => error,
    };
    compiled.map_err(blame)
}

/// Waits until it is a request's turn; its place in the batch is held by what is returned.
async fn turn(
    ticket: &Ticket,
    phases: &mut watch::Receiver<Phase>,
    tokens: usize,
    priority: i32,
) -> Result<Option<OwnedSemaphorePermit>, ApiError> {
    let turn = async {
        let place = ticket.place().await;
        ticket.turn(tokens, priority).await;
        place
    };
    tokio::select! {
        place = turn => Ok(place),
        _ = phases.wait_for(|phase| *phase >= Phase::Draining) => Err(draining()),
    }
}

fn submit_all(
    model: &ServedModel,
    options: &JobOptions,
    constraint: Option<&BoxedConstraint>,
    n: usize,
    prompts: Vec<Prompt>,
    prompt_field: &str,
) -> Result<Vec<JobStream>, ApiError> {
    let mut streams = Vec::with_capacity(n * prompts.len());
    for prompt in prompts {
        let options = JobOptions { constraint: constraint.cloned(), ..options.clone() };
        let scale = options.sampling.cfg_scale.unwrap_or(1.0);
        let mut job = JobSpec::new(prompt.ids, options);
        if let Some(negative) = prompt.negative {
            job = job.and_then(|job| job.guided_by(negative, scale));
        }
        let submitted = job.and_then(|job| model.parts.worker.submit_n(&job, n));
        streams.extend(submitted.map_err(|error| model.explain(&error, prompt_field))?);
    }
    Ok(streams)
}

/// Why a model stops answering, when it does.
pub async fn closes(closings: &mut watch::Receiver<Option<Closing>>) -> Closing {
    let closing = match closings.wait_for(Option::is_some).await {
        Ok(closing) => *closing,
        // The model is held while its answers are awaited.
        Err(_) => None,
    };
    closing.unwrap_or(Closing::Unloading)
}

impl Running {
    /// Counts and writes down how an answer ended: with calls, with what began like a call and is
    /// none, with so much reasoning.
    pub fn note_ending(&self, ending: &Ending, splitter: &Splitter) {
        let finish = answer_finish_reason(ending).ok();
        if finish == Some("tool_calls") {
            self.app.metrics.note_calls();
        }
        self.access.note(|facts| {
            facts.finish = finish.or(facts.finish);
            facts.reasoning_tokens += splitter.reasoning_tokens();
        });
        if let Some((unread, format)) = splitter.unread_calls() {
            self.app.metrics.note_tool_parse_failures(unread, format);
            self.app
                .issue("tool_call", "an answer has a call that cannot be read: sent as content");
        }
    }

    /// The request while it lives, by which it can be ended.
    pub fn live(&self) -> Arc<Live> {
        self.listed.live.clone()
    }

    /// How many choices there are.
    pub fn n_choices(&self) -> usize {
        self.choices.len()
    }

    /// Whether all jobs have ended.
    pub fn is_done(&self) -> bool {
        self.done.iter().all(Option::is_some)
    }

    /// Whether the engine has begun with any of the jobs.
    pub fn has_begun(&self) -> bool {
        self.listed.live.progress() > Progress::Queued
    }

    /// The next record and whose it is; `None` when all jobs have ended well.
    pub async fn next(&mut self) -> Result<Option<(usize, Record)>, ApiError> {
        let traces = self.traces;
        self.next_record().await.map_err(|error| error.traced(traces))
    }

    async fn next_record(&mut self) -> Result<Option<(usize, Record)>, ApiError> {
        let next = self.cut_short.or(self.choices.next()).await?;
        let Some((idx, item)) = next else { return Ok(None) };
        let record = item.map_err(|error| self.model.explain(&error, self.prompt_field))?;
        self.note(idx, &record)?;
        Ok(Some((idx, record)))
    }

    fn note(&mut self, idx: usize, record: &Record) -> Result<(), ApiError> {
        let before = self.listed.live.progress();
        let progress = match record.stage {
            Stage::Streaming => Progress::Decode,
            Stage::Started | Stage::Prefill => Progress::Prefill,
        };
        if progress > before {
            self.ticket.begin();
            self.listed.live.reach(progress);
            self.access.note(|facts| facts.phase = Some(progress.name()));
        }
        self.listed.live.wrote(record.token_ids.len());
        let Some(done) = &record.eos else { return Ok(()) };
        let reason = done.eos_reason;
        self.ticket.charge(done.new_tokens);
        let lead = self.lead;
        self.app.metrics.note_job(done, lead, !idx.is_multiple_of(self.n.max(1)));
        let finish = finish_reason(reason);
        self.access.note(|facts| add(facts, done, lead, finish.as_ref().ok().copied()));
        finish?;
        self.done[idx] = Some((**done).clone());
        if self.is_done() {
            self.ticket.end();
        }
        Ok(())
    }

    /// Reads all records to the end, joined by choice.
    pub async fn finish(&mut self) -> Result<Vec<Record>, ApiError> {
        self.finish_and_tell(|_, _| ()).await
    }

    /// The same, and tells whose record came as it comes.
    pub async fn finish_and_tell(
        &mut self,
        mut tell: impl FnMut(usize, &Record) + Send,
    ) -> Result<Vec<Record>, ApiError> {
        let mut all: Vec<Option<Record>> = (0..self.n_choices()).map(|_| None).collect();
        while let Some((idx, record)) = self.next().await? {
            tell(idx, &record);
            match &mut all[idx] {
                Some(earlier) => earlier.merge(record),
                empty => *empty = Some(record),
            }
        }
        all.into_iter().map(|record| record.ok_or_else(ApiError::internal)).collect()
    }
}

/// Adds a job that has ended to what is known of its request.
fn add(facts: &mut Facts, done: &Completion, lead: Lead, finish: Option<&'static str>) {
    facts.new_tokens += done.new_tokens;
    facts.cached_tokens = facts.cached_tokens.max(done.cached_tokens);
    (facts.finish, facts.eos) = (finish, Some(done.eos_reason.name()));
    facts.is_cancelled = done.eos_reason == EosReason::Cancelled;
    let Times { queue, first_token, prefill, decode } = facts.times;
    facts.times = Times {
        queue: queue.max(Some(lead.waited + done.time_enqueued)),
        first_token: first_token.max(done.time_to_first_token.map(|time| lead.passed + time)),
        prefill: prefill.max(Some(done.time_prefill)),
        decode: decode.max(Some(done.time_generate)),
    };
    facts.warn(done.warnings.iter().cloned());
}
