//! One file on its way: resumable, and verified before it gets its name.
//!
//! It grows as `blobs/<etag>.part` under a lock, is checked for length and, where the hub gives one,
//! for its SHA-256, and only then becomes `blobs/<etag>`.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::client::{Client, Located};
use super::dirs::{DownloadDirs, cache_error};
use super::id::is_part;
use super::{HubError, PullOptions};

/// Bytes moved between two reports.
const COPY_BYTES: usize = 256 << 10;

/// Told how many bytes are there; says whether to go on.
pub(super) type FileProgress<'a> = dyn FnMut(u64) -> ControlFlow<()> + 'a;

/// One file on its way.
pub(super) struct Download<'a> {
    pub client: &'a Client,
    pub located: &'a Located,
    pub file: &'a str,
    pub options: &'a PullOptions,
}

impl Download<'_> {
    /// Fetches what is missing and gives the file its final name. Returns the bytes fetched.
    pub fn run(&self, dirs: &DownloadDirs, report: &mut FileProgress<'_>) -> Result<u64, HubError> {
        let etag = &self.located.etag;
        if !is_part(etag) {
            let problem = "an etag with strange characters".to_owned();
            return Err(HubError::Answer { url: self.file.to_owned(), problem });
        }
        let blob = dirs.blobs.join(etag);
        if std::fs::metadata(&blob).is_ok_and(|m| m.len() == self.located.bytes) {
            go_on(report(self.located.bytes))?;
            dirs.link(etag, self.file)?;
            return Ok(0);
        }
        let path = dirs.blobs.join(format!("{etag}.part"));
        let mut part = self.open_part(&path)?;
        let fetched = self.fill(&mut part, &path, report)?;
        self.verify(&path)?;
        std::fs::rename(&path, &blob).map_err(|e| cache_error(&blob, e))?;
        dirs.link(etag, self.file)?;
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
        &self,
        part: &mut File,
        path: &Path,
        report: &mut FileProgress<'_>,
    ) -> Result<u64, HubError> {
        let mut fetched = 0;
        let mut failures = 0;
        loop {
            let have = part.metadata().map_err(|e| cache_error(path, e))?.len();
            go_on(report(have.min(self.located.bytes)))?;
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
            let hopeless = matches!(
                error,
                HubError::Status { status: ..500, .. } | HubError::Cache { .. } | HubError::Stopped
            );
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
        report: &mut FileProgress<'_>,
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
            // Never more than promised: a server that sends on and on fills no disk.
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
            if let Err(stopped) = go_on(report(begins + moved)) {
                return (moved, Err(stopped));
            }
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

/// An error where someone does not want to go on.
fn go_on(answer: ControlFlow<()>) -> Result<(), HubError> {
    if answer.is_break() { Err(HubError::Stopped) } else { Ok(()) }
}
