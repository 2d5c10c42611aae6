//! `/v1/model/load`: a model is opened, and its progress told.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::call::{Call, Reply};
use crate::fields::AsWritten;
use crate::model::{
    ConversationOptions, Followed, Follower, ForeignFields, LoadAsk, LoadOrigin, OptionFields,
    begin_load, effective_options, preview,
};
use crate::wire::error::ApiError;
use crate::wire::sse;

/// Which model, and what to do about it.
#[derive(Deserialize, JsonSchema)]
pub struct LoadFields {
    /// The name of a model, as the list has it
    #[schemars(length(min = 1, max = 255), extend("x-aliases" = ["name"]))]
    model_name: String,
    /// Running requests are ended instead of waited for
    #[serde(default)]
    skip_queue: bool,
    /// Progress as events; false: one answer at the end
    #[schemars(extend("default" = true))]
    stream: Option<bool>,
    /// A client that leaves ends the load
    #[serde(default)]
    cancel_on_disconnect: bool,
    /// Only say what it would take
    #[serde(default)]
    dry_run: bool,
    /// The model before stays until this one is ready
    #[serde(default)]
    keep_previous: bool,
    /// Honour the options in the model's own folder
    #[serde(default)]
    trust: bool,
}

/// What the route reads. Options are kept as they were written: more come from elsewhere, and all are
/// read together.
pub type LoadBody =
    (LoadFields, AsWritten<OptionFields>, AsWritten<ForeignFields>, AsWritten<ConversationOptions>);

/// Loads a model. What can be refused is refused before the first event.
pub async fn load(mut call: Call) -> Result<Reply, ApiError> {
    let ((own, options, foreign, conversation), ignored) = call.read::<LoadBody>().await?;
    let written = [options.values, foreign.values, conversation.values];
    let request: Map<String, Value> = written.into_iter().flatten().collect();
    let streams = own.stream != Some(false);
    let app = call.app.clone();
    let begin = move || {
        let ask = LoadAsk {
            options: effective_options(&app, &own.model_name, request, own.trust)?,
            id: own.model_name,
            skip_queue: own.skip_queue,
            keep_previous: own.keep_previous,
            keep: !own.cancel_on_disconnect,
            origin: LoadOrigin::Request,
        };
        match own.dry_run {
            true => preview(&app, &ask).map(Begun::Preview),
            false => begin_load(&app, ask).map(Begun::Load),
        }
    };
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
