//! Fetching models from a hub: begun, watched, stopped.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::call::{Call, Reply};
use crate::downloads::{Order, Secret, Standing, Transfer};
use crate::fields::{InertList, NoEffect, out_of_range, strings};
use crate::name;
use crate::wire::error::{ApiError, Code};
use crate::wire::sse;

/// Most patterns of file names.
const PATTERNS_MAX: usize = 64;
/// The files of an adapter.
const ADAPTER_FILES: [&str; 3] =
    ["adapter_config.json", "adapter_model*.safetensors", "adapter_model*.json"];

/// What is fetched, and how it is told.
#[derive(Deserialize, JsonSchema)]
pub struct DownloadFields {
    /// Owner and name on the hub
    #[schemars(length(max = 200))]
    repo_id: String,
    /// What it is
    #[schemars(extend("default" = "model"))]
    repo_type: Option<RepoType>,
    /// The name here; without it that of the hub
    #[schemars(length(min = 1, max = 255))]
    folder_name: Option<String>,
    /// A branch, tag or commit
    #[schemars(length(max = 200))]
    revision: Option<String>,
    /// For repositories that are not public; neither kept nor logged
    #[schemars(length(max = 512))]
    token: Option<String>,
    /// Patterns of file names
    #[schemars(extend("$ref" = "#/components/schemas/Texts"))]
    include: Option<Value>,
    /// Patterns of file names
    #[schemars(extend("$ref" = "#/components/schemas/Texts"))]
    exclude: Option<Value>,
    /// Seconds after which it is stopped
    #[schemars(range(min = 1.0, max = 1e6))]
    timeout: Option<f64>,
    /// Progress as events
    #[serde(default)]
    stream: bool,
    /// Answer at once; the download goes on
    #[serde(default)]
    background: bool,
    /// Remove what was fetched when it is stopped
    #[serde(default)]
    cleanup: bool,
}

#[derive(Deserialize, JsonSchema, PartialEq)]
#[serde(rename_all = "lowercase")]
enum RepoType {
    Model,
    Lora,
}

/// How much is fetched at once is not the client's business.
pub enum OfDownloads {}

impl InertList for OfDownloads {
    const NAME: &'static str = "DownloadInert";
    const ACCEPTED: &'static str = "chunk_limit";
}

/// What the route reads.
pub type DownloadBody = (DownloadFields, NoEffect<OfDownloads>);

/// Stops its transfer when the client goes away before the end.
struct Attached(Arc<Transfer>);

impl Drop for Attached {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// `POST /v1/download`.
pub async fn create(mut call: Call) -> Result<Reply, ApiError> {
    let ((fields, _), _) = call.read::<DownloadBody>().await?;
    let time = fields.timeout.map(Duration::from_secs_f64);
    let (stream, background) = (fields.stream, fields.background);
    if !call.app.settings.downloads.enabled {
        let message = "downloads are switched off: see downloads.enabled";
        return Err(ApiError::new(Code::FeatureDisabled, message));
    }
    let (name, order) = order(&call, fields)?;
    let transfer = call.app.downloads.begin(name, order, call.app.events.clone())?;
    let fields_of = [("model", transfer.name.as_str().into()), ("id", transfer.id.as_str().into())];
    call.app.log.info("download", &fields_of);
    if background {
        return Reply::json(&json!({ "download_path": transfer.name, "id": transfer.id }));
    }
    let attached = Attached(transfer);
    if stream {
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

fn order(call: &Call, fields: DownloadFields) -> Result<(String, Order), ApiError> {
    let is_adapter = fields.repo_type == Some(RepoType::Lora);
    let repository = fields.repo_id;
    let last = repository.rsplit('/').next().unwrap_or(&repository);
    let name = fields.folder_name.unwrap_or_else(|| last.to_owned());
    name::check(&name)
        .map_err(|error| ApiError::field(Code::OutOfRange, "folder_name", error.to_string()))?;
    let patterns = |field: &str, value: Option<Value>| -> Result<Vec<String>, ApiError> {
        let list = value.map(|value| strings(field, &value, PATTERNS_MAX)).transpose()?;
        let list = list.unwrap_or_default();
        if list.iter().any(|pattern| pattern.is_empty() || pattern.len() > 255) {
            return Err(out_of_range(field, "patterns of 1 to 255 bytes"));
        }
        Ok(list.into_iter().filter(|pattern| pattern != "*").collect())
    };
    let settings = &call.app.settings;
    let root: PathBuf = match &settings.downloads.dir {
        _ if is_adapter => settings.lora.lora_dir.clone(),
        Some(dir) => dir.clone(),
        None => settings.model.model_dir.clone(),
    };
    let mut include = patterns("include", fields.include)?;
    if is_adapter && include.is_empty() {
        include = ADAPTER_FILES.map(str::to_owned).to_vec();
    }
    let target = root.join(&name);
    // A link that leads nowhere is there, too.
    if target.symlink_metadata().is_ok() {
        let message = "there is a folder of that name: choose another folder_name";
        return Err(ApiError::field(Code::AlreadyExists, "folder_name", message));
    }
    let order = Order {
        repository,
        revision: fields.revision,
        token: fields.token.map(Secret),
        include,
        exclude: patterns("exclude", fields.exclude)?,
        hosts: settings.downloads.hosts.clone(),
        target,
        cleanup: fields.cleanup,
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
