//! Ollama's routes that generate text.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pagella_conversation::SplitPlan;
use pagella_text::{AddBos, EncodeBudget};
use serde_json::{Value, json};

use crate::auth::Role;
use crate::call::{Call, Ignored, Reply};
use crate::chat::{ChatPrompt, ChatRequest, Halving, Talk};
use crate::fields::{Fields, ids, unsupported, wrong_type};
use crate::generate::ask::Ask;
use crate::generate::ending::text_error;
use crate::generate::fill;
use crate::generate::logprobs::LogprobAsk;
use crate::generate::prompt::prompt_ids;
use crate::generate::sampling::ZeroTopP;
use crate::generate::submit::{Prompt, enter};
use crate::model::{ServedModel, Unload, UnloadMode, resolve, unload};
use crate::ollama::{
    AnswerForm, CHAT, GENERATE, OllamaAnswer, done_without_text, ends_the_model, job_fields,
    messages, only_neutral, own_name, tagged,
};
use crate::wire::error::{ApiError, Code, Dialect};
use crate::wire::sse;

/// How long requests may go on when a model is to go.
const DRAIN: Duration = Duration::from_secs(30);

/// A request whose model is there.
struct Asked {
    fields: Fields,
    model: Arc<ServedModel>,
    /// The model's name in the answer.
    name: String,
    /// How long it was waited for.
    load: Duration,
    ignored: Ignored,
}

impl Asked {
    /// Waits for the model. Streams wait in silence like all others: a line that
    /// says nothing would be no JSON.
    async fn of(call: &Call, fields: Fields) -> Result<Self, ApiError> {
        let ignored = call.settle(&fields)?;
        let begun = Instant::now();
        let named = fields.text("model").map(own_name);
        let model = resolve(call, named, false).await?;
        let is_meant = named.is_some_and(|name| model.is_called(name));
        let name = match fields.text("model").filter(|_| is_meant) {
            Some(name) => name.to_owned(),
            None => tagged(&model.parts.id),
        };
        Ok(Asked { fields, model, name, load: begun.elapsed(), ignored })
    }

    /// What the request says beside its prompt, in the fields of a chat.
    fn job(&mut self, call: &Call) -> Result<Fields, ApiError> {
        job_fields(call, &self.fields, self.model.capacity(), &mut self.ignored)
    }

    /// The answer, whole or line by line.
    async fn answer(
        self,
        call: &Call,
        mut talk: Talk,
        form: AnswerForm,
    ) -> Result<Reply, ApiError> {
        let request = call.id.clone();
        let answer = OllamaAnswer { form, model: self.name, load: self.load, request };
        let mut headers = http::HeaderMap::new();
        talk.running.ticket.write_headers(&mut headers);
        self.ignored.write_header(&mut headers);
        let mut reply = if talk.delivery.stream {
            let last_words = sse::failure(&ApiError::internal(), Dialect::Ollama, &call.id);
            Reply::lines(last_words, move |sink| answer.stream(talk, sink))
        } else {
            let answers = talk.finish().await?;
            let first = answers.first().ok_or_else(ApiError::internal)?;
            Reply::json(&answer.whole(&talk, first)?)?
        };
        reply.headers.extend(headers);
        Ok(reply)
    }

    /// The answer to a request without a prompt: the model is there, or it is gone.
    fn without_prompt(&self, form: AnswerForm) -> Result<Reply, ApiError> {
        Reply::json(&done_without_text(form, &self.name, "load"))
    }
}

/// Ends a model that is to be kept for no time; `None` where that is not what a request wants.
async fn end_model(
    call: &Call,
    fields: &Fields,
    form: AnswerForm,
) -> Result<Option<Reply>, ApiError> {
    if !ends_the_model(fields) {
        return Ok(None);
    }
    if call.caller.role() != Role::Admin {
        let message = "ending a model needs an administrator's key: leave keep_alive out";
        return Err(ApiError::field(Code::AdminKeyRequired, "keep_alive", message));
    }
    let name = fields.text("model").unwrap_or_default();
    let residents = call.app.model.residents();
    if let Some(model) = residents.iter().find(|model| model.is_called(own_name(name))) {
        let ask =
            Unload { id: Some(model.parts.id.clone()), mode: UnloadMode::Drain, timeout: DRAIN };
        // Whoever holds the model keeps its memory.
        drop(residents);
        let app = call.app.clone();
        let work = tokio::task::spawn_blocking(move || unload(&app, &ask));
        work.await.map_err(|_| ApiError::internal())??;
    }
    Reply::json(&done_without_text(form, name, "unload")).map(Some)
}

/// `/api/chat`.
pub async fn chat(mut call: Call) -> Result<Reply, ApiError> {
    let fields = Fields::read(call.object().await?, CHAT)?;
    let listed = |list: &Value| list.as_array().is_none_or(|list| !list.is_empty());
    let is_empty = !fields.value("messages").is_some_and(listed);
    if is_empty && let Some(reply) = end_model(&call, &fields, AnswerForm::Chat).await? {
        return Ok(reply);
    }
    let mut asked = Asked::of(&call, fields).await?;
    let messages = match asked.fields.value("messages") {
        None => Vec::new(),
        Some(Value::Array(list)) => messages(list)?,
        Some(_) => return Err(wrong_type("messages", "a list of messages")),
    };
    if messages.is_empty() {
        return asked.without_prompt(AnswerForm::Chat);
    }
    let mut job = asked.job(&call)?;
    if let Some(Value::Array(tools)) = asked.fields.value("tools") {
        job.set("tools", Value::Array(tools.clone()));
    } else if asked.fields.has("tools") {
        return Err(wrong_type("tools", "a list of tools"));
    }
    // An answer that has begun is continued.
    let last = messages.last().filter(|last| last["role"] == "assistant");
    if last.is_some_and(|last| last["content"] != "" && last.get("tool_calls").is_none()) {
        job.set("continue_final_message", true.into());
    }
    let truncates = asked.fields.bool("truncate") != Some(false);
    let job = fitting(&call, job, messages, &asked.model, truncates).await?;
    let request = ChatRequest::read(&call, &job, &asked.model)?;
    let talk = request.start(&call, &asked.model).await?;
    asked.answer(&call, talk, AnswerForm::Chat).await
}

/// The fields of a chat that fits into the context: old messages give way, instructions stay.
async fn fitting(
    call: &Call,
    mut job: Fields,
    messages: Vec<Value>,
    model: &Arc<ServedModel>,
    truncates: bool,
) -> Result<Fields, ApiError> {
    let is_system = |message: &&Value| message["role"] == "system";
    let system: Vec<Value> = messages.iter().filter(is_system).cloned().collect();
    let others: Vec<Value> =
        messages.iter().filter(|message| !is_system(message)).cloned().collect();
    job.set("messages", Value::Array(messages));
    if !truncates || others.len() < 2 {
        return Ok(job);
    }
    let values = system.iter().chain(&others).chain(job.value("tools"));
    let bytes: usize = values.map(|value| value.to_string().len()).sum();
    // A token is at least a byte long, and templates write less than half a context of their own: a
    // short conversation fits without counting.
    let room = model.capacity().saturating_sub(1);
    if bytes < room / 2 || prompt_tokens(call, &job, model).await? <= room {
        return Ok(job);
    }
    let mut halving = Halving::new(others.len() - 1);
    let mut without = |number: usize| {
        let kept = system.iter().chain(&others[number..]).cloned().collect();
        job.set("messages", Value::Array(kept));
        job.clone()
    };
    while let Some(number) = halving.next() {
        let tokens = prompt_tokens(call, &without(number), model).await?;
        halving.tried(number, tokens <= room);
    }
    Ok(without(halving.found()))
}

async fn prompt_tokens(
    call: &Call,
    job: &Fields,
    model: &Arc<ServedModel>,
) -> Result<usize, ApiError> {
    let conversation = ChatPrompt::read(call, job, model)?;
    let encoder = model.clone();
    // What is too long is cut, so all of it is counted.
    let encode = move |budget| Ok(conversation.encode(&encoder, AddBos::Auto, &budget)?.len());
    call.app.blocking.prepare(call.body_bytes, encode).await
}

/// `/api/generate`.
pub async fn generate(mut call: Call) -> Result<Reply, ApiError> {
    let fields = Fields::read(call.object().await?, GENERATE)?;
    let given = |name: &str| fields.text(name).filter(|text| !text.is_empty()).map(str::to_owned);
    let (prompt, suffix, system) = (given("prompt"), given("suffix"), given("system"));
    let is_empty = prompt.is_none() && suffix.is_none();
    if is_empty && let Some(reply) = end_model(&call, &fields, AnswerForm::Generate).await? {
        return Ok(reply);
    }
    only_neutral(&fields, "template", "the model's own is used, or none with raw")?;
    only_neutral(&fields, "images", "the model reads text and nothing else")?;
    let mut asked = Asked::of(&call, fields).await?;
    if is_empty {
        return asked.without_prompt(AnswerForm::Generate);
    }
    let context = match asked.fields.value("context") {
        None => Vec::new(),
        Some(value) => ids("context", value, asked.model.parts.vocab)?,
    };
    let job = asked.job(&call)?;
    let prompt = prompt.unwrap_or_default();
    let is_raw = asked.fields.is("raw") || suffix.is_some() || asked.model.template().is_none();
    let talk = if is_raw {
        if system.is_some() && !asked.fields.is("raw") {
            let instead = "there is no template for it: put it into the prompt";
            return Err(unsupported("system", instead));
        }
        raw(&call, &asked.model, &job, context, (prompt, suffix)).await?
    } else {
        let system = system.map(|text| json!({ "role": "system", "content": text }));
        let user = json!({ "role": "user", "content": prompt });
        let mut job = job;
        job.set("messages", system.into_iter().chain([user]).collect());
        let mut request = ChatRequest::read(&call, &job, &asked.model)?;
        request.prompt_field = "prompt";
        request.context = Some(context);
        request.start(&call, &asked.model).await?
    };
    asked.answer(&call, talk, AnswerForm::Generate).await
}

/// A prompt that is continued as it is, or the text between it and a suffix.
async fn raw(
    call: &Call,
    model: &Arc<ServedModel>,
    job: &Fields,
    context: Vec<u32>,
    (prompt, suffix): (String, Option<String>),
) -> Result<Talk, ApiError> {
    let mut ask = Ask::read(call, job, model, ZeroTopP::One)?;
    let logprobs = LogprobAsk::of_chat(job, call.app.settings.limits.top_logprobs)?;
    if let Some(logprobs) = logprobs {
        logprobs.apply(&mut ask.job);
    }
    let spans = match suffix {
        None => None,
        Some(suffix) => Some(fill::need(&model.parts.tokenizer, "suffix", &prompt, &suffix)?),
    };
    let entered = enter(call)?;
    let (encoder, negative) = (model.clone(), ask.negative.clone());
    let add_bos = if context.is_empty() { AddBos::Auto } else { AddBos::Never };
    let encode = move |budget: EncodeBudget| {
        let tokenizer = &encoder.parts.tokenizer;
        let budget = budget.within(encoder.capacity());
        let encoded = match spans {
            None => prompt_ids(tokenizer, prompt, add_bos, &budget),
            Some(spans) => tokenizer
                .encode_within(&spans, add_bos, &budget)
                .map_err(|error| text_error(&error)),
        };
        let ids = encoded.map_err(|error| error.at("prompt"))?;
        let negative =
            negative.map(|text| prompt_ids(tokenizer, text, add_bos, &budget)).transpose()?;
        Ok(Prompt { ids: [context, ids].concat(), negative })
    };
    let prompt = call.app.blocking.prepare(call.body_bytes, encode).await?;
    let plan = SplitPlan { include_stop: ask.delivery.include_stop, ..SplitPlan::default() };
    Talk::begin(entered, call, model, (ask, logprobs), (prompt, "prompt"), &plan).await
}
