//! Responses that are kept: in memory, each for the key that asked, bounded in number, bytes and age.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::watch;

use super::object::Object;
use crate::settings::Responses;
use crate::wire::error::{ApiError, Code};

/// A response that is kept.
pub struct Stored {
    key: String,
    id: String,
    at: Instant,
    /// Nobody waited for it.
    pub background: bool,
    /// Items of its request.
    pub input: Vec<Value>,
    /// Items of the conversation before it.
    before: Vec<Value>,
    state: Mutex<State>,
    /// Changes whenever the state does.
    changed: watch::Sender<()>,
    cancel: watch::Sender<bool>,
}

struct State {
    object: Object,
    /// All events so far, by their numbers.
    events: Vec<Bytes>,
    done: bool,
    bytes: usize,
}

impl Stored {
    /// A response as it is now; `done` if nothing about it will change.
    pub fn new(
        key: &str,
        object: Object,
        before: Vec<Value>,
        input: Vec<Value>,
        background: bool,
        done: bool,
    ) -> Self {
        let id = object.id.clone();
        let mut stored = Stored {
            key: key.to_owned(),
            id,
            at: Instant::now(),
            background,
            input,
            before,
            state: Mutex::new(State { object, events: Vec::new(), done, bytes: 0 }),
            changed: watch::Sender::new(()),
            cancel: watch::Sender::new(false),
        };
        stored.weigh();
        stored
    }

    fn weigh(&mut self) {
        let size = |items: &[Value]| items.iter().map(weight).sum::<usize>();
        let items = size(&self.before) + size(&self.input);
        let mut state = self.state();
        state.bytes = items + weight(&state.object.value());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object as it is now.
    pub fn object(&self) -> Value {
        self.state().object.value()
    }

    /// Whether nothing about it will change.
    pub fn is_done(&self) -> bool {
        self.state().done
    }

    /// Everything that was said up to and including this response; `None` while it is written.
    pub fn conversation(&self) -> Option<Vec<Value>> {
        let state = self.state();
        let all = self.before.iter().chain(&self.input).chain(state.object.output());
        state.done.then(|| all.cloned().collect())
    }

    /// Notes events, and what the response became.
    pub fn note(&self, object: &Object, events: Vec<Bytes>, done: bool) {
        let mut state = self.state();
        state.bytes += events.iter().map(Bytes::len).sum::<usize>();
        state.events.extend(events);
        state.object = object.clone();
        if done {
            state.bytes += weight(&object.value());
        }
        state.done = done;
        drop(state);
        self.changed.send_replace(());
    }

    /// The end of a response whose writer had a defect.
    pub fn give_up(&self, error: &ApiError) {
        let mut object = self.state().object.clone();
        object.set_status("failed");
        object.set_error(error);
        self.note(&object, Vec::new(), true);
    }

    /// Events from a number on, and whether those are all that will come.
    pub fn events_from(&self, number: usize) -> (Vec<Bytes>, bool) {
        let state = self.state();
        (state.events.get(number..).unwrap_or_default().to_vec(), state.done)
    }

    /// Follows changes.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Asks for its end.
    pub fn cancel(&self) {
        self.cancel.send_replace(true);
    }

    /// Waits until someone asks for its end.
    pub async fn cancelled(&self) {
        let mut cancel = self.cancel.subscribe();
        // The sender lives as long as `self`.
        let _ = cancel.wait_for(|cancel| *cancel).await;
    }

    /// Waits for its end.
    pub async fn ended(&self) {
        let mut changes = self.changes();
        while !self.is_done() && changes.changed().await.is_ok() {}
    }
}

/// About how much memory a value takes, in bytes.
fn weight(value: &Value) -> usize {
    const NODE_BYTES: usize = 40;
    NODE_BYTES
        + match value {
            Value::String(text) => text.len(),
            Value::Array(list) => list.iter().map(weight).sum(),
            Value::Object(map) => {
                map.iter().map(|(key, value)| NODE_BYTES + key.len() + weight(value)).sum()
            }
            _ => 0,
        }
}

/// All responses that are kept.
pub struct Store {
    limits: Responses,
    /// The last used ones at the back.
    entries: Mutex<VecDeque<Arc<Stored>>>,
}

impl Store {
    /// An empty one.
    pub fn new(limits: &Responses) -> Self {
        Store { limits: limits.clone(), entries: Mutex::default() }
    }

    fn entries(&self) -> MutexGuard<'_, VecDeque<Arc<Stored>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a response, and gives up others for it where there are too many.
    pub fn keep(&self, stored: Stored) -> Arc<Stored> {
        let stored = Arc::new(stored);
        let mut entries = self.entries();
        entries.retain(|other| (&other.key, &other.id) != (&stored.key, &stored.id));
        entries.push_back(stored.clone());
        self.trim(&mut entries);
        stored
    }

    /// Gives up what is too old, then the oldest of whoever keeps most. What is being written stays.
    fn trim(&self, entries: &mut VecDeque<Arc<Stored>>) {
        entries.retain(|entry| !entry.is_done() || entry.at.elapsed() < self.limits.ttl);
        loop {
            let mut bytes_by_key: HashMap<&str, usize> = HashMap::new();
            let mut bytes = 0;
            for entry in entries.iter() {
                let own = entry.state().bytes;
                bytes += own;
                *bytes_by_key.entry(&entry.key).or_default() += own;
            }
            if entries.len() <= self.limits.max_entries && bytes <= self.limits.max_bytes {
                return;
            }
            let heaviest = bytes_by_key.into_iter().max_by_key(|(key, bytes)| (*bytes, *key));
            let Some(key) = heaviest.map(|(key, _)| key.to_owned()) else { return };
            let idle = |entry: &Arc<Stored>| entry.is_done();
            let of_key = entries.iter().position(|entry| entry.key == key && idle(entry));
            let Some(idx) = of_key.or_else(|| entries.iter().position(idle)) else { return };
            entries.remove(idx);
        }
    }

    /// A response of a key. Those of others do not exist for it.
    pub fn find(&self, key: &str, id: &str) -> Result<Arc<Stored>, ApiError> {
        let mut entries = self.entries();
        self.trim(&mut entries);
        let idx = entries.iter().position(|entry| entry.key == key && entry.id == id);
        match idx.and_then(|idx| entries.remove(idx)) {
            Some(found) => {
                entries.push_back(found.clone());
                Ok(found)
            }
            None => Err(not_found()),
        }
    }

    /// Forgets a response of a key.
    pub fn delete(&self, key: &str, id: &str) -> Result<(), ApiError> {
        let found = self.find(key, id)?;
        found.cancel();
        self.entries().retain(|entry| !Arc::ptr_eq(entry, &found));
        Ok(())
    }

    /// An item of a key's responses, of their input or their output.
    pub fn item(&self, key: &str, id: &str) -> Option<Value> {
        let entries = self.entries();
        let own = entries.iter().rev().filter(|entry| entry.key == key);
        let is = |item: &&Value| item.get("id").and_then(Value::as_str) == Some(id);
        own.filter_map(|entry| {
            let state = entry.state();
            entry.input.iter().chain(state.object.output()).find(is).cloned()
        })
        .next()
    }

    /// How many are kept.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.entries().len()
    }
}

fn not_found() -> ApiError {
    let message = "there is no such response: it was not stored, was deleted, or is too old";
    ApiError::new(Code::ResponseNotFound, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, json};
    use std::time::Duration;

    fn stored(key: &str, id: &str, done: bool, text: &str) -> Stored {
        let object = Object::new(id, "demo", Map::new());
        let input = vec![json!({"id": format!("msg_{id}"), "content": text})];
        Stored::new(key, object, Vec::new(), input, false, done)
    }

    #[test]
    fn responses_belong_to_their_keys() {
        let store = Store::new(&Responses::default());
        store.keep(stored("a", "1", true, "x"));
        assert!(store.find("a", "resp_1").is_ok());
        assert_eq!(store.find("b", "resp_1").err().unwrap().code, Code::ResponseNotFound);
        assert!(store.item("a", "msg_1").is_some() && store.item("b", "msg_1").is_none());
        assert!(store.delete("b", "resp_1").is_err());
        store.delete("a", "resp_1").unwrap();
        assert!(store.find("a", "resp_1").is_err());
    }

    #[test]
    fn the_oldest_of_whoever_keeps_most_goes_first() {
        let limits = Responses { max_entries: 3, ..Responses::default() };
        let store = Store::new(&limits);
        store.keep(stored("b", "0", true, "x"));
        for id in ["1", "2", "3"] {
            store.keep(stored("a", id, true, "x"));
            store.find("b", "resp_0").unwrap();
        }
        assert!(store.find("a", "resp_1").is_err() && store.find("a", "resp_3").is_ok());
        let limits = Responses { max_bytes: 20_000, ..Responses::default() };
        let store = Store::new(&limits);
        for id in ["1", "2", "3"] {
            store.keep(stored("a", id, true, &"x".repeat(8000)));
        }
        assert_eq!(store.len(), 2);
    }

    #[test]
    fn what_is_being_written_stays_and_what_is_old_goes() {
        let limits = Responses { max_entries: 1, ttl: Duration::ZERO, ..Responses::default() };
        let store = Store::new(&limits);
        store.keep(stored("a", "1", false, "x"));
        store.keep(stored("a", "2", true, "x"));
        assert!(store.find("a", "resp_2").is_err() && store.find("a", "resp_1").is_ok());
    }
}
