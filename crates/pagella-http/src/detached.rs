//! Streams that go on without their connection: what is written is kept for a while, so that a
//! client that lost its connection reads on where it was.
//!
//! A task of its own takes the place of the connection. It ends, and with it the jobs, when nobody
//! has read for a while, or when another request takes the same id.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::call::Call;
use crate::fields::out_of_range;
use crate::wire::error::{ApiError, Code};
use crate::wire::sse::{self, EventStream};

/// Bytes of a stream that are kept; the oldest go first.
const RING_BYTES_MAX: usize = 4 << 20;
/// How long a stream that has ended can still be read.
const KEPT: Duration = Duration::from_secs(300);
/// Longest id.
const ID_BYTES_MAX: usize = 128;

/// Streams by key and id.
#[derive(Clone, Default)]
pub struct Detached {
    sessions: Arc<Mutex<HashMap<Name, Arc<Session>>>>,
}

/// Whose stream, and which one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name {
    /// Name of the key.
    pub key: String,
    /// The client's id.
    pub id: String,
}

/// A stream that was asked to go on without its connection.
pub struct Wanted {
    name: Name,
    request: String,
}

/// What can be known of a stream.
pub struct Status {
    /// Whether it has ended.
    pub ended: bool,
    /// The first byte that is kept.
    pub begins: u64,
    /// Bytes written so far.
    pub bytes: u64,
}

/// One stream.
pub struct Session {
    /// The request that writes it.
    pub request: String,
    ring: Mutex<Ring>,
    /// Told whenever the ring changes.
    changed: watch::Sender<()>,
    readers: watch::Sender<usize>,
    task: OnceLock<AbortHandle>,
}

#[derive(Default)]
struct Ring {
    pieces: VecDeque<Bytes>,
    /// Place of the first byte that is kept, and of the next that is written.
    begins: u64,
    ends: u64,
    ended: bool,
}

/// What a reader finds at its place.
enum Found {
    Bytes(Bytes),
    Nothing,
    End,
    Lost,
}

/// The stream that a request wants to be kept, if it does.
pub fn wanted<A>(call: &Call<A>) -> Result<Option<Wanted>, ApiError> {
    let Some(value) = call.headers.get("x-conversation-id") else { return Ok(None) };
    if call.route.path != "/v1/chat/completions" {
        return Ok(None);
    }
    let fits = |id: &&str| (1..=ID_BYTES_MAX).contains(&id.len());
    let Some(id) = value.to_str().ok().filter(fits) else {
        return Err(out_of_range("x-conversation-id", "1 to 128 characters of ASCII"));
    };
    let name = Name { key: call.caller.key.name.clone(), id: id.to_owned() };
    Ok(Some(Wanted { name, request: call.id.clone() }))
}

impl Detached {
    fn lock(&self) -> MutexGuard<'_, HashMap<Name, Arc<Session>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a stream go on by itself, and returns one that reads it. An older one of the same name
    /// ends.
    pub fn adopt(&self, patience: Duration, wanted: Wanted, events: EventStream) -> EventStream {
        let session = Arc::new(Session {
            request: wanted.request,
            ring: Mutex::default(),
            changed: watch::Sender::new(()),
            readers: watch::Sender::new(0),
            task: OnceLock::new(),
        });
        let older = self.lock().insert(wanted.name.clone(), session.clone());
        if let Some(older) = older {
            older.abort();
        }
        // It counts as a reader before the task looks for one.
        let reader = session.read_from(0);
        let (sessions, own, name) = (self.clone(), session.clone(), wanted.name);
        let task = tokio::spawn(async move {
            own.write(events, patience).await;
            tokio::time::sleep(KEPT).await;
            let mut all = sessions.lock();
            if all.get(&name).is_some_and(|known| Arc::ptr_eq(known, &own)) {
                all.remove(&name);
            }
        });
        // Set once, right here.
        let _ = session.task.set(task.abort_handle());
        reader
    }

    /// The stream of a name; of any key when `key` is `None`.
    pub fn find(&self, id: &str, key: Option<&str>) -> Option<Arc<Session>> {
        let all = self.lock();
        let mut named = all.iter().filter(|(name, _)| name.id == id);
        named
            .find(|(name, _)| key.is_none_or(|key| name.key == key))
            .map(|(_, found)| found.clone())
    }
}

impl Session {
    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what the block says until it ends or nobody reads any more.
    async fn write(&self, mut events: EventStream, patience: Duration) {
        let mut abandoned = std::pin::pin!(self.abandoned(patience));
        loop {
            tokio::select! {
                biased;
                piece = poll_fn(|context| events.poll_next(context)) => match piece {
                    Some(bytes) => self.append(bytes),
                    None => break,
                },
                () = &mut abandoned => break,
            }
        }
        // The block goes, and its jobs with it.
        drop(events);
        self.end();
    }

    /// Waits until nobody has read for a while.
    async fn abandoned(&self, patience: Duration) {
        let mut readers = self.readers.subscribe();
        loop {
            // The sender lives as long as `self`.
            let _ = readers.wait_for(|n| *n == 0).await;
            let back = readers.wait_for(|n| *n > 0);
            if tokio::time::timeout(patience, back).await.is_err() {
                return;
            }
        }
    }

    fn append(&self, bytes: Bytes) {
        let mut ring = self.lock();
        ring.ends += bytes.len() as u64;
        ring.pieces.push_back(bytes);
        while ring.ends - ring.begins > RING_BYTES_MAX as u64 {
            let Some(oldest) = ring.pieces.pop_front() else { break };
            ring.begins += oldest.len() as u64;
        }
        drop(ring);
        self.changed.send_replace(());
    }

    fn end(&self) {
        self.lock().ended = true;
        self.changed.send_replace(());
    }

    fn abort(&self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
        self.end();
    }

    /// How far it is.
    pub fn status(&self) -> Status {
        let ring = self.lock();
        Status { ended: ring.ended, begins: ring.begins, bytes: ring.ends }
    }

    /// Whether it can be read from a place on.
    pub fn check(&self, from: u64) -> Result<(), ApiError> {
        let ring = self.lock();
        if from > ring.ends {
            return Err(out_of_range("from", &format!("at most {}", ring.ends)));
        }
        if from < ring.begins {
            let message = "the beginning of that stream is not kept any more: ask again";
            return Err(ApiError::field(Code::NotResumable, "from", message));
        }
        Ok(())
    }

    /// Reads from a place on and follows.
    pub fn read_from(self: &Arc<Self>, from: u64) -> EventStream {
        let reading = Reading::new(self.clone());
        EventStream::new(move |sink| async move {
            let session = &reading.session;
            let mut changes = session.changed.subscribe();
            let mut at = from;
            loop {
                match session.at(at) {
                    Found::Bytes(bytes) => {
                        at += bytes.len() as u64;
                        sink.send(bytes).await;
                    }
                    Found::End => return,
                    Found::Lost => {
                        let message = "the client read too slowly and missed some of the stream";
                        sink.send(sse::error(&ApiError::new(Code::NotResumable, message))).await;
                        return;
                    }
                    // The sender lives as long as the session.
                    Found::Nothing => drop(changes.changed().await),
                }
            }
        })
    }

    fn at(&self, place: u64) -> Found {
        let ring = self.lock();
        if place < ring.begins {
            return Found::Lost;
        }
        let mut begins = ring.begins;
        for piece in &ring.pieces {
            let ends = begins + piece.len() as u64;
            if place < ends {
                return Found::Bytes(piece.slice((place - begins) as usize..));
            }
            begins = ends;
        }
        if ring.ended { Found::End } else { Found::Nothing }
    }
}

/// Someone who reads, for as long as it lives.
struct Reading {
    session: Arc<Session>,
}

impl Reading {
    fn new(session: Arc<Session>) -> Self {
        session.readers.send_modify(|n| *n += 1);
        Reading { session }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.session.readers.send_modify(|n| *n -= 1);
    }
}
