//! A log file that does not grow without end: when it is full it becomes `FILE.1`, and a new one
//! begins.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Largest file.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// A log file; opened at the first line.
pub struct LogFile {
    path: PathBuf,
    open: Mutex<Option<(File, u64)>>,
}

impl LogFile {
    pub fn new(path: PathBuf) -> Self {
        LogFile { path, open: Mutex::default() }
    }

    /// Adds a line. What cannot be written is on standard error all the same.
    pub fn write(&self, line: &str) {
        self.write_within(line, FILE_BYTES_MAX);
    }

    fn write_within(&self, line: &str, bytes_max: u64) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.as_ref().is_some_and(|(_, bytes)| bytes + line.len() as u64 > bytes_max) {
            *open = None;
            let mut full = self.path.clone().into_os_string();
            full.push(".1");
            let _ = std::fs::rename(&self.path, full);
        }
        if open.is_none() {
            let file = OpenOptions::new().create(true).append(true).open(&self.path);
            *open = file.ok().map(|file| {
                let bytes = file.metadata().map_or(0, |meta| meta.len());
                (file, bytes)
            });
        }
        if let Some((file, bytes)) = open.as_mut()
            && file.write_all(line.as_bytes()).is_ok()
        {
            *bytes += line.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_file_makes_room_for_a_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let file = LogFile::new(path.clone());
        for line in ["one\n", "two\n", "three\n", "four\n"] {
            file.write_within(line, 10);
        }
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!((read("log.1").as_str(), read("log").as_str()), ("three\n", "four\n"));
    }
}
