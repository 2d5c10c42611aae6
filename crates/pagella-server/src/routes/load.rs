//! `/v1/model/load`: a model is opened, and its progress told.

use serde_json::{Map, Value, json};

use crate::call::{Call, Reply};
use crate::fields::{Fields, Param, boolean, missing, text};
use crate::model::{
    CONVERSATION, FOREIGN, Followed, Follower, LoadAsk, LoadOrigin, OPTIONS, begin_load,
    effective_options, preview,
};
use crate::wire::error::ApiError;
use crate::wire::sse;

/// Which model, and what to do about it.
const LOAD: &[Param] = &[
    text("model_name", 255).or(&["name"]),
    boolean("skip_queue"),
    boolean("stream"),
    boolean("cancel_on_disconnect"),
    boolean("dry_run"),
    boolean("keep_previous"),
    boolean("trust"),
];

/// Every field of a load.
pub const FIELDS: &[&[Param]] = &[LOAD, OPTIONS, FOREIGN, CONVERSATION];

/// Loads a model. What can be refused is refused before the first event.
pub async fn load(mut call: Call) -> Result<Reply, ApiError> {
    let fields = Fields::read(call.object().await?, FIELDS)?;
    let ignored = call.settle(&fields)?;
    let id = fields.text("model_name").ok_or_else(|| missing("model_name"))?.to_owned();
    let options = [OPTIONS, FOREIGN, CONVERSATION].into_iter().flatten();
    let request: Map<String, Value> = options
        .filter_map(|param| Some((param.name.to_owned(), fields.value(param.name)?.clone())))
        .collect();
    let (trust, dry_run) = (fields.is("trust"), fields.is("dry_run"));
    let (skip_queue, keep_previous) = (fields.is("skip_queue"), fields.is("keep_previous"));
    let keep = !fields.is("cancel_on_disconnect");
    let app = call.app.clone();
    let begin = move || {
        let options = effective_options(&app, &id, request, trust)?;
        let origin = LoadOrigin::Request;
        let ask = LoadAsk { id, options, skip_queue, keep_previous, keep, origin };
        match dry_run {
            true => preview(&app, &ask).map(Begun::Preview),
            false => begin_load(&app, ask).map(Begun::Load),
        }
    };
    let streams = fields.bool("stream") != Some(false);
    let mut reply = match (call.app.blocking.run(begin).await?, streams) {
        (Begun::Preview(plan), _) => Reply::json(&plan)?,
        (Begun::Load(None), false) => Reply::json(&already_there())?,
        (Begun::Load(None), true) => {
            Reply::events(|sink| async move { sink.send(sse::data(&already_there())).await })
        }
        (Begun::Load(Some(follower)), false) => Reply::json(&follower.finish().await?)?,
        (Begun::Load(Some(follower)), true) => follow(&call, follower),
    };
    ignored.write_header(&mut reply.headers);
    Ok(reply)
}

enum Begun {
    Preview(Value),
    Load(Option<Follower>),
}

/// The one event of a model that is loaded as asked.
fn already_there() -> Value {
    json!({ "model_type": "model", "module": 1, "modules": 1, "status": "finished" })
}

/// Events of a load, as they come.
fn follow(call: &Call, mut follower: Follower) -> Reply {
    let app = call.app.clone();
    Reply::events(move |sink| async move {
        let silence = app.settings.network.sse_ping_interval;
        loop {
            let next = match silence.is_zero() {
                true => follower.next().await,
                false => match tokio::time::timeout(silence, follower.next()).await {
                    Ok(next) => next,
                    Err(_) => {
                        sink.send(sse::KEEP_ALIVE).await;
                        continue;
                    }
                },
            };
            match next {
                Followed::Step(event) => sink.send(sse::data(&event)).await,
                Followed::End(Ok(())) => return,
                Followed::End(Err(error)) => return sink.send(sse::error(&error)).await,
            }
        }
    })
}
