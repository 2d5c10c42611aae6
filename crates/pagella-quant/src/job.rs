//! The folder beside a model in the making: what is done lies there, file by file, and nothing else
//! says how far the job is.
//!
//! What must always hold: a file under its final name is whole; the files of a job belong to the source
//! and the options in `job.json`; a job that goes on gives the bytes of one that was never stopped.

use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::error::QuantError;

/// What identifies the job.
const IDENTITY: &str = "job.json";

/// Held by the program that works in the folder.
const LOCK: &str = "lock";

/// Ends the names of markers.
const MARKER_ENDING: &str = ".finished.json";

/// A job's folder, and the right to work in it.
pub(crate) struct Job {
    dir: PathBuf,
    /// Nothing was in it.
    is_new: bool,
    /// Locked until the job is dropped, whatever way.
    _lock: File,
}

impl Job {
    /// Where the job that makes `target` has its folder.
    pub fn folder(target: &Path) -> PathBuf {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        target.with_file_name(format!("{name}.quantize"))
    }

    /// The file that says that a model of this name is done.
    pub fn marker(dir: &Path, name: &str) -> PathBuf {
        dir.join(format!("{name}{MARKER_ENDING}"))
    }

    /// Opens the job that makes `target`, new or unfinished. `identity` says of what and how; an
    /// unfinished job with another one is refused, or thrown away where `resume` is off.
    pub fn open(
        target: &Path,
        identity: &Map<String, Value>,
        resume: bool,
    ) -> Result<Self, QuantError> {
        let dir = Self::folder(target);
        let path = dir.join(IDENTITY);
        fs::create_dir_all(&dir).map_err(QuantError::io(&dir, "cannot make the folder"))?;
        let lock = lock(&dir)?;
        if !resume {
            clear(&dir, &|name| name == LOCK)?;
        }
        let kept = fs::read_to_string(&path).ok();
        if let Some(difference) = kept.as_ref().and_then(|text| difference(text, identity)) {
            return Err(QuantError::OtherJob { job: dir, difference });
        }
        let is_new = kept.is_none();
        write_text(&path, &format!("{:#}\n", Value::Object(identity.clone())))?;
        Ok(Self { dir, is_new, _lock: lock })
    }

    /// Whether no earlier run has left anything.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// A folder in it, made if need be.
    pub fn sub_dir(&self, name: &str) -> Result<PathBuf, QuantError> {
        let dir = self.dir.join(name);
        fs::create_dir_all(&dir).map_err(QuantError::io(&dir, "cannot make the folder"))?;
        Ok(dir)
    }

    /// Takes the folder away, of which nothing has come.
    pub fn discard(&self) {
        // The error that led here matters more than a folder with next to nothing in it.
        drop(fs::remove_dir_all(&self.dir));
    }

    /// Throws the folder away: the job is done. Who stops it here finds it done again, because the
    /// markers go last.
    pub fn finish(self) -> Result<(), QuantError> {
        clear(&self.dir, &|name| name == IDENTITY || name.ends_with(MARKER_ENDING))?;
        fs::remove_dir_all(&self.dir).map_err(QuantError::io(&self.dir, "cannot remove"))
    }
}

/// Locks a folder, or says that another program works in it.
fn lock(dir: &Path) -> Result<File, QuantError> {
    let path = dir.join(LOCK);
    let file = File::create(&path).map_err(QuantError::io(&path, "cannot write"))?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(QuantError::Busy { job: dir.to_owned() }),
        // Some network disks know no locks; two programs there would write the same bytes.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(file),
    }
}

/// Removes what is in a folder, but for some names.
fn clear(dir: &Path, keeps: &dyn Fn(&str) -> bool) -> Result<(), QuantError> {
    let entries = fs::read_dir(dir).map_err(QuantError::io(dir, "cannot read"))?;
    for entry in entries {
        let entry = entry.map_err(QuantError::io(dir, "cannot read"))?;
        if keeps(&entry.file_name().to_string_lossy()) {
            continue;
        }
        let path = entry.path();
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let removed = if is_dir { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(QuantError::io(&path, "cannot remove"))?;
    }
    Ok(())
}

/// The first thing that a kept identity has otherwise.
fn difference(kept: &str, identity: &Map<String, Value>) -> Option<String> {
    let Ok(Value::Object(kept)) = serde_json::from_str(kept) else {
        return Some("form, of another version of this program".to_owned());
    };
    let keys = identity.keys().chain(kept.keys());
    let differs = |key: &&String| kept.get(*key) != identity.get(*key);
    let key = keys.into_iter().find(differs)?;
    let value = |map: &Map<String, Value>| map.get(key).cloned().unwrap_or_default();
    match key.as_str() {
        // A list of files says little to people.
        "files" => Some("state of the source's files".to_owned()),
        "given" => Some("calibration or measurement".to_owned()),
        _ => Some(format!("{key}: {} there, {} here", value(&kept), value(identity))),
    }
}

/// Writes a small file: whole or not at all, and on the disk when this returns.
pub(crate) fn write_text(path: &Path, text: &str) -> Result<(), QuantError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
    let write = || {
        let mut file = File::create(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(|source| {
        // The first error is the one that matters.
        drop(fs::remove_file(&temporary));
        QuantError::Io { path: path.to_owned(), action: "cannot write", source }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(bits: f64) -> Map<String, Value> {
        let Value::Object(map) = serde_json::json!({ "source": "a", "bits": [bits] }) else {
            return Map::new();
        };
        map
    }

    #[test]
    fn a_job_of_other_options_is_refused_by_name_unless_it_is_thrown_away() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("model");
        let job = Job::open(&target, &identity(4.0), true).unwrap();
        assert!(job.is_new());
        write_text(&job.file("mine"), "x").unwrap();
        drop(job);
        let job = Job::open(&target, &identity(4.0), true).unwrap();
        assert!(job.file("mine").exists() && !job.is_new());
        drop(job);
        let error = Job::open(&target, &identity(3.0), true).err().unwrap().to_string();
        assert!(error.contains("bits: [4.0] there, [3.0] here"), "{error}");
        let job = Job::open(&target, &identity(3.0), false).unwrap();
        assert!(!job.file("mine").exists());
        job.finish().unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn two_programs_do_not_work_in_one_folder() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("model");
        let job = Job::open(&target, &identity(4.0), true).unwrap();
        for resume in [true, false] {
            let error = Job::open(&target, &identity(4.0), resume).err().unwrap().to_string();
            assert!(error.contains("another program"), "{error}");
        }
        drop(job);
        assert!(Job::open(&target, &identity(4.0), true).is_ok());
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_one_sentence() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "x").unwrap();
        let error = Job::open(&file.join("model"), &identity(4.0), true).err().unwrap().to_string();
        assert!(error.contains("cannot make the folder"), "{error}");
    }
}
