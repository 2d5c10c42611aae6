//! `/v1/responses`: answers that can be kept, continued and fetched later.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::call::{Call, Ignored, Reply};
use crate::chat::{ChatInput, ChatPrompt, ChatRequest, Halving, Talk};
use crate::fields::{out_of_range, wrong_type};
use crate::generate::fields::GenerationFields;
use crate::generate::parameters::Parameters;
use crate::model::ServedModel;
use crate::responses::{
    Object, ResponsesBody, ResponsesRequest, Stored, Writer, follow, run_in_background, shown,
    with_references,
};
use crate::router::query_value;
use crate::routes::model_name::model_for;
use crate::routes::streamed;
use crate::wire::error::{ApiError, Code};
use crate::wire::sse::Sink;

/// A job that has not begun after this long is said to wait.
const WAITS_AFTER: Duration = Duration::from_millis(50);
/// Items of a list unless stated, and at most.
const ITEMS: (usize, usize) = (20, 100);

/// A request with everything it refers to.
struct Prepared {
    /// What all routes share.
    fields: GenerationFields,
    parameters: Parameters,
    request: ResponsesRequest,
    model: Arc<ServedModel>,
    /// Items of the conversation before this request.
    before: Vec<Value>,
    /// Items of this request.
    items: Vec<Value>,
    ignored: Ignored,
}

async fn prepare(call: &mut Call) -> Result<Prepared, ApiError> {
    let (body, mut ignored) = call.read::<ResponsesBody>().await?;
    let (own, _, fields, parameters, _) = body;
    let model = model_for(call, &fields).await?;
    let settings = &call.app.settings;
    let hosted = settings.responses.hosted_tools;
    let mut request =
        ResponsesRequest::read(own, (&fields, &parameters), hosted, &settings.limits)?;
    ignored.add(std::mem::take(&mut request.dropped));
    let (store, key) = (&call.app.responses, &call.caller.key.name);
    let before = match &request.previous {
        None => Vec::new(),
        Some(id) => {
            let param = || Some("previous_response_id".to_owned());
            let found = store.find(key, id);
            let found = found.map_err(|error| ApiError { param: param(), ..error })?;
            found.conversation().ok_or_else(|| {
                let message = "the previous response is still being written: wait for its end";
                ApiError { param: param(), ..ApiError::new(Code::UnsupportedValue, message) }
            })?
        }
    };
    let items = std::mem::take(&mut request.items);
    let items = with_references(items, |id| store.item(key, id))?;
    Ok(Prepared { fields, parameters, request, model, before, items, ignored })
}

impl Prepared {
    /// The conversation without the oldest `dropped` items that are not of the system.
    fn input(&self, dropped: usize) -> Result<ChatInput, ApiError> {
        let mut left = dropped;
        let is_system = |item: &Value| item["role"] == "system" || item["role"] == "developer";
        let mut kept: Vec<Value> = Vec::new();
        for item in self.before.iter().chain(&self.items) {
            // What a tool said is nothing without the call.
            let orphaned = dropped > 0
                && kept.iter().all(is_system)
                && item["type"].as_str().is_some_and(|kind| kind.ends_with("_output"));
            if (left > 0 && !is_system(item)) || orphaned {
                left = left.saturating_sub(1);
            } else {
                kept.push(item.clone());
            }
        }
        self.request.input(&kept)
    }

    async fn count(&self, call: &Call, input: &ChatInput) -> Result<usize, ApiError> {
        ChatPrompt::new(call, input.clone(), &self.model)?.count(call, &self.model).await
    }

    /// The conversation as far as it fits, if old items may give way.
    async fn fitting(&self, call: &Call) -> Result<ChatInput, ApiError> {
        let input = self.input(0)?;
        if !self.request.truncate {
            return Ok(input);
        }
        let capacity = self.model.capacity();
        let wanted = self.parameters.int("max_tokens").unwrap_or(1);
        let reply = usize::try_from(wanted).unwrap_or(1).clamp(1, (capacity / 2).max(1));
        let room = capacity.saturating_sub(reply);
        if self.count(call, &input).await? <= room {
            return Ok(input);
        }
        let n_items = self.before.len() + self.items.len();
        let mut halving = Halving::new(n_items.saturating_sub(1));
        while let Some(number) = halving.next() {
            let tokens = self.count(call, &self.input(number)?).await?;
            halving.tried(number, tokens <= room);
        }
        self.input(halving.found())
    }
}

/// What is kept when a response has ended.
struct Keep {
    call: Call,
    before: Vec<Value>,
    items: Vec<Value>,
}

impl Keep {
    fn keep(self, object: &Object) {
        let key = &self.call.caller.key.name;
        let stored = Stored::new(key, object.clone(), self.before, self.items, false, true);
        self.call.app.responses.keep(stored);
    }
}

/// Answers the request.
pub async fn create(mut call: Call) -> Result<Reply, ApiError> {
    let prepared = prepare(&mut call).await?;
    let input = prepared.fitting(&call).await?;
    let Prepared { fields, parameters, request, model, before, items, mut ignored } = prepared;
    let chat = request.chat(&call, (&fields, &parameters), input, &model)?;
    let mut object = Object::new(&call.id, &model.parts.id, request.echo);
    let sampling = &chat.generation.job.sampling;
    object.sampled_with(sampling.temperature, sampling.top_p);
    object.adapted_by(chat.generation.signature.adapter.as_deref());
    let writer = Writer::new(object);
    let mut headers = http::HeaderMap::new();
    let mut reply = if request.background {
        begin(call, model, chat, writer, before, items)?
    } else {
        let mut talk = chat.start(&call, &model).await?;
        ignored.add(std::mem::take(&mut talk.unenforced));
        talk.running.ticket.write_headers(&mut headers);
        let keep = request.store.then_some(Keep { call, before, items });
        match talk.delivery.stream {
            true => Reply::events(move |sink| stream(writer, talk, keep, sink)),
            false => Reply::json(&whole(writer, talk, keep).await?)?,
        }
    };
    ignored.write_header(&mut headers);
    reply.headers.extend(headers);
    Ok(reply)
}

async fn whole(mut writer: Writer, mut talk: Talk, keep: Option<Keep>) -> Result<Value, ApiError> {
    while let Some(said) = talk.next().await? {
        writer.write(said, &talk);
    }
    if let Some(keep) = keep {
        keep.keep(&writer.object);
    }
    Ok(writer.object.value())
}

async fn stream(mut writer: Writer, mut talk: Talk, keep: Option<Keep>, sink: Sink) {
    let delivery = talk.delivery.clone();
    let bytes = |events: Vec<Value>| events.iter().map(shown).collect::<Vec<_>>();
    let written = async {
        let first = tokio::time::timeout(WAITS_AFTER, talk.next()).await;
        let first = match first {
            Ok(first) => first?,
            Err(_) => {
                sink.send(bytes(writer.queued()).concat()).await;
                None
            }
        };
        if let Some(said) = first {
            let events = writer.write(said, &talk);
            sink.send(bytes(events).concat()).await;
        }
        let write = |said, talk: &Talk, out: &mut Vec<u8>| {
            bytes(writer.write(said, talk)).iter().for_each(|event| out.extend_from_slice(event));
        };
        streamed::write(&mut talk, &delivery, &sink, write).await
    };
    if let Err(error) = written.await {
        let events = writer.fail(&error);
        sink.send(bytes(events).concat()).await;
    }
    if let Some(keep) = keep {
        keep.keep(&writer.object);
    }
}

/// Begins a response that nobody waits for.
fn begin(
    call: Call,
    model: Arc<ServedModel>,
    chat: ChatRequest,
    writer: Writer,
    before: Vec<Value>,
    items: Vec<Value>,
) -> Result<Reply, ApiError> {
    let delivery = chat.generation.delivery.clone();
    let key = &call.caller.key.name;
    let stored = Stored::new(key, writer.object.clone(), before, items, true, false);
    let stored = call.app.responses.keep(stored);
    let body = stored.object();
    let written = tokio::spawn(run_in_background(call, model, chat, writer, stored.clone()));
    let watched = stored.clone();
    tokio::spawn(async move {
        if written.await.is_err() {
            watched.give_up(&ApiError::internal());
        }
    });
    match delivery.stream {
        true => Ok(Reply::events(move |sink| follow(stored, 0, delivery.ping, sink))),
        false => Reply::json(&body),
    }
}

fn stored(call: &Call) -> Result<Arc<Stored>, ApiError> {
    let id = call.segment.as_deref().unwrap_or_default();
    call.app.responses.find(&call.caller.key.name, id)
}

/// A number in the query.
fn number(call: &Call, name: &str) -> Result<Option<usize>, ApiError> {
    let Some(text) = query_value(&call.query, name) else { return Ok(None) };
    let number = text.parse().ok().filter(|number| *number < usize::MAX);
    number.map(Some).ok_or_else(|| wrong_type(name, "a number that is not negative"))
}

/// The response as it is now, or its events.
pub async fn show(call: Call) -> Result<Reply, ApiError> {
    let stored = stored(&call)?;
    match query_value(&call.query, "stream").as_deref() {
        None | Some("false" | "0") => return Reply::json(&stored.object()),
        Some("true" | "1" | "") => {}
        Some(_) => return Err(wrong_type("stream", "true or false")),
    }
    if !stored.background {
        let message = "only responses in the background can be followed: leave stream out";
        return Err(ApiError::field(Code::NotBackground, "stream", message));
    }
    let first = number(&call, "starting_after")?.map_or(0, |number| number + 1);
    let silence = call.app.settings.network.sse_ping_interval;
    let silence = Some(silence).filter(|silence| !silence.is_zero());
    Ok(Reply::events(move |sink| follow(stored, first, silence, sink)))
}

/// Forgets a response.
pub async fn delete(call: Call) -> Result<Reply, ApiError> {
    let id = call.segment.as_deref().unwrap_or_default();
    call.app.responses.delete(&call.caller.key.name, id)?;
    Reply::json(&json!({ "id": id, "object": "response.deleted", "deleted": true }))
}

/// Ends a response that nobody waits for.
pub async fn cancel(call: Call) -> Result<Reply, ApiError> {
    let stored = stored(&call)?;
    if !stored.background {
        let message = "only responses in the background can be cancelled: close the connection";
        return Err(ApiError::new(Code::NotBackground, message));
    }
    stored.cancel();
    stored.ended().await;
    Reply::json(&stored.object())
}

/// The items of a response's request.
pub async fn input_items(call: Call) -> Result<Reply, ApiError> {
    let stored = stored(&call)?;
    let mut items: Vec<&Value> = stored.input.iter().collect();
    match query_value(&call.query, "order").as_deref() {
        None | Some("desc") => items.reverse(),
        Some("asc") => {}
        Some(_) => return Err(wrong_type("order", "asc or desc")),
    }
    let (usual, most) = ITEMS;
    let limit = number(&call, "limit")?.unwrap_or(usual);
    if !(1..=most).contains(&limit) {
        return Err(out_of_range("limit", &format!("from 1 to {most}")));
    }
    if let Some(after) = query_value(&call.query, "after") {
        let at = items.iter().position(|item| item["id"] == after.as_str());
        let at = at.ok_or_else(|| out_of_range("after", "the id of an item of this list"))?;
        items.drain(..=at);
    }
    let has_more = items.len() > limit;
    items.truncate(limit);
    let id = |item: Option<&&Value>| item.map(|item| item["id"].clone());
    Reply::json(&json!({
        "object": "list",
        "data": items,
        "first_id": id(items.first()),
        "last_id": id(items.last()),
        "has_more": has_more,
    }))
}

/// Counts the tokens of the prompt.
pub async fn input_tokens(mut call: Call) -> Result<Reply, ApiError> {
    let prepared = prepare(&mut call).await?;
    let input = prepared.fitting(&call).await?;
    let tokens = prepared.count(&call, &input).await?;
    let body = json!({ "object": "response.input_tokens", "input_tokens": tokens });
    let mut reply = Reply::json(&body)?;
    prepared.ignored.write_header(&mut reply.headers);
    Ok(reply)
}
