//! Requests that live: for lists, and for ending one by its id.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use pagella_engine::Canceller;
use pagella_engine::constraint::Switch;
use serde_json::{Value, json};

pub use pagella_http::access::Progress;

/// One request while it lives.
pub struct Live {
    serial: u64,
    id: String,
    route: &'static str,
    key: String,
    begun: Instant,
    progress: AtomicU8,
    prompt_tokens: AtomicUsize,
    new_tokens: AtomicUsize,
    cancelled: AtomicBool,
    jobs: Mutex<Vec<Canceller>>,
    reasoning: Mutex<Option<Switch>>,
    adapter: OnceLock<String>,
}

impl Live {
    /// How far it is.
    pub fn progress(&self) -> Progress {
        let idx = usize::from(self.progress.load(Ordering::Relaxed));
        Progress::ALL[idx.min(Progress::ALL.len() - 1)]
    }

    /// It has come so far; never back.
    pub fn reach(&self, progress: Progress) {
        self.progress.fetch_max(progress as u8, Ordering::Relaxed);
    }

    /// It has so many prompt tokens.
    pub fn prompt_is(&self, tokens: usize) {
        self.prompt_tokens.store(tokens, Ordering::Relaxed);
    }

    /// It is answered with these adapters.
    pub fn adapter_is(&self, names: Option<&str>) {
        if let Some(names) = names {
            // A request that becomes several groups of jobs has the same for all.
            let _ = self.adapter.set(names.to_owned());
        }
    }

    /// More tokens were written.
    pub fn wrote(&self, tokens: usize) {
        self.new_tokens.fetch_add(tokens, Ordering::Relaxed);
    }

    /// These jobs are its own.
    pub fn owns(&self, jobs: Vec<Canceller>) {
        // Someone may have asked for its end while it was prepared.
        if self.is_cancelled() {
            jobs.iter().for_each(Canceller::cancel);
        }
        *self.jobs.lock().unwrap_or_else(PoisonError::into_inner) = jobs;
    }

    /// Its reasoning can be closed by this.
    pub fn reasons(&self, switch: Switch) {
        *self.reasoning.lock().unwrap_or_else(PoisonError::into_inner) = Some(switch);
    }

    fn end_reasoning(&self) -> bool {
        let switch = self.reasoning.lock().unwrap_or_else(PoisonError::into_inner);
        switch.as_ref().inspect(|switch| switch.close()).is_some()
    }

    /// Whether someone asked for its end.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Ends it with what was written.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.iter().for_each(Canceller::cancel);
    }

    fn describe(&self) -> Value {
        json!({
            "id": self.id,
            "route": self.route,
            "key": self.key,
            "phase": self.progress().name(),
            "prompt_tokens": self.prompt_tokens.load(Ordering::Relaxed),
            "completion_tokens": self.new_tokens.load(Ordering::Relaxed),
            "lora": self.adapter.get(),
            "age": self.begun.elapsed().as_secs_f64(),
        })
    }
}

/// To whom a job belongs.
pub struct Owner {
    /// Id of the request.
    pub id: String,
    /// Name of its key.
    pub key: String,
    /// Names of its adapters.
    pub adapter: Option<String>,
    /// Number of its first job, by which jobs of one request are known.
    pub first: u64,
}

type Map = BTreeMap<u64, Arc<Live>>;

/// Requests that live, oldest first.
#[derive(Clone, Default)]
pub struct Requests {
    live: Arc<Mutex<(u64, Map)>>,
}

/// Keeps a request listed while it lives.
pub struct Listed {
    requests: Requests,
    /// The request.
    pub live: Arc<Live>,
}

impl Requests {
    fn lock(&self) -> MutexGuard<'_, (u64, Map)> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists a request.
    pub fn list(&self, id: &str, route: &'static str, key: &str) -> Listed {
        let mut all = self.lock();
        all.0 += 1;
        let live = Arc::new(Live {
            serial: all.0,
            id: id.to_owned(),
            route,
            key: key.to_owned(),
            begun: Instant::now(),
            progress: AtomicU8::new(0),
            prompt_tokens: AtomicUsize::new(0),
            new_tokens: AtomicUsize::new(0),
            cancelled: AtomicBool::new(false),
            jobs: Mutex::default(),
            reasoning: Mutex::default(),
            adapter: OnceLock::new(),
        });
        all.1.insert(live.serial, live.clone());
        drop(all);
        Listed { requests: self.clone(), live }
    }

    /// Describes all requests, or those of one key.
    pub fn describe(&self, key: Option<&str>) -> Vec<Value> {
        let all = self.lock();
        let own = all.1.values().filter(|live| key.is_none_or(|key| live.key == key));
        own.map(|live| live.describe()).collect()
    }

    /// Ends the requests of this id, of all keys or of one. Returns whether there was one. Object
    /// ids, such as `chatcmpl-…`, work too.
    pub fn cancel(&self, id: &str, key: Option<&str>) -> bool {
        let named = self.named(id, key);
        named.iter().for_each(|live| live.cancel());
        !named.is_empty()
    }

    /// Ends the requests of a route, of all keys or of one.
    pub fn cancel_route(&self, route: &str, key: Option<&str>) {
        let all = self.lock();
        let asked = all.1.values().filter(|live| live.route == route);
        asked.filter(|live| key.is_none_or(|key| live.key == key)).for_each(|live| live.cancel());
    }

    /// Closes the reasoning of the requests of this id. Returns whether there was one that reasons,
    /// or `None` if there was none of this id.
    pub fn end_reasoning(&self, id: &str, key: Option<&str>) -> Option<bool> {
        let named = self.named(id, key);
        let closed = named.iter().filter(|live| live.end_reasoning()).count();
        (!named.is_empty()).then_some(closed > 0)
    }

    fn named(&self, id: &str, key: Option<&str>) -> Vec<Arc<Live>> {
        let prefixes = ["chatcmpl-", "cmpl-", "msg_", "resp_"];
        let bare = prefixes.iter().find_map(|prefix| id.strip_prefix(prefix));
        let all = self.lock();
        let named = all.1.values().filter(|live| live.id == id || Some(&*live.id) == bare);
        named.filter(|live| key.is_none_or(|key| live.key == key)).cloned().collect()
    }

    /// To whom each job belongs, by number.
    pub fn owners(&self) -> BTreeMap<u64, Owner> {
        let mut owners = BTreeMap::new();
        for live in self.lock().1.values() {
            let jobs = live.jobs.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(first) = jobs.first().map(Canceller::serial) else { continue };
            for job in jobs.iter() {
                let (id, key) = (live.id.clone(), live.key.clone());
                let owner = Owner { id, key, adapter: live.adapter.get().cloned(), first };
                owners.insert(job.serial(), owner);
            }
        }
        owners
    }

    /// Names of the adapters with which answers are computed, and of those with which others wait.
    pub fn adapters(&self) -> [BTreeSet<String>; 2] {
        let mut names = [BTreeSet::new(), BTreeSet::new()];
        for live in self.lock().1.values() {
            let waits = live.progress() <= Progress::Queued;
            let own = live.adapter.get().into_iter().flat_map(|joined| joined.split(','));
            names[usize::from(waits)].extend(own.map(str::to_owned));
        }
        names
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.lock().1.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends all of them.
    pub fn cancel_all(&self) {
        self.lock().1.values().for_each(|live| live.cancel());
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.requests.lock().1.remove(&self.live.serial);
    }
}
