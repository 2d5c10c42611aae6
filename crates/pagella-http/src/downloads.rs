//! Models on their way here, which are repositories of files. Fetching is done by whoever starts the server ([`Fetcher`]); here is
//! known what runs, how far it is and who may stop it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::watch;

use crate::events::Events;
use crate::wire::error::{ApiError, Code};
use crate::wire::id::ulid;

/// Transfers that are remembered after their end.
const REMEMBERED_MAX: usize = 64;

/// What is to be fetched.
#[derive(Clone, Debug)]
pub struct Order {
    /// `org/name`.
    pub repository: String,
    /// Branch, tag or commit.
    pub revision: Option<String>,
    /// For private ones. Never written down.
    pub token: Option<Secret>,
    /// Patterns of the files that are wanted; empty for what a model needs.
    pub include: Vec<String>,
    /// Patterns of files that are not.
    pub exclude: Vec<String>,
    /// Hosts that may be asked.
    pub hosts: Vec<String>,
    /// The folder that it becomes.
    pub target: PathBuf,
    /// Remove what is there of it when it is stopped.
    pub cleanup: bool,
}

/// A text that is never shown.
#[derive(Clone)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// How far a transfer is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FetchProgress {
    /// The file that is being fetched.
    pub file: String,
    /// Bytes of all files that are there.
    pub done: u64,
    /// Bytes of all files.
    pub total: u64,
    /// Files that are there.
    pub files_done: usize,
    /// Files in all.
    pub files_total: usize,
}

/// Why a transfer ended without success.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// It was stopped.
    #[error("the download was stopped: ask again to go on")]
    Stopped,
    /// The order makes no sense.
    #[error("{0}")]
    Refused(String),
    /// There is no such thing.
    #[error("{0}")]
    Missing(String),
    /// The disk is full, or would be.
    #[error(
        "there is not enough space for {bytes} bytes{}: free some and ask again",
        free.map_or(String::new(), |free| format!(", only for {free}"))
    )]
    NoSpace {
        /// What it would take.
        bytes: u64,
        /// What there is, if that was looked at.
        free: Option<u64>,
    },
    /// Something else, which may pass.
    #[error("{0}")]
    Failed(String),
}

/// Fetches models.
pub trait Fetcher: Send + Sync {
    /// Fetches everything, or stops when `report` says so. Takes as long as it takes.
    fn fetch(
        &self,
        order: &Order,
        report: &mut dyn FnMut(&FetchProgress) -> ControlFlow<()>,
    ) -> Result<(), FetchError>;
}

/// How a transfer stands.
#[derive(Clone, Debug, PartialEq)]
pub enum Standing {
    /// It goes on.
    Running,
    /// It is there.
    Finished,
    /// It was stopped.
    Stopped,
    /// It failed.
    Failed(ApiError),
}

/// One model on its way.
pub struct Transfer {
    /// Its id.
    pub id: String,
    /// Name of the folder it becomes, relative to its root.
    pub name: String,
    target: PathBuf,
    begun: Instant,
    stop: AtomicBool,
    state: watch::Sender<(FetchProgress, Standing)>,
}

impl Transfer {
    /// How far it is, again and again.
    pub fn follow(&self) -> watch::Receiver<(FetchProgress, Standing)> {
        self.state.subscribe()
    }

    /// Asks it to stop. Returns whether it was running.
    pub fn stop(&self) -> bool {
        self.stop.store(true, Ordering::Relaxed);
        self.state.borrow().1 == Standing::Running
    }

    /// As clients read it.
    pub fn describe(&self) -> Value {
        let (progress, standing) = self.state.borrow().clone();
        let seconds = self.begun.elapsed().as_secs_f64();
        let (status, error) = match &standing {
            Standing::Running => ("downloading", None),
            Standing::Finished => ("finished", None),
            Standing::Stopped => ("stopped", None),
            Standing::Failed(error) => ("failed", Some(error.object())),
        };
        let mut value = json!({
            "id": self.id,
            "download_path": self.name,
            "file": progress.file,
            "done": progress.done,
            "total": progress.total,
            "files_done": progress.files_done,
            "files_total": progress.files_total,
            "rate": if seconds > 0.0 { progress.done as f64 / seconds } else { 0.0 },
            "status": status,
        });
        if let Some(error) = error {
            value["error"] = error;
        }
        value
    }
}

/// All transfers.
#[derive(Default)]
pub struct Downloads {
    fetcher: OnceLock<Arc<dyn Fetcher>>,
    transfers: Arc<Mutex<BTreeMap<String, Arc<Transfer>>>>,
}

impl Downloads {
    /// Says who fetches; the first one stays.
    pub fn fetch_with(&self, fetcher: Arc<dyn Fetcher>) {
        let _ = self.fetcher.set(fetcher);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Transfer>>> {
        self.transfers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A transfer by its id.
    pub fn find(&self, id: &str) -> Option<Arc<Transfer>> {
        self.lock().get(id).cloned()
    }

    /// Begins a transfer on a thread of its own, which tells `events` how far it is.
    pub fn begin(
        &self,
        name: String,
        order: Order,
        events: Events,
    ) -> Result<Arc<Transfer>, ApiError> {
        let Some(fetcher) = self.fetcher.get().cloned() else {
            let message = "this server cannot fetch models: fetch them with `pagella pull`";
            return Err(ApiError::new(Code::FeatureDisabled, message));
        };
        let transfer = Arc::new(Transfer {
            id: ulid(),
            name,
            target: order.target.clone(),
            begun: Instant::now(),
            stop: AtomicBool::new(false),
            state: watch::Sender::new((FetchProgress::default(), Standing::Running)),
        });
        let mut all = self.lock();
        let running = |other: &&Arc<Transfer>| other.state.borrow().1 == Standing::Running;
        if all.values().filter(running).any(|other| other.target == transfer.target) {
            let message = "that folder is being downloaded already: see /v1/download/{id}";
            return Err(ApiError::new(Code::AlreadyExists, message));
        }
        let over = all.len().saturating_sub(REMEMBERED_MAX);
        let ended: Vec<String> =
            all.values().filter(|other| !running(other)).map(|other| other.id.clone()).collect();
        ended.iter().take(over).for_each(|id| drop(all.remove(id)));
        all.insert(transfer.id.clone(), transfer.clone());
        drop(all);
        let worker = transfer.clone();
        let thread = std::thread::Builder::new().name("pagella-fetch".to_owned());
        let spawned = thread.spawn(move || run(&worker, fetcher.as_ref(), &order, &events));
        if spawned.is_err() {
            transfer.state.send_modify(|state| state.1 = Standing::Failed(ApiError::internal()));
            return Err(ApiError::internal());
        }
        Ok(transfer)
    }

    /// Stops everything.
    pub fn stop_all(&self) {
        for transfer in self.lock().values() {
            transfer.stop();
        }
    }
}

/// Shortest time between two reports.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);

fn run(transfer: &Transfer, fetcher: &dyn Fetcher, order: &Order, events: &Events) {
    let tell = || events.send("download_progress", transfer.describe());
    let mut told: Option<Instant> = None;
    let mut report = |progress: &FetchProgress| {
        if told.is_none_or(|at| at.elapsed() >= REPORT_INTERVAL) || progress.done == progress.total
        {
            told = Some(Instant::now());
            transfer.state.send_modify(|state| state.0 = progress.clone());
            tell();
        }
        match transfer.stop.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    let guarded = std::panic::AssertUnwindSafe(|| fetcher.fetch(order, &mut report));
    let standing = match std::panic::catch_unwind(guarded) {
        Ok(Ok(())) => Standing::Finished,
        Ok(Err(FetchError::Stopped)) => Standing::Stopped,
        Ok(Err(error)) => Standing::Failed(refusal(&error)),
        Err(_) => Standing::Failed(ApiError::internal()),
    };
    transfer.state.send_modify(|state| state.1 = standing);
    tell();
}

/// What a client is told.
fn refusal(error: &FetchError) -> ApiError {
    let code = match error {
        FetchError::Refused(_) => Code::UnsupportedValue,
        FetchError::Missing(_) => Code::ModelNotFound,
        FetchError::NoSpace { bytes, free } => {
            let details = json!({ "disk": { "needed": bytes, "free": free } });
            return ApiError::new(Code::OutOfMemory, error.to_string()).with_details(details);
        }
        FetchError::Stopped | FetchError::Failed(_) => Code::UpstreamFailed,
    };
    ApiError::new(code, error.to_string())
}
