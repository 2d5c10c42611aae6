//! What the page keeps on the server: documents of a key, each with a version.
//!
//! A folder per key, a file per document; the version is part of the file's name, so a list reads no
//! file. A document is replaced by a new file that is complete before the old one goes: whenever the
//! power fails, one of both is there, and the newer one counts. Versions only grow, across deletions
//! too, so a version that a client remembers is never that of another text.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use blake2::digest::consts::U32;
use blake2::{Blake2b, Digest};

use crate::settings::Ui;
use crate::wire::error::{ApiError, Code};

/// Longest name of a document, in bytes.
const ID_BYTES_MAX: usize = 64;
/// What files end with that are not complete.
const UNFINISHED: &str = ".part";

/// A document in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEntry {
    /// Its version.
    pub version: u64,
    /// Bytes of its text.
    pub bytes: u64,
    path: PathBuf,
}

/// What must be true of a document before it is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// It is not there.
    Absent,
    /// It has this version.
    Version(u64),
}

/// Documents of all keys.
pub struct UiStore {
    dir: PathBuf,
    entries_max: usize,
    bytes_max: u64,
    /// Held by whoever looks and changes: versions are compared and set as one.
    changing: Mutex<()>,
}

/// Whether a text can be the name of a document, and of a file on every system.
fn check_id(id: &str) -> Result<(), ApiError> {
    let sign = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(sign) {
        return Ok(());
    }
    let message = format!("an id has 1 to {ID_BYTES_MAX} signs: a to z, 0 to 9 and -");
    Err(ApiError::field(Code::OutOfRange, "id", message))
}

fn absent() -> ApiError {
    ApiError::new(Code::DocumentNotFound, "there is no such document: see /v1/ui/store")
}

fn conflict(now: Option<u64>) -> ApiError {
    let message = "the document was changed meanwhile: read it again, or keep both";
    let details = serde_json::json!({ "version": now.map(|version| version.to_string()) });
    ApiError::new(Code::VersionConflict, message).with_details(details)
}

impl UiStore {
    /// As the operator chose; nothing is read or made yet.
    pub fn new(settings: &Ui) -> Self {
        UiStore {
            dir: settings.store_dir.clone(),
            entries_max: settings.store_max_entries,
            bytes_max: settings.store_max_bytes,
            changing: Mutex::default(),
        }
    }

    /// Names of keys are people's words: what stands on the disk is a digest of them.
    fn folder(&self, key: &str) -> PathBuf {
        let digest: [u8; 32] = Blake2b::<U32>::digest(key.as_bytes()).into();
        let name: String = digest[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        self.dir.join(name)
    }

    /// The documents of a key, by id.
    pub fn list(&self, key: &str) -> Result<BTreeMap<String, StoredEntry>, ApiError> {
        self.entries(key).map_err(|error| failed(&error))
    }

    fn entries(&self, key: &str) -> io::Result<BTreeMap<String, StoredEntry>> {
        let mut found: BTreeMap<String, StoredEntry> = BTreeMap::new();
        let files = match fs::read_dir(self.folder(key)) {
            Ok(files) => files,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
            Err(error) => return Err(error),
        };
        for file in files {
            let file = file?;
            let name = file.file_name();
            let Some((id, version)) = name.to_str().and_then(parse_name) else { continue };
            // A file can go between its name and its length.
            let Ok(facts) = file.metadata() else { continue };
            let entry = StoredEntry { version, bytes: facts.len(), path: file.path() };
            match found.get(id) {
                Some(newer) if newer.version >= version => {}
                _ => drop(found.insert(id.to_owned(), entry)),
            }
        }
        Ok(found)
    }

    /// A document and its version.
    pub fn read(&self, key: &str, id: &str) -> Result<(Vec<u8>, u64), ApiError> {
        check_id(id)?;
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = self.list(key)?.remove(id).ok_or_else(absent)?;
        let text = fs::read(&entry.path).map_err(|error| failed(&error))?;
        Ok((text, entry.version))
    }

    /// Keeps a document; returns its new version.
    pub fn write(
        &self,
        key: &str,
        id: &str,
        text: &[u8],
        expected: Expected,
    ) -> Result<u64, ApiError> {
        check_id(id)?;
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = self.list(key)?;
        let old = all.remove(id);
        check_expected(old.as_ref(), expected)?;
        self.check_room(&all, text.len() as u64)?;
        let version = next_version(old.as_ref());
        let folder = self.folder(key);
        let name = format!("{id}.{version}.json");
        write_whole(&folder, &name, text).map_err(|error| failed(&error))?;
        if let Some(old) = old {
            // If this fails, the older file is there and counts for nothing.
            let _ = fs::remove_file(old.path);
        }
        Ok(version)
    }

    /// Forgets a document, of any version unless one is expected.
    pub fn delete(&self, key: &str, id: &str, expected: Option<Expected>) -> Result<(), ApiError> {
        check_id(id)?;
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = self.list(key)?.remove(id).ok_or_else(absent)?;
        if let Some(expected) = expected {
            check_expected(Some(&entry), expected)?;
        }
        fs::remove_file(&entry.path).map_err(|error| failed(&error))
    }

    fn check_room(
        &self,
        others: &BTreeMap<String, StoredEntry>,
        bytes: u64,
    ) -> Result<(), ApiError> {
        let kept = others.values().map(|entry| entry.bytes).sum::<u64>();
        let message = if others.len() >= self.entries_max {
            format!("a key keeps at most {} documents: delete some", self.entries_max)
        } else if kept.saturating_add(bytes) > self.bytes_max {
            format!("a key keeps at most {} bytes: delete some documents", self.bytes_max)
        } else {
            return Ok(());
        };
        Err(ApiError::new(Code::RequestTooLarge, message))
    }
}

/// What the system says names no path.
fn failed(error: &io::Error) -> ApiError {
    let message = format!("documents cannot be kept ({error}): see ui.store_dir");
    ApiError::new(Code::InternalError, message)
}

fn check_expected(now: Option<&StoredEntry>, expected: Expected) -> Result<(), ApiError> {
    let now = now.map(|entry| entry.version);
    let fits = match expected {
        Expected::Absent => now.is_none(),
        Expected::Version(version) => now == Some(version),
    };
    if fits { Ok(()) } else { Err(conflict(now)) }
}

/// The time in milliseconds, or more.
fn next_version(old: Option<&StoredEntry>) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let now = u64::try_from(now).unwrap_or(u64::MAX);
    now.max(old.map_or(0, |old| old.version + 1))
}

/// `id.version.json`.
fn parse_name(name: &str) -> Option<(&str, u64)> {
    let (id, version) = name.strip_suffix(".json")?.rsplit_once('.')?;
    check_id(id).ok()?;
    Some((id, version.parse().ok()?))
}

/// A file that is there as a whole or not at all.
fn write_whole(folder: &Path, name: &str, text: &[u8]) -> io::Result<()> {
    make_private(folder)?;
    let unfinished = folder.join(format!("{name}{UNFINISHED}"));
    let written = (|| {
        let mut file = fs::File::create(&unfinished)?;
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(&unfinished, folder.join(name))
    })();
    if written.is_err() {
        let _ = fs::remove_file(&unfinished);
    }
    written
}

/// A folder that nobody else on this machine can read.
fn make_private(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(dir: &Path, entries: usize, bytes: u64) -> UiStore {
        let settings = Ui {
            store_dir: dir.join("store"),
            store_max_entries: entries,
            store_max_bytes: bytes,
            ..Ui::default()
        };
        UiStore::new(&settings)
    }

    fn code<T: std::fmt::Debug>(result: Result<T, ApiError>) -> Code {
        result.unwrap_err().code
    }

    #[test]
    fn versions_grow_and_are_compared() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path(), 10, 1000);
        let first = store.write("alice", "a", b"1", Expected::Absent).unwrap();
        assert_eq!(code(store.write("alice", "a", b"x", Expected::Absent)), Code::VersionConflict);
        let second = store.write("alice", "a", b"22", Expected::Version(first)).unwrap();
        assert!(second > first);
        let stale = Expected::Version(first);
        assert_eq!(code(store.write("alice", "a", b"x", stale)), Code::VersionConflict);
        assert_eq!(code(store.delete("alice", "a", Some(stale))), Code::VersionConflict);
        assert_eq!(store.read("alice", "a").unwrap(), (b"22".to_vec(), second));
        let list = store.list("alice").unwrap();
        assert_eq!((list.len(), list["a"].bytes), (1, 2));
        store.delete("alice", "a", None).unwrap();
        assert_eq!(code(store.read("alice", "a")), Code::DocumentNotFound);
        assert_eq!(code(store.delete("alice", "a", None)), Code::DocumentNotFound);
        let again = store.write("alice", "a", b"3", Expected::Absent).unwrap();
        assert!(again >= second);
    }

    #[test]
    fn keys_are_apart_and_limits_are_per_key() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path(), 2, 10);
        let put = |key: &str, id: &str, text: &[u8]| store.write(key, id, text, Expected::Absent);
        put("alice", "a", b"12345").unwrap();
        assert_eq!(code(store.read("bob", "a")), Code::DocumentNotFound);
        put("bob", "a", b"1234567890").unwrap();
        assert_eq!(code(put("bob", "b", b"1")), Code::RequestTooLarge);
        put("alice", "b", b"12345").unwrap();
        assert_eq!(code(put("alice", "c", b"")), Code::RequestTooLarge);
        let version = store.list("alice").unwrap()["b"].version;
        let longer = store.write("alice", "b", b"123456", Expected::Version(version));
        assert_eq!(code(longer), Code::RequestTooLarge);
        store.write("alice", "b", b"54321", Expected::Version(version)).unwrap();
    }

    #[test]
    fn names_lead_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path(), 10, 1000);
        let long = "x".repeat(65);
        for id in ["", ".", "..", "a/b", "a.b", "A", "ä", "a\0", "con.", long.as_str()] {
            assert_eq!(code(store.write("k", id, b"1", Expected::Absent)), Code::OutOfRange);
            assert_eq!(code(store.read("k", id)), Code::OutOfRange, "{id:?}");
        }
        assert!(!dir.path().join("store").exists(), "nothing was made");
    }

    #[test]
    fn what_a_failure_leaves_behind_counts_for_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path(), 10, 1000);
        let version = store.write("k", "a", b"old", Expected::Absent).unwrap();
        let folder = store.folder("k");
        // A newer file that was not finished, an older one that was not removed, a stranger.
        fs::write(folder.join(format!("a.{}.json.part", version + 1)), b"ha").unwrap();
        fs::write(folder.join(format!("a.{}.json", version - 1)), b"older").unwrap();
        fs::write(folder.join("notes.txt"), b"x").unwrap();
        assert_eq!(store.read("k", "a").unwrap(), (b"old".to_vec(), version));
        assert_eq!(store.list("k").unwrap().len(), 1);
    }
}
