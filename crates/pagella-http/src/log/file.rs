//! A log file that does not grow without end: when it is full it becomes `FILE.1`, and a new one
//! begins. One that someone has moved away or removed begins anew at its place.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Largest file.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// How often it is looked whether the file is still at its place.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// A log file.
pub struct LogFile {
    path: PathBuf,
    state: Mutex<State>,
}

struct State {
    file: File,
    bytes: u64,
    looked: Instant,
    /// Whether the file is no longer at its place: writing works, and nobody will read it.
    astray: bool,
    /// Since when lines are lost, and why.
    trouble: Option<(SystemTime, String)>,
}

fn append_to(path: &PathBuf) -> io::Result<(File, u64)> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let bytes = file.metadata()?.len();
    Ok((file, bytes))
}

#[cfg(unix)]
fn is_same(one: &Metadata, other: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(not(unix))]
fn is_same(_: &Metadata, _: &Metadata) -> bool {
    true
}

impl LogFile {
    /// Opens a file, or says why nothing can be written there.
    pub fn open(path: PathBuf) -> io::Result<Self> {
        let (file, bytes) = append_to(&path)?;
        let state = State { file, bytes, looked: Instant::now(), astray: false, trouble: None };
        Ok(LogFile { path, state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line. What cannot be written is on standard error all the same.
    pub fn write(&self, line: &str) {
        self.write_within(line, FILE_BYTES_MAX);
    }

    /// Since when lines are lost, and why; for people, without the file's place.
    pub fn trouble(&self) -> Option<(SystemTime, String)> {
        let mut state = self.lock();
        self.look(&mut state);
        state.trouble.clone()
    }

    /// Looks from time to time whether the file is still at its place.
    fn look(&self, state: &mut State) {
        if state.looked.elapsed() < LOOK_INTERVAL {
            return;
        }
        state.looked = Instant::now();
        let stays = match (std::fs::metadata(&self.path), state.file.metadata()) {
            (Ok(there), Ok(own)) => is_same(&there, &own),
            _ => false,
        };
        if !stays {
            let begun = self.begin_anew(state);
            state.astray = begun.is_err();
            state.note("opened", begun);
        }
    }

    fn begin_anew(&self, state: &mut State) -> io::Result<()> {
        (state.file, state.bytes) = append_to(&self.path)?;
        Ok(())
    }

    fn write_within(&self, line: &str, bytes_max: u64) {
        let mut state = self.lock();
        self.look(&mut state);
        if state.bytes + line.len() as u64 > bytes_max {
            let mut full = self.path.clone().into_os_string();
            full.push(".1");
            let moved =
                std::fs::rename(&self.path, full).and_then(|()| self.begin_anew(&mut state));
            if moved.is_err() {
                return state.note("begun anew", moved);
            }
        }
        let written = state.file.write_all(line.as_bytes());
        if written.is_ok() {
            state.bytes += line.len() as u64;
        }
        if !state.astray {
            state.note("written", written);
        }
    }
}

impl State {
    /// Remembers since when something fails, and forgets it when it works.
    fn note(&mut self, what: &str, result: io::Result<()>) {
        let Err(error) = result else {
            self.trouble = None;
            return;
        };
        let since = self.trouble.take().map_or_else(SystemTime::now, |(since, _)| since);
        self.trouble = Some((since, format!("the log file cannot be {what}: {error}")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_file_makes_room_for_a_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let file = LogFile::open(path.clone()).unwrap();
        for line in ["one\n", "two\n", "three\n", "four\n"] {
            file.write_within(line, 10);
        }
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!((read("log.1").as_str(), read("log").as_str()), ("three\n", "four\n"));
    }

    /// The next look is due.
    fn let_time_pass(file: &LogFile) {
        file.lock().looked = Instant::now().checked_sub(LOOK_INTERVAL).unwrap();
    }

    #[test]
    #[cfg(unix)]
    fn a_file_that_was_moved_away_begins_anew_and_one_that_cannot_is_trouble() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("logs");
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("log");
        let file = LogFile::open(path.clone()).unwrap();
        file.write("one\n");
        std::fs::rename(&path, folder.join("moved")).unwrap();
        let_time_pass(&file);
        file.write("two\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two\n");
        assert_eq!(file.trouble(), None);
        std::fs::remove_dir_all(&folder).unwrap();
        let_time_pass(&file);
        let (since, why) = file.trouble().unwrap();
        assert!(why.starts_with("the log file cannot be opened"), "{why}");
        assert!(!why.contains("logs"), "{why}");
        let_time_pass(&file);
        assert_eq!(file.trouble().unwrap().0, since, "it is the same trouble");
        std::fs::create_dir(&folder).unwrap();
        let_time_pass(&file);
        assert_eq!(file.trouble(), None);
        file.write("three\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "three\n");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_line_that_is_lost_is_trouble() {
        let file = LogFile::open(PathBuf::from("/dev/full")).unwrap();
        assert_eq!(file.trouble(), None);
        file.write("lost\n");
        assert!(file.trouble().unwrap().1.starts_with("the log file cannot be written"));
    }
}
