//! Ollama's routes that generate text.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pagella_conversation::SplitPlan;
use pagella_conversation::tools::{ToolSet, WrittenTools};
use pagella_text::{AddBos, EncodeBudget, Message};

use crate::auth::Role;
use crate::call::{Call, Ignored, Reply};
use crate::chat::{ChatInput, ChatPrompt, ChatRequest, Halving, Talk};
use crate::fields::{ids, unsupported};
use crate::generate::ending::text_error;
use crate::generate::fill;
use crate::generate::logprobs::LogprobRequest;
use crate::generate::prompt::prompt_ids;
use crate::generate::request::GenerationRequest;
use crate::generate::sampling::ZeroTopP;
use crate::generate::submit::{Prompt, enter};
use crate::model::{ServedModel, Unload, UnloadMode, resolve, unload};
use crate::ollama::{
    AnswerForm, OllamaAnswer, OllamaChatBody, OllamaFields, OllamaGenerateBody,
    OllamaGenerateFields, done_without_text, messages, own_name, tagged,
};
use crate::refused::Refused;
use crate::wire::error::{ApiError, Code, Dialect};
use crate::wire::sse;

/// How long requests may go on when a model is to go.
const DRAIN: Duration = Duration::from_secs(30);

/// A request whose model is there.
struct Asked {
    fields: OllamaFields,
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
    async fn of(call: &Call, fields: OllamaFields, ignored: Ignored) -> Result<Self, ApiError> {
        let begun = Instant::now();
        let named = fields.model.as_deref().map(own_name);
        let model = resolve(call, named, false).await?;
        let is_meant =
            named.is_some_and(|name| model.is_called(name) || model.adapter_called(name).is_some());
        let name = match fields.model.clone().filter(|_| is_meant) {
            Some(name) => name,
            None => tagged(&model.parts.id),
        };
        Ok(Asked { fields, model, name, load: begun.elapsed(), ignored })
    }

    /// A conversation, with everything that the request says besides.
    fn chat(&mut self, call: &Call, mut input: ChatInput) -> Result<ChatRequest, ApiError> {
        let capacity = self.model.capacity();
        let (fields, parameters) = self.fields.options(call, capacity, &mut self.ignored)?;
        input.variables = self.fields.thinking()?;
        let mut request = ChatRequest::new(call, (&fields, &parameters), input, &self.model)?;
        self.fields.shape_answer(call, &mut request.generation)?;
        request.logprobs = self.logprobs(call)?;
        Ok(request)
    }

    fn logprobs(&self, call: &Call) -> Result<Option<LogprobRequest>, ApiError> {
        self.fields.logprobs(call.app.settings.limits.top_logprobs)
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
    fields: &OllamaFields,
    form: AnswerForm,
) -> Result<Option<Reply>, ApiError> {
    if !fields.ends_the_model() {
        return Ok(None);
    }
    if call.caller.role() != Role::Admin {
        let message = "ending a model needs an administrator's key: leave keep_alive out";
        return Err(ApiError::field(Code::AdminKeyRequired, "keep_alive", message));
    }
    let name = fields.model.as_deref().unwrap_or_default();
    let residents = call.app.model.residents();
    if let Some(model) = residents.iter().find(|model| model.is_called(own_name(name))) {
        let generation =
            Unload { id: Some(model.parts.id.clone()), mode: UnloadMode::Drain, timeout: DRAIN };
        // Whoever holds the model keeps its memory.
        drop(residents);
        let app = call.app.clone();
        let work = tokio::task::spawn_blocking(move || unload(&app, &generation));
        work.await.map_err(|_| ApiError::internal())??;
    }
    Reply::json(&done_without_text(form, name, "unload")).map(Some)
}

/// `/api/chat`.
pub async fn chat(mut call: Call) -> Result<Reply, ApiError> {
    let ((own, fields, _), ignored) = call.read::<OllamaChatBody>().await?;
    if own.messages.is_none()
        && let Some(reply) = end_model(&call, &fields, AnswerForm::Chat).await?
    {
        return Ok(reply);
    }
    let mut asked = Asked::of(&call, fields, ignored).await?;
    let Some(list) = own.messages else { return asked.without_prompt(AnswerForm::Chat) };
    let messages = messages(&list, call.app.settings.limits.messages)?;
    let written = WrittenTools { tools: own.tools.as_ref(), ..WrittenTools::default() };
    let tools = ToolSet::read(&written, call.app.settings.limits.tools).map_err(Refused::from)?;
    // An answer that has begun is continued.
    let begun = |last: &Message| {
        last.role == "assistant" && last.content != "" && !last.extra.contains_key("tool_calls")
    };
    let continues = messages.last().is_some_and(begun).then_some(true);
    let mut input = ChatInput { messages, tools, continues, ..ChatInput::default() };
    if asked.fields.truncate != Some(false) {
        input = fitting(&call, input, &asked.model).await?;
    }
    let request = asked.chat(&call, input)?;
    let talk = request.start(&call, &asked.model).await?;
    asked.answer(&call, talk, AnswerForm::Chat).await
}

/// A conversation that fits into the context: old messages give way, instructions stay.
async fn fitting(
    call: &Call,
    input: ChatInput,
    model: &Arc<ServedModel>,
) -> Result<ChatInput, ApiError> {
    let is_system = |message: &Message| message.role == "system";
    let (system, others): (Vec<Message>, Vec<Message>) =
        input.messages.iter().cloned().partition(is_system);
    // A token is at least a byte long, and templates write less than half a context of their own: a
    // short conversation fits without counting.
    let room = model.capacity().saturating_sub(1);
    if others.len() < 2 || call.body_bytes < room / 2 || count(call, &input, model).await? <= room {
        return Ok(input);
    }
    let mut halving = Halving::new(others.len() - 1);
    let without = |number: usize| {
        let messages = system.iter().chain(&others[number..]).cloned().collect();
        ChatInput { messages, ..input.clone() }
    };
    while let Some(number) = halving.next() {
        let tokens = count(call, &without(number), model).await?;
        halving.tried(number, tokens <= room);
    }
    Ok(without(halving.found()))
}

async fn count(
    call: &Call,
    input: &ChatInput,
    model: &Arc<ServedModel>,
) -> Result<usize, ApiError> {
    ChatPrompt::new(call, input.clone(), model)?.count(call, model).await
}

/// `/api/generate`.
pub async fn generate(mut call: Call) -> Result<Reply, ApiError> {
    let ((own, fields, ..), ignored) = call.read::<OllamaGenerateBody>().await?;
    let OllamaGenerateFields { prompt, suffix, system, context, raw: asked_raw } = own;
    let is_empty = prompt.is_none() && suffix.is_none();
    if is_empty && let Some(reply) = end_model(&call, &fields, AnswerForm::Generate).await? {
        return Ok(reply);
    }
    let mut asked = Asked::of(&call, fields, ignored).await?;
    if is_empty {
        return asked.without_prompt(AnswerForm::Generate);
    }
    let context = context.map(|value| ids("context", &value, asked.model.parts.vocab));
    let context = context.transpose()?.unwrap_or_default();
    let prompt = prompt.unwrap_or_default();
    let is_raw = asked_raw || suffix.is_some() || asked.model.template().is_none();
    let talk = if is_raw {
        if system.is_some() && !asked_raw {
            let instead = "there is no template for it: put it into the prompt";
            return Err(unsupported("system", instead));
        }
        raw(&call, &mut asked, context, (prompt, suffix)).await?
    } else {
        let system = system.map(|text| Message::new("system", text));
        let messages = system.into_iter().chain([Message::new("user", prompt)]).collect();
        let mut request = asked.chat(&call, ChatInput { messages, ..ChatInput::default() })?;
        request.prompt_field = "prompt";
        request.context = Some(context);
        request.start(&call, &asked.model).await?
    };
    asked.answer(&call, talk, AnswerForm::Generate).await
}

/// A prompt that is continued as it is, or the text between it and a suffix.
async fn raw(
    call: &Call,
    asked: &mut Asked,
    context: Vec<u32>,
    (prompt, suffix): (String, Option<String>),
) -> Result<Talk, ApiError> {
    let capacity = asked.model.capacity();
    let (fields, parameters) = asked.fields.options(call, capacity, &mut asked.ignored)?;
    let model = &asked.model;
    let mut generation =
        GenerationRequest::read(call, (&fields, &parameters), model, ZeroTopP::One)?;
    asked.fields.shape_answer(call, &mut generation)?;
    let logprobs = asked.logprobs(call)?;
    if let Some(logprobs) = logprobs {
        logprobs.apply(&mut generation.job);
    }
    let spans = match suffix {
        None => None,
        Some(suffix) => Some(fill::need(&model.parts.tokenizer, "suffix", &prompt, &suffix)?),
    };
    let entered = enter(call)?;
    let (encoder, negative) = (model.clone(), generation.negative.clone());
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
    let plan = SplitPlan { include_stop: generation.delivery.include_stop, ..SplitPlan::default() };
    Talk::begin(entered, call, model, (generation, logprobs), (prompt, "prompt"), &plan).await
}
