//! A conversation that is being answered: from a checked request through template, admission and
//! engine to the parts of its answers. Every dialect that has conversations answers from here.

use std::sync::Arc;
use std::time::Instant;

use pagella_conversation::tools::ToolPlan;
use pagella_conversation::{AnswerStyle, Ending, Part, SplitPlan, Splitter, Whole};
use pagella_engine::Record;
use pagella_engine::constraint::ConstraintSpec;
use pagella_text::{AddBos, EncodeBudget, Tokenizer};

use super::input::ChatInput;
use super::prompt::{ChatPrompt, Encoded};
use super::reasoning::{ReasoningRequest, style};
use crate::call::Call;
use crate::fields::unsupported;
use crate::generate::ending::text_error;
use crate::generate::fields::GenerationFields;
use crate::generate::logprobs::LogprobRequest;
use crate::generate::parameters::Parameters;
use crate::generate::request::{Delivery, GenerationRequest};
use crate::generate::sampling::ZeroTopP;
use crate::generate::shape::constraint_limits;
use crate::generate::submit::{Entered, Prompt, Running, enter};
use crate::generate::usage::Usage;
use crate::log::conversation::Kept;
use crate::model::ServedModel;
use crate::settings::Toggle;
use crate::wire::error::ApiError;

/// A conversation that is to be answered. Every dialect reads its own fields into one.
pub struct ChatRequest {
    /// Messages, tools and how they are rendered.
    pub prompt: ChatPrompt,
    /// The job, and how to answer.
    pub generation: GenerationRequest,
    /// What is done with reasoning.
    pub reasoning: ReasoningRequest,
    /// Which log-probabilities are reported.
    pub logprobs: Option<LogprobRequest>,
    /// What errors call the prompt.
    pub prompt_field: &'static str,
    /// Ids of what was said before; the prompt is then kept, so that others can go on from it.
    pub context: Option<Vec<u32>>,
}

impl ChatRequest {
    /// A conversation with the fields that all routes share. `top_p: 0` leaves one candidate.
    pub fn new(
        call: &Call,
        generation: (&GenerationFields, &Parameters),
        input: ChatInput,
        model: &ServedModel,
    ) -> Result<Self, ApiError> {
        let generation = GenerationRequest::read(call, generation, model, ZeroTopP::One)?;
        let settings = model.conversation(&call.app.settings.model.conversation);
        let reasoning = ReasoningRequest::usual(&settings.reasoning);
        let prompt = ChatPrompt::new(call, input, model)?;
        let prompt_field = "messages";
        Ok(ChatRequest {
            prompt,
            generation,
            reasoning,
            logprobs: None,
            prompt_field,
            context: None,
        })
    }

    /// Renders, waits to be let in and submits. Everything that can be wrong with a request is found
    /// before this returns.
    pub async fn start(self, call: &Call, model: &Arc<ServedModel>) -> Result<Talk, ApiError> {
        let ChatRequest { prompt, mut generation, reasoning, logprobs, prompt_field, context } =
            self;
        if let Some(logprobs) = logprobs {
            logprobs.apply(&mut generation.job);
        }
        let tokenizer = &model.parts.tokenizer;
        let entered = enter(call)?;
        let wanted = generation.constraint.clone();
        let tools = match prompt.tools().cloned() {
            Some(tools) => Some(enforceable(call, model, wanted, tools).await?),
            None => None,
        };
        let unenforced = tools.as_ref().map_or(Vec::new(), |tools| tools.set.unenforced.clone());
        call.access.note(|facts| facts.warn(unenforced.iter().map(|n| format!("ignored {n}"))));
        if let Some(tools) = &tools {
            shape_calls(&mut generation, tools, tokenizer);
        }
        let settings = model.conversation(&call.app.settings.model.conversation);
        let style = style(&settings.reasoning, prompt.source(), tokenizer);
        if style == AnswerStyle::Channels {
            refuse_in_channels(&generation, &reasoning)?;
        }
        generation.job.shown_ids.extend(style.shown_ids(tokenizer));
        let (encoder, negative) = (model.clone(), generation.negative.clone());
        let of_answer = style.clone();
        let kept = Kept::of(call);
        let encode = move |budget: EncodeBudget| {
            let budget = budget.within(encoder.capacity());
            let encoded = prompt.encode_opening(&encoder, &of_answer, &budget);
            if let Some(kept) = kept {
                kept.write(encoded.as_ref().ok().map(|encoded| encoded.text.as_str()));
            }
            let Encoded { ids, opening, .. } = encoded.map_err(|error| error.at(prompt_field))?;
            let ids = behind(context.as_deref().unwrap_or_default(), ids, &encoder);
            let kept = context.map(|_| ids.clone()).unwrap_or_default();
            let negative = negative.map(|system| prompt.with_system(&system));
            let negative =
                negative.map(|other| other.encode(&encoder, AddBos::Auto, &budget)).transpose()?;
            Ok((Prompt { ids, negative }, opening, kept))
        };
        let (prompt, opening, kept) = call.app.blocking.prepare(call.body_bytes, encode).await?;
        let inside = match settings.reasoning.start_in_reasoning {
            Toggle::On => true,
            Toggle::Off => false,
            Toggle::Auto => style.begins_inside(&opening),
        };
        if let Some(tags) = style.tags() {
            let block = tags.block(inside, reasoning.budget, &reasoning.message, tokenizer);
            generation.block = Some(block.map_err(|error| text_error(&error))?);
        }
        let plan = SplitPlan {
            marking: style.marking(opening, inside).filter(|_| reasoning.split),
            legacy: reasoning.legacy,
            hidden: reasoning.hidden,
            calls_in_reasoning: settings.tool_calls_in_reasoning,
            tools,
            include_stop: generation.delivery.include_stop,
            tells_tokens: logprobs.is_some(),
        };
        let talk = Talk::begin(
            entered,
            call,
            model,
            (generation, logprobs),
            (prompt, prompt_field),
            &plan,
        );
        Ok(Talk { context: kept, unenforced, ..talk.await? })
    }
}

/// A prompt behind what was said before; only one beginning of a text is kept.
fn behind(context: &[u32], mut ids: Vec<u32>, model: &ServedModel) -> Vec<u32> {
    let bos = model.parts.tokenizer.bos_id();
    if !context.is_empty() && bos.is_some() && ids.first().copied() == bos {
        ids.remove(0);
    }
    [context, &ids].concat()
}

/// Tools with schemas that compile, also beside what is wanted of the answer.
async fn enforceable(
    call: &Call,
    model: &Arc<ServedModel>,
    wanted: Option<ConstraintSpec>,
    mut tools: ToolPlan,
) -> Result<ToolPlan, ApiError> {
    let (model, app) = (model.clone(), call.app.clone());
    let loosen = move || {
        let limits = constraint_limits(&app.settings.limits);
        let times = &app.metrics.constraint_time;
        let compiles =
            |spec: &ConstraintSpec| model.compile(Some(spec), None, &limits, times).is_ok();
        tools.loosen(wanted.as_ref(), &model.parts.tokenizer, limits.compile_time, compiles);
        Ok(tools)
    };
    call.app.blocking.run(loosen).await
}

/// Lets an answer call tools, or keeps it from that.
fn shape_calls(generation: &mut GenerationRequest, tools: &ToolPlan, tokenizer: &Tokenizer) {
    tools.deny(&mut generation.job, tokenizer);
    generation.job.shown_ids.extend(tools.specials(tokenizer));
    if generation.constraint.is_none() {
        generation.constraint_field = "tools";
    }
    generation.constraint = tools.constraint(generation.constraint.take(), tokenizer);
}

/// What cannot be had of a model that speaks in channels.
fn refuse_in_channels(
    generation: &GenerationRequest,
    reasoning: &ReasoningRequest,
) -> Result<(), ApiError> {
    if generation.constraint.is_some() {
        let instead = "the model answers in channels, where nothing can be enforced: leave it out";
        return Err(unsupported("response_format", instead));
    }
    if reasoning.budget.is_some() {
        let instead = "the model answers in channels: set reasoning_effort";
        return Err(unsupported("reasoning_budget_tokens", instead));
    }
    Ok(())
}

/// What one choice said at one moment.
pub struct Said {
    /// Which choice.
    pub choice: usize,
    /// The parts that became certain.
    pub parts: Vec<Part>,
    /// What the engine said: progress and all ids. Its text is in `parts`.
    pub record: Record,
    /// What is reported of the tokens of content, if only of them.
    tokens: Option<Record>,
    /// Set with the last parts of a choice.
    pub ending: Option<Ending>,
}

/// A whole answer.
pub struct ChatAnswer {
    /// Its parts, put together.
    pub whole: Whole,
    /// What the engine said: all ids.
    pub record: Record,
    /// What is reported of the tokens of content, if only of them.
    tokens: Option<Record>,
    /// How it ended.
    pub ending: Ending,
}

impl Said {
    /// What is reported of tokens: those of content.
    pub fn tokens(&self) -> &Record {
        self.tokens.as_ref().unwrap_or(&self.record)
    }
}

impl ChatAnswer {
    /// What is reported of tokens: those of content.
    pub fn tokens(&self) -> &Record {
        self.tokens.as_ref().unwrap_or(&self.record)
    }
}

/// A conversation that is being answered. Dropping it ends the jobs.
pub struct Talk {
    /// The jobs, and what the request holds while they run.
    pub running: Running,
    /// Who answers.
    pub model: Arc<ServedModel>,
    /// Which log-probabilities are reported.
    pub logprobs: Option<LogprobRequest>,
    /// The seed, as clients see it.
    pub seed: i64,
    /// How the answer is sent.
    pub delivery: Delivery,
    /// The prompt as ids, where it is kept.
    pub context: Vec<u32>,
    /// What of the tools' schemas is not enforced.
    pub unenforced: Vec<String>,
    /// One per choice.
    splitters: Vec<Splitter>,
    begun: Instant,
}

impl Talk {
    /// Submits a prompt, whose answers are taken apart by a plan. The prompt goes with what errors
    /// call it.
    pub async fn begin(
        entered: Entered,
        call: &Call,
        model: &Arc<ServedModel>,
        (generation, logprobs): (GenerationRequest, Option<LogprobRequest>),
        (prompt, prompt_field): (Prompt, &'static str),
        plan: &SplitPlan,
    ) -> Result<Self, ApiError> {
        let (n, seed, delivery) = (generation.n, generation.seed, generation.delivery.clone());
        let splitters = (0..n).map(|_| Splitter::new(plan)).collect();
        let running = entered.submit(call, model, generation, vec![prompt], prompt_field).await?;
        call.access.note(|facts| facts.stream = delivery.stream);
        let (model, begun) = (model.clone(), call.begun);
        let (context, unenforced) = (Vec::new(), Vec::new());
        Ok(Talk { running, model, logprobs, seed, delivery, context, unenforced, splitters, begun })
    }

    /// How many choices there are.
    pub fn n_choices(&self) -> usize {
        self.splitters.len()
    }

    /// What is said next; `None` when all choices have ended well.
    pub async fn next(&mut self) -> Result<Option<Said>, ApiError> {
        let Some((choice, record)) = self.running.next().await? else { return Ok(None) };
        let splitter = self.splitters.get_mut(choice).ok_or_else(ApiError::internal)?;
        let (parts, tokens) = (splitter.push(&record), splitter.content_tokens(&record));
        let ending = splitter.ending(&record);
        if let Some(ending) = &ending {
            self.running.note_ending(ending, splitter);
        }
        Ok(Some(Said { choice, parts, record, tokens, ending }))
    }

    /// Whole answers, by choice.
    pub async fn finish(&mut self) -> Result<Vec<ChatAnswer>, ApiError> {
        let records = self.running.finish().await?;
        let answers = records.into_iter().zip(&mut self.splitters).map(|(record, splitter)| {
            let mut whole = Whole::default();
            splitter.push(&record).into_iter().for_each(|part| whole.push(part));
            let tokens = splitter.content_tokens(&record);
            let ending = splitter.ending(&record).ok_or_else(ApiError::internal)?;
            self.running.note_ending(&ending, splitter);
            Ok(ChatAnswer { whole, record, tokens, ending })
        });
        answers.collect()
    }

    /// Counts and times so far.
    pub fn usage(&self) -> Usage {
        let mut usage = Usage::of(&self.running.done, self.splitters.len(), self.begun);
        usage.reasoning_tokens = self.splitters.iter().map(Splitter::reasoning_tokens).sum();
        usage
    }

    /// When the request came.
    pub fn begun(&self) -> Instant {
        self.begun
    }
}
