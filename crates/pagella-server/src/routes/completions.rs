//! `/v1/completions`: prompts as text or ids, continued.

use std::borrow::Cow;
use std::sync::Arc;

use pagella_engine::{Record, Stage};
use pagella_text::{AddBos, EncodeBudget, SpecialTokens};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::body::{CompletionBody, UsageField, progress};
use super::model_name::model_for;
use super::streamed;
use crate::adapters::Signature;
use crate::call::{Call, Reply};
use crate::fields::{out_of_range, unsupported, wrong_type};
use crate::generate::ending::{finish_reason, text_error};
use crate::generate::fields::{GenerationFields, InertFields};
use crate::generate::fill;
use crate::generate::given::{GivenPrompt, IdBounds};
use crate::generate::logprobs::{self, LogprobFields, LogprobRequest};
use crate::generate::parameters::Parameters;
use crate::generate::prompt::prompt_ids;
use crate::generate::request::{Delivery, GenerationRequest};
use crate::generate::sampling::ZeroTopP;
use crate::generate::submit::{Prompt, Running, enter};
use crate::generate::usage::Usage;
use crate::model::ServedModel;
use crate::wire::error::{ApiError, Code};
use crate::wire::sse::{self, Sink};

/// The fields of a completion alone.
#[derive(Deserialize, JsonSchema)]
pub struct CompletionFields {
    /// Text, texts, token ids, or lists of token ids
    #[schemars(extend("$ref" = "#/components/schemas/Prompts"))]
    prompt: Value,
    /// The prompt is part of the text
    #[serde(default)]
    echo: bool,
    /// What follows the gap that is to be filled
    #[schemars(length(max = 1_048_576))]
    suffix: Option<String>,
    /// So many are written, the likeliest are shown
    #[schemars(range(min = 1))]
    best_of: Option<usize>,
}

/// What the route reads.
pub type CompletionsBody =
    (CompletionFields, LogprobFields, GenerationFields, Parameters, InertFields);

/// A prompt that is part of the answer.
#[derive(Default)]
struct Echo {
    text: String,
    ids: Vec<u32>,
}

/// Everything that answers are made of.
struct Completions {
    model: Arc<ServedModel>,
    n: usize,
    seed: i64,
    delivery: Delivery,
    id: String,
    created: u64,
    logprobs: Option<LogprobRequest>,
    /// The prompts, where they are part of the answer.
    echo: Option<Vec<Echo>>,
    /// Jobs per prompt, of which `n` are shown.
    jobs_per_prompt: usize,
    signature: Signature,
    begun: std::time::Instant,
}

/// Answers the request.
pub async fn create(mut call: Call) -> Result<Reply, ApiError> {
    let (body, ignored) = call.read::<CompletionsBody>().await?;
    let (own, logprobs, fields, parameters, _) = body;
    let model = model_for(&call, &fields).await?;
    let mut generation =
        GenerationRequest::read(&call, (&fields, &parameters), &model, ZeroTopP::Off)?;
    let most = call.app.settings.limits.top_logprobs;
    let logprobs = LogprobRequest::of_completion(&logprobs, most)?;
    if own.suffix.is_some() {
        fill::need(&model.parts.tokenizer, "suffix", "", "")?;
    }
    if let Some(logprobs) = logprobs.filter(|_| own.echo) {
        if logprobs.processed || generation.negative.is_some() {
            let instead = "log-probabilities of a prompt are the model's own, of one prompt alone";
            return Err(unsupported("echo", instead));
        }
        generation.job.return_prompt_logprobs = Some(logprobs.top);
    }
    let n = generation.n;
    let best_of = read_best_of(&call, own.best_of, &generation)?;
    match logprobs {
        Some(logprobs) => logprobs.apply(&mut generation.job),
        // The best are those whose tokens the model found most likely.
        None if best_of > n => generation.job.return_logprobs = Some(0),
        None => {}
    }
    generation.n = best_of;
    let entered = enter(&call)?;
    let negative = generation.negative.clone();
    let add_bos = parameters.add_bos();
    let prompts = encode(&call, (own.prompt, own.suffix), add_bos, &model, negative).await?;
    let echo = own.echo.then(|| {
        let decode = |ids: &[u32]| model.parts.tokenizer.decode(ids, SpecialTokens::Hide);
        let echo = |prompt: &Prompt| Echo { text: decode(&prompt.ids), ids: prompt.ids.clone() };
        prompts.iter().map(echo).collect()
    });
    let (seed, delivery) = (generation.seed, generation.delivery.clone());
    let mut running = entered.submit(&call, &model, generation, prompts, "prompt").await?;
    let completions = Completions {
        model,
        id: format!("cmpl-{}", call.id),
        created: streamed::now(),
        logprobs,
        echo,
        jobs_per_prompt: best_of,
        signature: running.signature.clone(),
        n,
        seed,
        delivery,
        begun: call.begun,
    };
    let stream = completions.delivery.stream;
    call.access.note(|facts| facts.stream = stream);
    let mut headers = http::HeaderMap::new();
    running.ticket.write_headers(&mut headers);
    ignored.write_header(&mut headers);
    let mut reply = if stream {
        Reply::events(move |sink| completions.stream(running, sink))
    } else {
        let records = running.finish().await?;
        completions.whole(&running, &records)?
    };
    reply.headers.extend(headers);
    Ok(reply)
}

fn read_best_of(
    call: &Call,
    asked: Option<usize>,
    generation: &GenerationRequest,
) -> Result<usize, ApiError> {
    let most = call.app.settings.limits.max_n;
    match asked.unwrap_or(generation.n) {
        best_of if best_of > generation.n && generation.delivery.stream => {
            let message = "best_of cannot be streamed: leave stream or best_of out";
            Err(ApiError::field(Code::ConflictingParameters, "best_of", message))
        }
        best_of if asked.is_none() || (generation.n..=most).contains(&best_of) => Ok(best_of),
        _ => Err(out_of_range("best_of", &format!("from n to {most}"))),
    }
}

fn given(call: &Call, value: &Value, bounds: IdBounds) -> Result<Vec<GivenPrompt>, ApiError> {
    let most = call.app.settings.limits.prompts;
    let list = match value {
        Value::String(text) => return Ok(vec![GivenPrompt::Text(text.clone())]),
        Value::Array(list) if list.first().is_some_and(Value::is_number) => {
            return Ok(vec![GivenPrompt::Ids(bounds.read("prompt", value)?)]);
        }
        Value::Array(list) if !list.is_empty() && list.len() <= most => list,
        Value::Array(_) => {
            return Err(out_of_range("prompt", &format!("a list of 1 to {most} prompts")));
        }
        _ => return Err(wrong_type("prompt", "a string, a list of strings, or token ids")),
    };
    let one = |(idx, item): (usize, &Value)| match item {
        Value::String(text) => Ok(GivenPrompt::Text(text.clone())),
        item => Ok(GivenPrompt::Ids(bounds.read(&format!("prompt[{idx}]"), item)?)),
    };
    list.iter().enumerate().map(one).collect()
}

async fn encode(
    call: &Call,
    (prompt, suffix): (Value, Option<String>),
    add_bos: AddBos,
    model: &Arc<ServedModel>,
    negative: Option<String>,
) -> Result<Vec<Prompt>, ApiError> {
    let given = given(call, &prompt, model.id_bounds())?;
    let model = model.clone();
    let encode = move |budget: EncodeBudget| {
        let tokenizer = &model.parts.tokenizer;
        let budget = budget.within(model.capacity());
        let too_long = |error: ApiError| error.at("prompt");
        let encode = |text: String| prompt_ids(tokenizer, text, add_bos, &budget).map_err(too_long);
        let negative = negative.map(encode).transpose()?;
        let prompt = |given| -> Result<Prompt, ApiError> {
            let ids = match (given, &suffix) {
                (GivenPrompt::Text(text), Some(suffix)) => {
                    let spans = fill::need(tokenizer, "suffix", &text, suffix)?;
                    let encoded = tokenizer.encode_within(&spans, add_bos, &budget);
                    encoded.map_err(|error| too_long(text_error(&error)))?
                }
                (given, None) => given.encode(tokenizer, add_bos, &budget).map_err(too_long)?,
                (_, Some(_)) => {
                    return Err(wrong_type("prompt", "text where a suffix is given"));
                }
            };
            Ok(Prompt { ids, negative: negative.clone() })
        };
        given.into_iter().map(prompt).collect()
    };
    call.app.blocking.prepare(call.body_bytes, encode).await
}

/// One choice, or one piece of it.
#[derive(Serialize)]
struct Choice<'a> {
    index: usize,
    text: Cow<'a, str>,
    logprobs: Option<Value>,
    finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    eos_reason: Option<&'static str>,
    /// Null where the reason is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_str: Option<Option<&'a str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<&'a [u32]>,
}

impl Completions {
    fn body<'a>(&'a self, choices: &'a [Choice<'a>]) -> CompletionBody<'a, Choice<'a>> {
        let by = (&*self.model, &self.signature);
        CompletionBody::new((&self.id, self.created), "text_completion", by, choices)
    }

    /// One choice, or one piece of it, behind the prompt where that is its beginning.
    fn choice<'a>(
        &self,
        index: usize,
        echo: Option<&Echo>,
        record: &'a Record,
        offset: &mut usize,
    ) -> Result<Choice<'a>, ApiError> {
        let done = record.eos.as_deref();
        let stop = done.and_then(|done| done.eos_string.as_deref());
        let shown_stop = stop.filter(|_| self.delivery.include_stop);
        let text = match (echo, shown_stop) {
            (None, None) => Cow::Borrowed(record.text.as_str()),
            (echo, stop) => {
                let before = echo.map_or("", |echo| &echo.text);
                Cow::Owned([before, &record.text, stop.unwrap_or("")].concat())
            }
        };
        let tokenizer = &self.model.parts.tokenizer;
        let echoed = echo.map_or(&[][..], |echo| &echo.ids);
        let logprobs =
            self.logprobs.map(|ask| logprobs::completion(ask, echoed, record, tokenizer, offset));
        Ok(Choice {
            index,
            text,
            logprobs,
            finish_reason: done.map(|done| finish_reason(done.eos_reason)).transpose()?,
            eos_reason: done.map(|done| done.eos_reason.name()),
            stop_str: done.map(|_| stop),
            token_ids: self.delivery.token_ids.then_some(&record.token_ids),
        })
    }

    fn echoed(&self, job_idx: usize) -> Option<&Echo> {
        self.echo.as_ref()?.get(job_idx / self.jobs_per_prompt.max(1))
    }

    /// The whole answer.
    fn whole(&self, running: &Running, records: &[Record]) -> Result<Reply, ApiError> {
        let mut choices = Vec::new();
        for (prompt, group) in records.chunks(self.jobs_per_prompt.max(1)).enumerate() {
            let mut order: Vec<usize> = (0..group.len()).collect();
            if group.len() > self.n {
                order.sort_by(|a, b| mean_logprob(&group[*b]).total_cmp(&mean_logprob(&group[*a])));
            }
            for (place, idx) in order.into_iter().take(self.n).enumerate() {
                let echo = self.echoed(prompt * self.jobs_per_prompt);
                let index = prompt * self.n + place;
                choices.push(self.choice(index, echo, &group[idx], &mut 0)?);
            }
        }
        let usage = self.usage(running);
        Reply::json(&CompletionBody {
            usage: UsageField::Told(usage.openai()),
            seed: Some(self.seed),
            timings: self.delivery.timings.then(|| usage.timings()),
            ..self.body(&choices)
        })
    }

    fn usage(&self, running: &Running) -> Usage {
        Usage::of(&running.done, self.jobs_per_prompt, self.begun)
    }

    async fn stream(self, mut running: Running, sink: Sink) {
        let delivery = self.delivery.clone();
        let mut offsets = vec![0; running.n_choices()];
        let mut echoed = vec![false; running.n_choices()];
        let write = |(idx, record): (usize, Record), running: &Running, out: &mut Vec<u8>| {
            // The prompt comes with the first text: then it is known what the model thinks of it.
            let first =
                record.stage == Stage::Streaming && !std::mem::replace(&mut echoed[idx], true);
            let echo = self.echoed(idx).filter(|_| first);
            self.write_event(idx, echo, &record, &mut offsets[idx], running, out);
        };
        let written = streamed::write(&mut running, &delivery, &sink, write);
        let ended = match written.await {
            Ok(()) => self.body(&[]).ends(&delivery, &self.usage(&running)),
            Err(error) => sse::error(&error),
        };
        sink.send(ended).await;
    }

    fn write_event(
        &self,
        idx: usize,
        echo: Option<&Echo>,
        record: &Record,
        offset: &mut usize,
        running: &Running,
        out: &mut Vec<u8>,
    ) {
        let silent = record.text.is_empty() && record.token_ids.is_empty() && !record.is_last();
        let silent = silent && echo.is_none();
        let shown = self.delivery.progress && record.stage != Stage::Streaming;
        if silent && !shown {
            return;
        }
        let choices = match self.choice(idx, echo, record, offset) {
            Ok(choice) => [choice],
            Err(error) => return out.extend_from_slice(&sse::error(&error)),
        };
        let progress = shown.then(|| progress(record, self.begun));
        let in_last = self.delivery.usage_in_choice && running.is_done();
        let usage = match () {
            () if self.delivery.continuous_usage || in_last => {
                UsageField::Told(self.usage(running).openai())
            }
            () if self.delivery.include_usage => UsageField::Later,
            () => UsageField::Absent,
        };
        let body = CompletionBody { prompt_progress: progress, usage, ..self.body(&choices) };
        sse::write_data(out, &body);
    }
}

fn mean_logprob(record: &Record) -> f32 {
    let sum: f32 = record.logprobs.iter().map(|found| found.logprob).sum();
    sum / record.logprobs.len().max(1) as f32
}
