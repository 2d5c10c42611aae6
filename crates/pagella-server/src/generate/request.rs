//! What a request asks for, besides its prompt: options of the job, and how to answer.

use std::time::Duration;

use pagella_engine::constraint::{Block, ConstraintSpec};
use pagella_engine::params::{self, Place};
use pagella_engine::{Backpressure, JobOptions, LengthPolicy, SampleOptions};
use pagella_text::BanRule;
use serde_json::Value;

use super::draft;
use super::fields::GenerationFields;
use super::parameters::Parameters;
use super::sampling::{self, Vocabulary, ZeroTopP};
use super::shape;
use crate::adapters::{self, ChosenAdapters, Signature};
use crate::auth::{CacheScope, Role};
use crate::call::Call;
use crate::fields::{id, ids, out_of_range, strings, wrong_type};
use crate::model::ServedModel;
use crate::settings::Limits;
use crate::wire::error::{ApiError, Code};
use crate::wire::id::random_u128;

/// Bits of a seed that the server chooses: every client's numbers hold them exactly.
const SEED_BITS: u32 = 53;

/// Ids in `stop_token_ids`.
const STOP_IDS_MAX: usize = 256;

/// How the answer is sent.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Piece by piece.
    pub stream: bool,
    /// With counts at the end of a stream.
    pub include_usage: bool,
    /// With these counts in the last piece of a choice, instead of in one of their own.
    pub usage_in_choice: bool,
    /// With counts in every piece.
    pub continuous_usage: bool,
    /// Silence after which a stream says that it is alive; `None` is never.
    pub ping: Option<Duration>,
    /// Shortest time between two pieces.
    pub interval: Option<Duration>,
    /// With token ids.
    pub token_ids: bool,
    /// With the progress of the prompt.
    pub progress: bool,
    /// With llama.cpp's timings.
    pub timings: bool,
    /// The stop string is part of the text.
    pub include_stop: bool,
}

/// What a request asks for, besides its prompt.
#[derive(Clone)]
pub struct GenerationRequest {
    /// How the job goes on from its prompt, but for the constraint.
    pub job: JobOptions,
    /// What the text must look like, after reasoning.
    pub constraint: Option<ConstraintSpec>,
    /// The field that says so, for errors.
    pub constraint_field: &'static str,
    /// The reasoning before it.
    pub block: Option<Block>,
    /// Answers per prompt.
    pub n: usize,
    /// The seed, as clients see it.
    pub seed: i64,
    /// What to steer away from.
    pub negative: Option<String>,
    /// What the answer is expected to be.
    pub prediction: Option<String>,
    /// How the answer is sent.
    pub delivery: Delivery,
    /// What the answer says of what computed it.
    pub signature: Signature,
}

impl GenerationRequest {
    /// Reads the fields that all routes share.
    pub fn read(
        call: &Call,
        (fields, parameters): (&GenerationFields, &Parameters),
        model: &ServedModel,
        zero_top_p: ZeroTopP,
    ) -> Result<Self, ApiError> {
        let parameters = &call.app.presets.apply(parameters);
        let limits = &call.app.settings.limits;
        let parts = &model.parts;
        let neutral = SampleOptions::default();
        let ChosenAdapters { used, signature } = adapters::choose(call, fields, model)?;
        let mut job = JobOptions { adapters: Some(used), ..JobOptions::default() };
        let recommended = match call.app.settings.sampling.use_generation_config {
            true => &parts.sampling,
            false => &neutral,
        };
        let tokenizer = &parts.tokenizer;
        let vocabulary = Vocabulary { tokenizer, size: parts.vocab };
        let bias_max = limits.logit_bias;
        job.sampling =
            sampling::options(parameters, recommended, vocabulary, zero_top_p, bias_max)?;
        let seed = match parameters.int("seed") {
            Some(-1) | None => (random_u128() >> (128 - SEED_BITS)) as i64,
            Some(seed) => seed,
        };
        job.sampling.seed = seed as u64;
        job.length_policy = LengthPolicy::Clamp;
        job.backpressure = Backpressure::Merge;
        job.max_new_tokens = most_tokens(call, parameters);
        scalars(parameters, &mut job)?;
        job.draft_depth = draft::depth(fields, parameters)?;
        if job.max_new_tokens.is_some_and(|max| job.min_new_tokens > max) {
            return Err(out_of_range("min_tokens", "at most max_tokens"));
        }
        stops(parameters, model, limits, &mut job)?;
        if let Some(value) = parameters.value("banned_strings") {
            job.banned = banned(value, limits.banned_strings)?;
        }
        job.priority = priority(call, fields.priority.unwrap_or(0))?;
        job.timeout = time_limit(fields.timeout, limits.request_time);
        job.cache_salt = salt(call, fields.cache_salt.as_deref());
        let n = fields.n.unwrap_or(1);
        if n > limits.max_n {
            return Err(out_of_range("n", &format!("from 1 to {}", limits.max_n)));
        }
        let negative = negative(parameters, &job.sampling)?;
        let (constraint_field, constraint) = shape::constraint(fields, parameters)?
            .map_or(("", None), |(field, spec)| (field, Some(spec)));
        let delivery = delivery(call, fields, parameters)?;
        let prediction = fields.prediction.as_ref().map(draft::prediction).transpose()?.flatten();
        Ok(GenerationRequest {
            job,
            constraint,
            constraint_field,
            block: None,
            n,
            seed,
            negative,
            prediction,
            delivery,
            signature,
        })
    }

    /// Says what the text must look like, by a field of a dialect's own.
    pub fn constrain(&mut self, field: &'static str, spec: ConstraintSpec) -> Result<(), ApiError> {
        if self.constraint.is_some() {
            return Err(shape::said_twice(self.constraint_field, field));
        }
        (self.constraint, self.constraint_field) = (Some(spec), field);
        Ok(())
    }
}

/// What the engine's table sets on a job.
fn scalars(parameters: &Parameters, job: &mut JobOptions) -> Result<(), ApiError> {
    for param in params::JOB {
        let (Place::Job { set }, Some(value)) = (param.place, parameters.value(param.wire()))
        else {
            continue;
        };
        set(job, param.scalar(value).map_err(|error| sampling::refused(param.wire(), error))?);
    }
    Ok(())
}

/// What to steer away from. A scale of 1 does not steer, so it needs nothing and makes nothing of it.
fn negative(parameters: &Parameters, sampling: &SampleOptions) -> Result<Option<String>, ApiError> {
    let text = parameters.text("negative_prompt");
    match (text, sampling.cfg_scale) {
        (Some(text), Some(_)) => Ok(Some(text.to_owned())),
        (None, None) => Ok(None),
        (Some(_), None) if parameters.has("cfg_scale") => Ok(None),
        _ => {
            let message = "cfg_scale and negative_prompt belong together: give both or neither";
            Err(ApiError::field(Code::MissingParameter, "negative_prompt", message))
        }
    }
}

fn most_tokens(call: &Call, parameters: &Parameters) -> Option<usize> {
    let fills = |tokens: i64| {
        tokens < 0 || (tokens == 0 && call.app.settings.developer.zero_max_tokens_fills)
    };
    let asked = parameters.int("max_tokens").filter(|tokens| !fills(*tokens));
    let asked = asked.map(|tokens| usize::try_from(tokens).unwrap_or(usize::MAX));
    let caps = [call.caller.key.max_tokens, call.app.settings.limits.max_tokens];
    let caps = caps.into_iter().filter(|cap| *cap > 0);
    asked.into_iter().chain(caps).min()
}

fn stops(
    parameters: &Parameters,
    model: &ServedModel,
    limits: &Limits,
    job: &mut JobOptions,
) -> Result<(), ApiError> {
    let (vocab, most) = (model.parts.vocab, limits.stop);
    if let Some(value) = parameters.value("stop") {
        let one = std::slice::from_ref(value);
        let list = value.as_array().map_or(one, Vec::as_slice);
        if list.len() > most {
            return Err(out_of_range("stop", &format!("a list of at most {most}")));
        }
        for (idx, entry) in list.iter().enumerate() {
            let path = format!("stop[{idx}]");
            match entry {
                // Clients with an empty line in their list of stop texts.
                Value::String(text) if text.is_empty() => {}
                Value::String(text) if text.len() <= 1024 => job.stop_strings.push(text.clone()),
                Value::String(_) => return Err(out_of_range(path, "at most 1024 bytes long")),
                Value::Number(_) => job.stop_ids.push(id(&path, entry, vocab)?),
                _ => return Err(wrong_type(path, "a string or a token id")),
            }
        }
    }
    if let Some(value) = parameters.value("stop_token_ids") {
        let listed = ids("stop_token_ids", value, vocab)?;
        if listed.len() > STOP_IDS_MAX {
            let allowed = format!("a list of at most {STOP_IDS_MAX}");
            return Err(out_of_range("stop_token_ids", &allowed));
        }
        job.stop_ids.extend(listed);
    }
    if !parameters.is("ban_eos_token") {
        job.stop_ids.extend(model.parts.tokenizer.eos_ids());
    }
    Ok(())
}

fn banned(value: &Value, most: usize) -> Result<Vec<BanRule>, ApiError> {
    let mut texts = strings("banned_strings", value, most)?;
    texts.retain(|text| !text.is_empty());
    if texts.iter().any(|text| text.len() > 512) {
        return Err(out_of_range("banned_strings", "texts of at most 512 bytes"));
    }
    Ok(texts.into_iter().map(BanRule::text).collect())
}

/// The key's own priority counts; only administrators may raise it.
fn priority(call: &Call, asked: i32) -> Result<i32, ApiError> {
    if asked > 0 && call.caller.role() != Role::Admin {
        return Err(out_of_range("priority", "at most 0 with this key"));
    }
    Ok(asked.saturating_add(call.caller.key.priority))
}

fn time_limit(asked: Option<f64>, server: Duration) -> Option<Duration> {
    let server = Some(server).filter(|time| !time.is_zero());
    asked.map(Duration::from_secs_f64).into_iter().chain(server).min()
}

/// Whose cached pages the request may find. A request can narrow that and never widen it: every
/// part says its length, so no choice of words makes one salt look like another.
fn salt(call: &Call, own: Option<&str>) -> Option<String> {
    let key = &call.caller.key;
    let scope = match &key.cache {
        _ if !call.app.isolates_keys() => None,
        CacheScope::Own => Some(format!("key:{}", key.name)),
        CacheScope::Group(group) => Some(format!("group:{group}")),
        CacheScope::Shared => Some("shared".to_owned()),
    };
    if scope.is_none() && own.is_none() {
        return None;
    }
    let part = |text: Option<&str>| text.map_or("-".to_owned(), |t| format!("{}:{t}", t.len()));
    Some(format!("{}/{}", part(scope.as_deref()), part(own)))
}

fn delivery(
    call: &Call,
    fields: &GenerationFields,
    parameters: &Parameters,
) -> Result<Delivery, ApiError> {
    let options = fields.stream_options.clone().unwrap_or_default();
    let include_usage = options.include_usage.unwrap_or(false);
    let ping = fields.sse_ping_interval.map(Duration::from_secs);
    let ping = ping.unwrap_or(call.app.settings.network.sse_ping_interval);
    let interval = match &fields.stream_granularity {
        None => None,
        Some(Value::String(text)) if text == "token" || text == "iteration" => None,
        Some(value) => match value.as_u64() {
            Some(millis @ 0..=10_000) => Some(Duration::from_millis(millis)),
            Some(_) => return Err(out_of_range("stream_granularity", "at most 10000 ms")),
            None => {
                let expected = "token, iteration or a number of milliseconds";
                return Err(wrong_type("stream_granularity", expected));
            }
        },
    };
    Ok(Delivery {
        stream: call.streams(fields.stream),
        include_usage,
        usage_in_choice: include_usage && call.app.settings.developer.usage_in_last_choice,
        continuous_usage: options.continuous_usage_stats.unwrap_or(false),
        ping: Some(ping).filter(|ping| !ping.is_zero()),
        interval,
        token_ids: fields.return_token_ids,
        progress: fields.return_progress,
        timings: fields.timings_per_token,
        include_stop: parameters.is("include_stop_str_in_output"),
    })
}
