//! Fetching models from a hub: begun, watched, stopped.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::call::{Call, Reply};
use crate::downloads::{Order, Secret, Standing, Transfer};
use crate::fields::{
    Fields, Param, any, boolean, missing, number, one_of, out_of_range, strings, text, unsupported,
};
use crate::name;
use crate::wire::error::{ApiError, Code};
use crate::wire::sse;

/// Most patterns of file names.
const PATTERNS_MAX: usize = 64;
/// Fields of a download.
pub const DOWNLOAD: &[&[Param]] = &[&[
    text("repo_id", 200),
    one_of("repo_type", &["model", "lora"]),
    text("folder_name", 255),
    text("revision", 200),
    text("token", 512),
    any("include"),
    any("exclude"),
    number("timeout", 1.0, 1e6),
    number("chunk_limit", 0.0, 1e9),
    boolean("stream"),
    boolean("background"),
    boolean("cleanup"),
]];

/// Stops its transfer when the client goes away before the end.
struct Attached(Arc<Transfer>);

impl Drop for Attached {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// `POST /v1/download`.
pub async fn create(mut call: Call) -> Result<Reply, ApiError> {
    let fields = Fields::read(call.object().await?, DOWNLOAD)?;
    call.settle(&fields)?;
    if !call.app.settings.downloads.enabled {
        let message = "downloads are switched off: see downloads.enabled";
        return Err(ApiError::new(Code::FeatureDisabled, message));
    }
    let (name, order) = order(&call, &fields)?;
    let transfer = call.app.downloads.begin(name, order, call.app.events.clone())?;
    let fields_of = [("model", transfer.name.as_str().into()), ("id", transfer.id.as_str().into())];
    call.app.log.info("download", &fields_of);
    if fields.is("background") {
        return Reply::json(&json!({ "download_path": transfer.name, "id": transfer.id }));
    }
    let attached = Attached(transfer);
    let time = fields.number("timeout").map(Duration::from_secs_f64);
    if fields.is("stream") {
        return Ok(Reply::events(move |sink| async move {
            let mut follow = attached.0.follow();
            loop {
                let standing = follow.borrow_and_update().1.clone();
                if let Standing::Failed(error) = &standing {
                    sink.send(sse::error(error)).await;
                    return;
                }
                sink.send(sse::data(&attached.0.describe())).await;
                if standing != Standing::Running || follow.changed().await.is_err() {
                    return;
                }
            }
        }));
    }
    let mut follow = attached.0.follow();
    let ended = follow.wait_for(|(_, standing)| *standing != Standing::Running);
    let waited = match time {
        None => ended.await.map(|state| state.1.clone()),
        Some(time) => match tokio::time::timeout(time, ended).await {
            Ok(state) => state.map(|state| state.1.clone()),
            Err(_) => {
                let message = "the download took too long and was stopped: ask again to go on";
                return Err(ApiError::new(Code::DeadlineExceeded, message));
            }
        },
    };
    match waited.map_err(|_| ApiError::internal())? {
        Standing::Failed(error) => Err(error),
        Standing::Stopped => {
            let message = "the download was stopped: ask again to go on";
            Err(ApiError::new(Code::UpstreamFailed, message))
        }
        _ => Reply::json(&json!({ "download_path": attached.0.name, "id": attached.0.id })),
    }
}

fn order(call: &Call, fields: &Fields) -> Result<(String, Order), ApiError> {
    if fields.text("repo_type") == Some("lora") {
        return Err(unsupported("repo_type", "adapters are not supported yet"));
    }
    let repository = fields.text("repo_id").ok_or_else(|| missing("repo_id"))?;
    let last = repository.rsplit('/').next().unwrap_or(repository);
    let name = fields.text("folder_name").unwrap_or(last).to_owned();
    name::check(&name)
        .map_err(|error| ApiError::field(Code::OutOfRange, "folder_name", error.to_string()))?;
    let patterns = |field: &str| -> Result<Vec<String>, ApiError> {
        let list =
            fields.value(field).map(|value| strings(field, value, PATTERNS_MAX)).transpose()?;
        let list = list.unwrap_or_default();
        if list.iter().any(|pattern| pattern.is_empty() || pattern.len() > 255) {
            return Err(out_of_range(field, "patterns of 1 to 255 bytes"));
        }
        Ok(list.into_iter().filter(|pattern| pattern != "*").collect())
    };
    let settings = &call.app.settings;
    let root: PathBuf =
        settings.downloads.dir.clone().unwrap_or_else(|| settings.model.model_dir.clone());
    let target = root.join(&name);
    // A link that leads nowhere is there, too.
    if target.symlink_metadata().is_ok() {
        let message = "there is a folder of that name: choose another folder_name";
        return Err(ApiError::field(Code::AlreadyExists, "folder_name", message));
    }
    let order = Order {
        repository: repository.to_owned(),
        revision: fields.text("revision").map(str::to_owned),
        token: fields.text("token").map(|token| Secret(token.to_owned())),
        include: patterns("include")?,
        exclude: patterns("exclude")?,
        hosts: settings.downloads.hosts.clone(),
        target,
        cleanup: fields.is("cleanup"),
    };
    Ok((name, order))
}

fn known(call: &Call) -> Result<Arc<Transfer>, ApiError> {
    let id = call.segment.as_deref().unwrap_or_default();
    call.app.downloads.find(id).ok_or_else(|| {
        let message = "there is no download of that id";
        ApiError::new(Code::RequestNotFound, message)
    })
}

/// `GET /v1/download/{id}`: how far it is.
pub async fn show(call: Call) -> Result<Reply, ApiError> {
    Reply::json(&known(&call)?.describe())
}

/// `DELETE /v1/download/{id}`: stops it.
pub async fn stop(call: Call) -> Result<Reply, ApiError> {
    let stopped = known(&call)?.stop();
    Reply::json(&json!({ "cancelled": Value::Bool(stopped) }))
}
