//! Answers that are being written, by the name that their client gave them. Names belong to a key:
//! nobody sees or ends what another key asked for, whatever it is called.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::requests::Live;

/// An answer that is being written.
struct Writing {
    key: String,
    genkey: String,
    live: Arc<Live>,
    text: Mutex<String>,
}

impl Writing {
    fn is_called(&self, key: &str, genkey: &str) -> bool {
        self.key == key && self.genkey == genkey
    }
}

/// Answers that are being written, oldest first.
#[derive(Clone, Default)]
pub struct Genkeys(Arc<Mutex<Vec<Arc<Writing>>>>);

/// Keeps an answer known by its name while it is written.
pub struct Named {
    all: Genkeys,
    writing: Arc<Writing>,
}

impl Genkeys {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Writing>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a request a name. A name may be in use already: then it means all of them.
    pub fn name(&self, key: &str, genkey: &str, live: Arc<Live>) -> Named {
        let (key, genkey) = (key.to_owned(), genkey.to_owned());
        let writing = Arc::new(Writing { key, genkey, live, text: Mutex::default() });
        self.lock().push(writing.clone());
        Named { all: self.clone(), writing }
    }

    /// Ends the answers of this name with what was written. Returns whether there was one.
    pub fn abort(&self, key: &str, genkey: &str) -> bool {
        let all = self.lock();
        let mut named = all.iter().filter(|writing| writing.is_called(key, genkey)).peekable();
        let found = named.peek().is_some();
        named.for_each(|writing| writing.live.cancel());
        found
    }

    /// What the newest answer of this name says so far; `None` if there is none.
    pub fn text(&self, key: &str, genkey: &str) -> Option<String> {
        let all = self.lock();
        let newest = all.iter().rev().find(|writing| writing.is_called(key, genkey))?;
        Some(newest.text.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

impl Named {
    /// More was written.
    pub fn wrote(&self, text: &str) {
        self.writing.text.lock().unwrap_or_else(PoisonError::into_inner).push_str(text);
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        self.all.lock().retain(|writing| !Arc::ptr_eq(writing, &self.writing));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requests::Requests;

    #[test]
    fn a_name_belongs_to_a_key_and_ends_with_its_answer() {
        let (requests, genkeys) = (Requests::default(), Genkeys::default());
        let listed = requests.list("1", "/api/v1/generate", "alice");
        let named = genkeys.name("alice", "K1", listed.live.clone());
        named.wrote("one ");
        named.wrote("two");
        assert_eq!(genkeys.text("alice", "K1").as_deref(), Some("one two"));
        assert_eq!((genkeys.text("bob", "K1"), genkeys.text("alice", "")), (None, None));
        assert!(!genkeys.abort("bob", "K1") && !listed.live.is_cancelled());
        assert!(genkeys.abort("alice", "K1") && listed.live.is_cancelled());
        drop(named);
        assert!(!genkeys.abort("alice", "K1"));
        assert_eq!(genkeys.text("alice", "K1"), None);
    }

    #[test]
    fn a_name_that_is_used_twice_means_both_and_shows_the_newest() {
        let (requests, genkeys) = (Requests::default(), Genkeys::default());
        let listed: Vec<_> = ["1", "2"].map(|id| requests.list(id, "/", "alice")).into();
        let first = genkeys.name("alice", "", listed[0].live.clone());
        let second = genkeys.name("alice", "", listed[1].live.clone());
        first.wrote("old");
        second.wrote("new");
        assert_eq!(genkeys.text("alice", "").as_deref(), Some("new"));
        assert!(genkeys.abort("alice", ""));
        assert!(listed.iter().all(|listed| listed.live.is_cancelled()));
        drop(second);
        assert_eq!(genkeys.text("alice", "").as_deref(), Some("old"));
    }
}
