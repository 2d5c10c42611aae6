//! Fetching models for a running server, from the hub.

use std::ops::ControlFlow;

use pagella::hub::{FetchOptions, Fetching, HubError, HubId, PullOptions, fetch};
use pagella_server::{FetchError, FetchProgress, Fetcher, Order};

use super::folder::DOWNLOAD_MARK;

/// Fetches from the Hugging Face hub, or what `HF_ENDPOINT` names.
pub struct HubFetcher;

impl Fetcher for HubFetcher {
    fn fetch(
        &self,
        order: &Order,
        report: &mut dyn FnMut(&FetchProgress) -> ControlFlow<()>,
    ) -> Result<(), FetchError> {
        let named = match &order.revision {
            Some(revision) => format!("{}@{revision}", order.repository),
            None => order.repository.clone(),
        };
        let id: HubId = named.parse().map_err(|_| {
            FetchError::Refused(
                "repo_id has the form org/name, and revision is one of its".to_owned(),
            )
        })?;
        let mut pull = PullOptions::from_env();
        if let Some(token) = &order.token {
            pull.token = Some(token.0.clone());
        }
        let options = FetchOptions {
            pull,
            include: order.include.clone(),
            exclude: order.exclude.clone(),
            hosts: order.hosts.clone(),
            cleanup: order.cleanup,
        };
        let mut bytes = 0;
        let fetched = fetch(&id, &order.target, &options, &mut |fetching: &Fetching<'_>| {
            bytes = fetching.bytes_total;
            report(&FetchProgress {
                file: fetching.file.to_owned(),
                done: fetching.bytes_done,
                total: fetching.bytes_total,
                files_done: fetching.files_done,
                files_total: fetching.n_files,
            })
        });
        fetched.map_err(|error| told(&error, bytes))?;
        let marked = std::fs::write(order.target.join(DOWNLOAD_MARK), &order.repository);
        marked.map_err(|_| unwritable())
    }
}

/// What a client may know: no path of this machine.
fn told(error: &HubError, bytes: u64) -> FetchError {
    match error {
        HubError::Stopped => FetchError::Stopped,
        HubError::Status { status: 401 | 403 | 404, .. } => FetchError::Missing(error.to_string()),
        HubError::NotAModel { .. }
        | HubError::NothingMatches { .. }
        | HubError::Names { .. }
        | HubError::Host { .. } => FetchError::Refused(error.to_string()),
        HubError::Cache { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
            FetchError::NoSpace { bytes, free: None }
        }
        HubError::NoSpace { needed, free, .. } => {
            FetchError::NoSpace { bytes: *needed, free: Some(*free) }
        }
        HubError::Cache { .. } => unwritable(),
        other => FetchError::Failed(other.to_string()),
    }
}

fn unwritable() -> FetchError {
    let problem = "the folder of models cannot be written: ask who runs the server";
    FetchError::Failed(problem.to_owned())
}
