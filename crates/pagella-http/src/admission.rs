//! Who may start and who waits, before the engine's own queue: counts in all and by key.
//!
//! A request holds a [`Ticket`] from admission to its end. Everything it counts for is given back
//! when the ticket is dropped, however the request ends.

mod fair;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::auth::Key;
use crate::settings::Limits;
use crate::wire::error::{ApiError, Code};
use fair::Fair;

/// Over how long a key's tokens are counted.
const TOKEN_WINDOW: Duration = Duration::from_secs(60);
/// Requests that the engine has and has not begun; more wait here, where keys take turns.
const SUBMITTED_MAX: usize = 8;
/// Weight of the newest request in the average of how long requests take.
const NEWEST_WEIGHT: f64 = 0.1;

/// Counts of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdmissionCounts {
    /// Admitted, and not begun by the engine.
    pub queued: usize,
    /// Begun.
    pub running: usize,
}

struct State {
    counts: AdmissionCounts,
    /// Jobs of requests that were begun: rows of the batch that are taken.
    jobs: usize,
    keys: HashMap<String, KeyUse>,
    mean_seconds: f64,
    queue_max: usize,
    wait_max: Duration,
    turns: Fair<oneshot::Sender<()>>,
}

/// What one key uses now.
struct KeyUse {
    /// Admitted, and not ended.
    live: usize,
    /// Admitted in all; the entry goes with the last one, unless tokens still count.
    admitted: usize,
    /// Places of its running requests, and how many there are.
    places: Option<(Arc<Semaphore>, usize)>,
    window_began: Instant,
    window_tokens: u64,
}

/// Who may start and who waits.
#[derive(Clone)]
pub struct Admission {
    state: Arc<Mutex<State>>,
}

impl Admission {
    /// Nobody is there yet.
    pub fn new(limits: &Limits) -> Self {
        let state = State {
            counts: AdmissionCounts::default(),
            jobs: 0,
            keys: HashMap::new(),
            mean_seconds: 0.0,
            queue_max: limits.max_queue,
            wait_max: limits.max_queue_wait,
            turns: Fair::new(SUBMITTED_MAX),
        };
        Admission { state: Arc::new(Mutex::new(state)) }
    }

    /// Follows changed limits.
    pub fn set_limits(&self, limits: &Limits) {
        let mut state = self.lock();
        (state.queue_max, state.wait_max) = (limits.max_queue, limits.max_queue_wait);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many there are now.
    pub fn counts(&self) -> AdmissionCounts {
        self.lock().counts
    }

    /// Lets a request in, or says when to come back. `batch` is how many jobs the engines compute at
    /// once: a request for which there is room does not wait, even before its engine has begun it.
    pub fn enter(&self, key: &Arc<Key>, batch: usize) -> Result<Ticket, ApiError> {
        let now = Instant::now();
        let mut state = self.lock();
        let wait = state.estimated_wait();
        let busy = |code, message: String| Err(ApiError::new(code, message).retry_after(wait));
        let room = batch.saturating_sub(state.jobs);
        if state.counts.queued >= state.queue_max.saturating_add(room) {
            let message = format!("{} requests are waiting: try again later", state.counts.queued);
            return busy(Code::QueueFull, message);
        }
        if !state.wait_max.is_zero() && state.counts.queued > 0 && wait > state.wait_max {
            let message = format!("the wait would be about {} s: try again later", wait.as_secs());
            return busy(Code::QueueFull, message);
        }
        let usage = state.keys.entry(key.name.clone()).or_insert_with(|| KeyUse::new(now));
        usage.refresh(key, now);
        if key.tokens_per_minute > 0 && usage.window_tokens >= key.tokens_per_minute {
            let message = format!("the key's {} tokens per minute are used", key.tokens_per_minute);
            let left = usage.window_left(now);
            return Err(ApiError::new(Code::TokensPerMinute, message).retry_after(left));
        }
        let most = key.max_concurrent.saturating_add(key.max_queued);
        if key.max_concurrent > 0 && usage.live >= most {
            let waiting = usage.live.saturating_sub(key.max_concurrent);
            let message = format!("{waiting} requests of this key are waiting already");
            return busy(Code::KeyQueueFull, message);
        }
        usage.live += 1;
        usage.admitted += 1;
        let places = usage.places.as_ref().map(|(places, _)| places.clone());
        state.counts.queued += 1;
        drop(state);
        Ok(Ticket {
            admission: self.clone(),
            key: key.clone(),
            places,
            stage: Mutex::new(Stage::Waiting),
            jobs: AtomicUsize::new(1),
            has_turn: AtomicBool::new(false),
            entered: now,
        })
    }
}

impl State {
    /// Calls whoever may go on.
    fn call(&mut self) {
        while let Some(waker) = self.turns.next() {
            if waker.send(()).is_err() {
                self.turns.release();
            }
        }
    }

    /// About how long until one that waits now begins.
    fn estimated_wait(&self) -> Duration {
        let ahead = self.counts.queued as f64 / self.counts.running.max(1) as f64;
        Duration::from_secs_f64((self.mean_seconds * ahead).clamp(1.0, 60.0))
    }
}

impl KeyUse {
    fn new(now: Instant) -> Self {
        KeyUse { live: 0, admitted: 0, places: None, window_began: now, window_tokens: 0 }
    }

    /// Follows changed limits and a window that has passed.
    fn refresh(&mut self, key: &Key, now: Instant) {
        if now.duration_since(self.window_began) >= TOKEN_WINDOW {
            (self.window_began, self.window_tokens) = (now, 0);
        }
        let places = self.places.as_ref().map_or(0, |(_, n)| *n);
        if places != key.max_concurrent {
            let semaphore = || (Arc::new(Semaphore::new(key.max_concurrent)), key.max_concurrent);
            self.places = (key.max_concurrent > 0).then(semaphore);
        }
    }

    fn window_left(&self, now: Instant) -> Duration {
        TOKEN_WINDOW.saturating_sub(now.duration_since(self.window_began))
    }
}

/// A request that was let in.
pub struct Ticket {
    admission: Admission,
    key: Arc<Key>,
    places: Option<Arc<Semaphore>>,
    stage: Mutex<Stage>,
    /// How many jobs it is in the engine.
    jobs: AtomicUsize,
    /// It is one of those that the engine has and has not begun.
    has_turn: AtomicBool,
    entered: Instant,
}

/// How far a request is with the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    Begun,
    Ended,
}

/// A request that waits for its turn; gives it back if it is not taken.
struct Waiting<'a> {
    ticket: &'a Ticket,
    serial: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.ticket.has_turn.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.ticket.admission.lock();
        if !state.turns.leave(self.serial) {
            state.turns.release();
            state.call();
        }
    }
}

impl Ticket {
    /// Waits for one of the key's places; held while the request runs.
    pub async fn place(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        self.places.clone()?.acquire_owned().await.ok()
    }

    /// Waits until it is the key's turn to hand a request of about so many tokens to the engine.
    pub async fn turn(&self, tokens: usize, priority: i32) {
        let (waiting, called) = self.wait(tokens, priority);
        // The sender is kept until it calls.
        let _ = called.await;
        self.has_turn.store(true, Ordering::Relaxed);
        drop(waiting);
    }

    fn wait(&self, tokens: usize, priority: i32) -> (Waiting<'_>, oneshot::Receiver<()>) {
        let (waker, called) = oneshot::channel();
        let mut state = self.admission.lock();
        let serial = state.turns.enter(&self.key.name, priority, tokens as u64, waker);
        state.call();
        (Waiting { ticket: self, serial }, called)
    }

    /// Lets the next one have its turn.
    fn end_turn(&self, state: &mut State) {
        if self.has_turn.swap(false, Ordering::Relaxed) {
            state.turns.release();
            state.call();
        }
    }

    /// It is so many jobs in the engine.
    pub fn is_jobs(&self, n: usize) {
        self.jobs.store(n, Ordering::Relaxed);
    }

    /// The engine has begun.
    pub fn begin(&self) {
        self.advance(Stage::Begun);
    }

    /// The engine has ended all of it. What is left is to tell the client, and others need not wait
    /// for that.
    pub fn end(&self) {
        self.advance(Stage::Ended);
    }

    fn advance(&self, to: Stage) {
        let mut state = self.admission.lock();
        let mut stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        if *stage == Stage::Waiting {
            self.end_turn(&mut state);
            state.counts.queued -= 1;
            if to == Stage::Begun {
                state.counts.running += 1;
                state.jobs += self.jobs.load(Ordering::Relaxed);
            }
        }
        if *stage == Stage::Begun && to == Stage::Ended {
            state.counts.running -= 1;
            state.jobs -= self.jobs.load(Ordering::Relaxed);
            let seconds = self.entered.elapsed().as_secs_f64();
            state.mean_seconds += NEWEST_WEIGHT * (seconds - state.mean_seconds);
        }
        if *stage != Stage::Ended && to == Stage::Ended {
            let usage = state.keys.get_mut(&self.key.name);
            usage.into_iter().for_each(|usage| usage.live -= 1);
        }
        if *stage != Stage::Ended {
            *stage = to;
        }
    }

    /// Counts tokens for the key.
    pub fn charge(&self, tokens: usize) {
        let mut state = self.admission.lock();
        if let Some(usage) = state.keys.get_mut(&self.key.name) {
            usage.refresh(&self.key, Instant::now());
            usage.window_tokens = usage.window_tokens.saturating_add(tokens as u64);
        }
    }

    /// Tells the client how much of its limits is left.
    pub fn write_headers(&self, headers: &mut HeaderMap) {
        let state = self.admission.lock();
        let Some(usage) = state.keys.get(&self.key.name) else { return };
        let mut put = |name, value: u64| {
            headers.insert(HeaderName::from_static(name), HeaderValue::from(value));
        };
        if self.key.tokens_per_minute > 0 {
            let left = self.key.tokens_per_minute.saturating_sub(usage.window_tokens);
            put("x-ratelimit-limit-tokens", self.key.tokens_per_minute);
            put("x-ratelimit-remaining-tokens", left);
            put("x-ratelimit-reset-tokens", usage.window_left(Instant::now()).as_secs());
        }
        if let Some((places, n)) = &usage.places {
            put("x-ratelimit-limit-requests", *n as u64);
            put("x-ratelimit-remaining-requests", places.available_permits() as u64);
            put("x-ratelimit-reset-requests", 1);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.end();
        let mut state = self.admission.lock();
        if let Some(usage) = state.keys.get_mut(&self.key.name) {
            usage.admitted -= 1;
            if usage.admitted == 0 && usage.window_tokens == 0 {
                state.keys.remove(&self.key.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Role;

    fn admission(queue_max: usize) -> Admission {
        Admission::new(&Limits { max_queue: queue_max, ..Limits::default() })
    }

    #[test]
    fn everything_is_given_back() {
        let admission = admission(8);
        let key = Arc::new(Key { max_concurrent: 2, ..Key::new("a", Role::Api) });
        let first = admission.enter(&key, 0).unwrap();
        let second = admission.enter(&key, 0).unwrap();
        first.begin();
        first.begin();
        assert_eq!(admission.counts(), AdmissionCounts { queued: 1, running: 1 });
        drop((first, second));
        assert_eq!(admission.counts(), AdmissionCounts::default());
        assert!(admission.lock().keys.is_empty());
    }

    #[test]
    fn batch_one_and_queue_two_admit_three_however_far_the_engine_is() {
        let key = Arc::new(Key::new("a", Role::Api));
        // How many of those who came first the engine has begun when the others come.
        for begun in 0..=1 {
            let admission = admission(2);
            let first = admission.enter(&key, 1).unwrap();
            (0..begun).for_each(|_| first.begin());
            let others = [admission.enter(&key, 1).unwrap(), admission.enter(&key, 1).unwrap()];
            let refused = admission.enter(&key, 1).err().unwrap();
            assert_eq!(refused.code, Code::QueueFull, "{begun}");
            first.begin();
            assert!(admission.enter(&key, 1).is_err(), "two wait");
            // Its last word is on its way to its client.
            first.end();
            let fourth = admission.enter(&key, 1).unwrap();
            assert!(admission.enter(&key, 1).is_err());
            drop((first, others, fourth));
            assert_eq!(
                (admission.counts(), admission.lock().jobs),
                (AdmissionCounts::default(), 0)
            );
        }
    }

    #[test]
    fn a_request_takes_as_many_places_as_it_has_jobs() {
        let (admission, key) = (admission(1), Arc::new(Key::new("a", Role::Api)));
        let wide = admission.enter(&key, 4).unwrap();
        wide.is_jobs(3);
        wide.begin();
        let _both = [admission.enter(&key, 4).unwrap(), admission.enter(&key, 4).unwrap()];
        assert_eq!(admission.enter(&key, 4).err().unwrap().code, Code::QueueFull);
    }

    #[test]
    fn a_key_with_one_place_and_two_waiting_admits_three_however_far_the_engine_is() {
        let key = Key { max_concurrent: 1, max_queued: 2, ..Key::new("a", Role::Api) };
        let (admission, key) = (admission(100), Arc::new(key));
        let three: Vec<Ticket> = (0..3).map(|_| admission.enter(&key, 8).unwrap()).collect();
        assert_eq!(admission.enter(&key, 8).err().unwrap().code, Code::KeyQueueFull);
        three[0].begin();
        assert_eq!(admission.enter(&key, 8).err().unwrap().code, Code::KeyQueueFull);
        three[0].end();
        assert!(admission.enter(&key, 8).is_ok());
    }

    #[test]
    fn a_full_queue_is_503_and_a_full_key_429() {
        let admission = admission(3);
        let key = Key { max_concurrent: 1, max_queued: 1, ..Key::new("a", Role::Api) };
        let (key, other) = (Arc::new(key), Arc::new(Key::new("b", Role::Api)));
        let running = admission.enter(&key, 0).unwrap();
        let place = running.places.clone().unwrap().try_acquire_owned().unwrap();
        running.begin();
        let _waiting = admission.enter(&key, 0).unwrap();
        assert_eq!(admission.enter(&key, 0).err().unwrap().code, Code::KeyQueueFull);
        let _others = [admission.enter(&other, 0).unwrap(), admission.enter(&other, 0).unwrap()];
        let refused = admission.enter(&other, 0).err().unwrap();
        assert_eq!(refused.code, Code::QueueFull);
        assert!(refused.retry_after.is_some());
        drop((place, running));
        assert_eq!(admission.counts(), AdmissionCounts { queued: 3, running: 0 });
    }

    #[test]
    fn turns_are_given_back_however_a_request_ends() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let admission = admission(100);
            let key = Arc::new(Key::new("a", Role::Api));
            let tickets: Vec<Ticket> =
                (0..SUBMITTED_MAX).map(|_| admission.enter(&key, 0).unwrap()).collect();
            for ticket in &tickets {
                ticket.turn(10, 0).await;
            }
            let later = admission.enter(&key, 0).unwrap();
            let soon = Duration::from_millis(20);
            assert!(tokio::time::timeout(soon, later.turn(10, 0)).await.is_err(), "all are taken");
            tickets[0].begin();
            tokio::time::timeout(soon * 50, later.turn(10, 0)).await.unwrap();
            drop(tickets);
            for _ in 0..3 * SUBMITTED_MAX {
                let ticket = admission.enter(&key, 0).unwrap();
                ticket.turn(10, 0).await;
            }
        });
    }

    #[test]
    fn tokens_per_minute_are_counted() {
        let admission = admission(8);
        let key = Arc::new(Key { tokens_per_minute: 10, ..Key::new("a", Role::Api) });
        let ticket = admission.enter(&key, 0).unwrap();
        ticket.charge(4);
        let mut headers = HeaderMap::new();
        ticket.write_headers(&mut headers);
        assert_eq!(headers["x-ratelimit-remaining-tokens"], "6");
        ticket.charge(6);
        drop(ticket);
        assert_eq!(admission.enter(&key, 0).err().unwrap().code, Code::TokensPerMinute);
    }
}
