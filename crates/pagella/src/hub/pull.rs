//! Downloading a model into the cache: resumable, verified, complete or not visible.
//!
//! A file grows as `blobs/<etag>.part` under a lock, is checked for length and, where the hub gives
//! one, for its SHA-256, and only then gets its final name. The ref that makes the model findable is
//! written last, so an interrupted download never looks like a model.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::cache::hub_home;
use super::client::{Client, Located};
use super::id::is_part;
use super::{HubCache, HubError, HubId};

/// Bytes moved between two reports.
const COPY_BYTES: usize = 256 << 10;

/// Where from and how patiently.
#[derive(Clone, Debug)]
pub struct PullOptions {
    /// Address of the hub.
    pub endpoint: String,
    /// Sent to that address only.
    pub token: Option<String>,
    /// Attempts in a row that may fail without a single new byte.
    pub attempts: usize,
    /// Wait after the first failure; doubles with every further one.
    pub retry_wait: Duration,
}

impl PullOptions {
    /// The public hub, or what `HF_ENDPOINT` and `HF_TOKEN` say; the token may also be in the file
    /// that the Hugging Face tools write.
    pub fn from_env() -> Self {
        let variable = |name| std::env::var(name).ok().filter(|v| !v.trim().is_empty());
        let stored = || std::fs::read_to_string(hub_home().ok()?.join("token")).ok();
        let token = variable("HF_TOKEN").or_else(stored).map(|t| t.trim().to_owned());
        PullOptions {
            endpoint: variable("HF_ENDPOINT").unwrap_or("https://huggingface.co".to_owned()),
            token: token.filter(|t| !t.is_empty()),
            attempts: 5,
            retry_wait: Duration::from_millis(500),
        }
    }
}

/// How far a download is.
#[derive(Clone, Copy, Debug)]
pub struct PullProgress<'a> {
    /// The file.
    pub file: &'a str,
    /// Its place in the list, from 0.
    pub file_idx: usize,
    /// Files in the list.
    pub n_files: usize,
    /// Bytes of the file that are there.
    pub bytes_done: u64,
    /// Bytes of the file.
    pub bytes_total: u64,
}

/// A model in the cache.
#[derive(Clone, Debug)]
pub struct Pulled {
    /// Its directory.
    pub dir: PathBuf,
    /// The commit.
    pub commit: String,
    /// Names of its files.
    pub files: Vec<String>,
    /// Bytes of all files.
    pub bytes_total: u64,
    /// Bytes that came over the network this time.
    pub bytes_fetched: u64,
}

/// Fetches what is missing of a model and makes it findable.
pub fn pull(
    id: &HubId,
    cache: &HubCache,
    options: &PullOptions,
    progress: &mut dyn FnMut(&PullProgress<'_>),
) -> Result<Pulled, HubError> {
    let client = Client::new(&options.endpoint, options.token.clone());
    let listing = client.list(id)?;
    if !is_part(&listing.sha) {
        let problem = "a commit with strange characters".to_owned();
        return Err(HubError::Answer { url: options.endpoint.clone(), problem });
    }
    let names: Vec<&str> = listing.siblings.iter().map(|s| s.rfilename.as_str()).collect();
    let files: Vec<&str> = names.iter().copied().filter(|name| is_wanted(name)).collect();
    check_list(id, &names, &files)?;
    let place = Place::new(cache, id, &listing.sha)?;
    let mut pulled = Pulled {
        dir: place.snapshot.clone(),
        commit: listing.sha.clone(),
        files: files.iter().map(|&f| f.to_owned()).collect(),
        bytes_total: 0,
        bytes_fetched: 0,
    };
    for (file_idx, &file) in files.iter().enumerate() {
        let located = client.locate(id, &listing.sha, file)?;
        let mut report = |bytes_done| {
            let (n_files, bytes_total) = (files.len(), located.bytes);
            progress(&PullProgress { file, file_idx, n_files, bytes_done, bytes_total });
        };
        let mut download = Download { client: &client, located: &located, file, options };
        pulled.bytes_fetched += download.run(&place, &mut report)?;
        pulled.bytes_total += located.bytes;
    }
    place.publish(cache, id, &listing.sha)?;
    Ok(pulled)
}

/// The files a model needs: configuration, tokenizer, template, weights; top level only.
fn is_wanted(name: &str) -> bool {
    let suffixes = [".json", ".safetensors", ".jinja"];
    is_part(name) && (name == "tokenizer.model" || suffixes.iter().any(|s| name.ends_with(s)))
}

fn check_list(id: &HubId, names: &[&str], files: &[&str]) -> Result<(), HubError> {
    let hint = if names.iter().any(|name| name.ends_with(".gguf")) {
        " (it holds GGUF files; look for an EXL2, GPTQ or float16 version)"
    } else if names.iter().any(|name| name.ends_with(".bin")) {
        " (it holds pickled weights; look for a safetensors version)"
    } else {
        " (EXL2 repositories often keep each bit rate in a branch: try org/name@4.0bpw)"
    };
    let missing = if !files.contains(&"config.json") {
        "config.json"
    } else if !files.iter().any(|name| name.ends_with(".safetensors")) {
        ".safetensors file"
    } else {
        return Ok(());
    };
    Err(HubError::NotAModel { id: id.clone(), missing, hint })
}

/// The folders of one repository at one commit.
struct Place {
    blobs: PathBuf,
    snapshot: PathBuf,
}

impl Place {
    fn new(cache: &HubCache, id: &HubId, commit: &str) -> Result<Self, HubError> {
        let repository = cache.repository(id);
        let place = Place {
            blobs: repository.join("blobs"),
            snapshot: repository.join("snapshots").join(commit),
        };
        for dir in [&place.blobs, &place.snapshot] {
            std::fs::create_dir_all(dir).map_err(|e| cache_error(dir, e))?;
        }
        Ok(place)
    }

    /// Makes a blob visible under its name.
    fn link(&self, etag: &str, file: &str) -> Result<(), HubError> {
        let link = self.snapshot.join(file);
        if link.exists() {
            return Ok(());
        }
        // A dangling link of an earlier attempt would be in the way.
        let _ = std::fs::remove_file(&link);
        #[cfg(unix)]
        let linked = std::os::unix::fs::symlink(Path::new("../../blobs").join(etag), &link);
        #[cfg(not(unix))]
        let linked = std::fs::hard_link(self.blobs.join(etag), &link);
        linked.map_err(|e| cache_error(&link, e))
    }

    /// Writes the ref, by rename so that nobody reads half of it.
    fn publish(&self, cache: &HubCache, id: &HubId, commit: &str) -> Result<(), HubError> {
        let reference = cache.reference(id);
        let parent = reference.parent().unwrap_or(cache.root());
        std::fs::create_dir_all(parent).map_err(|e| cache_error(parent, e))?;
        let draft = self.blobs.join("ref.part");
        std::fs::write(&draft, commit).map_err(|e| cache_error(&draft, e))?;
        std::fs::rename(&draft, &reference).map_err(|e| cache_error(&reference, e))
    }
}

/// One file on its way.
struct Download<'a> {
    client: &'a Client,
    located: &'a Located,
    file: &'a str,
    options: &'a PullOptions,
}

impl Download<'_> {
    /// Fetches what is missing and gives the file its final name. Returns the bytes fetched.
    fn run(&mut self, place: &Place, report: &mut dyn FnMut(u64)) -> Result<u64, HubError> {
        let etag = &self.located.etag;
        if !is_part(etag) {
            let problem = "an etag with strange characters".to_owned();
            return Err(HubError::Answer { url: self.file.to_owned(), problem });
        }
        let blob = place.blobs.join(etag);
        if std::fs::metadata(&blob).is_ok_and(|m| m.len() == self.located.bytes) {
            report(self.located.bytes);
            place.link(etag, self.file)?;
            return Ok(0);
        }
        let path = place.blobs.join(format!("{etag}.part"));
        let mut part = self.open_part(&path)?;
        let fetched = self.fill(&mut part, &path, report)?;
        self.verify(&path)?;
        std::fs::rename(&path, &blob).map_err(|e| cache_error(&blob, e))?;
        place.link(etag, self.file)?;
        Ok(fetched)
    }

    fn open_part(&self, path: &Path) -> Result<File, HubError> {
        let part = OpenOptions::new().create(true).append(true).open(path);
        let part = part.map_err(|e| cache_error(path, e))?;
        match part.try_lock() {
            Ok(()) => Ok(part),
            Err(TryLockError::WouldBlock) => Err(HubError::Busy { file: self.file.to_owned() }),
            Err(TryLockError::Error(e)) => Err(cache_error(path, e)),
        }
    }

    /// Appends until the file is whole. A connection that breaks is retried from where it broke, as
    /// long as every few attempts bring something.
    fn fill(
        &mut self,
        part: &mut File,
        path: &Path,
        report: &mut dyn FnMut(u64),
    ) -> Result<u64, HubError> {
        let mut fetched = 0;
        let mut failures = 0;
        loop {
            let have = part.metadata().map_err(|e| cache_error(path, e))?.len();
            report(have.min(self.located.bytes));
            if have == self.located.bytes {
                return Ok(fetched);
            }
            if have > self.located.bytes {
                part.set_len(0).map_err(|e| cache_error(path, e))?;
                continue;
            }
            let (moved, outcome) = self.append(part, path, have, report);
            fetched += moved;
            let Err(error) = outcome else { continue };
            failures = if moved > 0 { 1 } else { failures + 1 };
            let hopeless =
                matches!(error, HubError::Status { status: ..500, .. } | HubError::Cache { .. });
            if hopeless || failures >= self.options.attempts.max(1) {
                return Err(error);
            }
            std::thread::sleep(self.options.retry_wait * (1 << failures.min(6)));
        }
    }

    /// One request: moves its bytes to the end of the file.
    fn append(
        &self,
        part: &mut File,
        path: &Path,
        have: u64,
        report: &mut dyn FnMut(u64),
    ) -> (u64, Result<(), HubError>) {
        let (begins, mut body) = match self.client.fetch(self.located, have) {
            Ok(answer) => answer,
            Err(error) => return (0, Err(error)),
        };
        if begins == 0
            && have > 0
            && let Err(e) = part.set_len(0)
        {
            return (0, Err(cache_error(path, e)));
        }
        let mut moved = 0;
        let mut buffer = vec![0; COPY_BYTES];
        loop {
            // One byte more than promised is enough to notice; the rest is not stored.
            let missing = self.located.bytes - begins - moved;
            let want = buffer.len().min(usize::try_from(missing).unwrap_or(usize::MAX));
            let read = match body.read(&mut buffer[..want]) {
                Ok(0) if missing == 0 => return (moved, Ok(())),
                Ok(0) => {
                    return (moved, Err(self.broken("the connection closed early".to_owned())));
                }
                Ok(read) => read,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return (moved, Err(self.broken(e.to_string()))),
            };
            if let Err(e) = part.write_all(&buffer[..read]) {
                return (moved, Err(cache_error(path, e)));
            }
            moved += read as u64;
            report(begins + moved);
        }
    }

    fn broken(&self, problem: String) -> HubError {
        HubError::Connection { url: self.file.to_owned(), problem }
    }

    /// Compares with the hash, for files whose etag is one; a damaged file is removed.
    fn verify(&self, path: &Path) -> Result<(), HubError> {
        let etag = &self.located.etag;
        if etag.len() != 64 || !etag.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Ok(());
        }
        let mut hash = Sha256::new();
        let mut file = File::open(path).map_err(|e| cache_error(path, e))?;
        let mut buffer = vec![0; COPY_BYTES];
        loop {
            let read = file.read(&mut buffer).map_err(|e| cache_error(path, e))?;
            if read == 0 {
                break;
            }
            hash.update(&buffer[..read]);
        }
        let found: String = hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
        if found.eq_ignore_ascii_case(etag) {
            return Ok(());
        }
        std::fs::remove_file(path).map_err(|e| cache_error(path, e))?;
        let problem = format!("SHA-256 {found} instead of {etag}");
        Err(HubError::Damaged { file: self.file.to_owned(), problem })
    }
}

fn cache_error(path: &Path, source: io::Error) -> HubError {
    HubError::Cache { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_model_needs_is_wanted() {
        for name in ["config.json", "model-00001-of-2.safetensors", "tokenizer.model", "x.jinja"] {
            assert!(is_wanted(name), "{name}");
        }
        for name in [
            "README.md",
            "a.gguf",
            "pytorch_model.bin",
            "onnx/model.json",
            "../config.json",
            ".json",
        ] {
            assert!(!is_wanted(name), "{name}");
        }
    }

    #[test]
    fn repositories_without_a_model_say_what_is_missing() {
        let id: HubId = "a/b".parse().unwrap();
        let problem = |names: &[&str]| {
            let files: Vec<&str> = names.iter().copied().filter(|n| is_wanted(n)).collect();
            check_list(&id, names, &files).err().map(|e| e.to_string()).unwrap_or_default()
        };
        assert!(problem(&["README.md", "a.gguf"]).contains("GGUF"));
        assert!(problem(&["config.json", "pytorch_model.bin"]).contains("pickled"));
        assert!(problem(&["README.md"]).contains("branch"));
        assert_eq!(problem(&["config.json", "model.safetensors"]), "");
    }
}
