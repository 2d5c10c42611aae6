//! Conversations in a folder, one request each: what was asked as `ID.json`, the rendered prompt as
//! `ID.txt`. For their owner's eyes alone.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::call::Call;
use crate::wire::date::date;
use crate::wire::id::ulid;
use crate::{Application, HttpState};

/// A conversation that the operator wants to keep.
pub struct Kept {
    http: Arc<HttpState>,
    dir: PathBuf,
    id: String,
    request: Value,
}

impl Kept {
    /// The conversation of a request whose body was read, if such are kept.
    pub fn of<A: Application>(call: &Call<A>) -> Option<Self> {
        let dir = call.app.http().settings.logging.log_chat_completion_requests.clone()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let request = json!({
            "id": call.id,
            "time": date(now.as_secs()),
            "route": call.route.path,
            "key": call.caller.key.name,
            "body": call.shown.clone()?,
        });
        Some(Kept { http: call.app.http().clone(), dir, id: call.id.clone(), request })
    }

    /// Writes it, with its prompt if there is one. What cannot be written is said in the log and
    /// changes nothing for the request.
    pub fn write(&self, prompt: Option<&str>) {
        if let Err(error) = write(&self.dir, &self.id, &self.request, prompt) {
            self.http.issue("log_chat_completion_requests", &format!("{}: {error}", self.id));
        }
    }
}

fn write(dir: &Path, id: &str, request: &Value, prompt: Option<&str>) -> io::Result<()> {
    make_folder(dir)?;
    // Clients choose ids, and may choose one twice.
    let named =
        |name: &str| create(&dir.join(format!("{name}.json"))).map(|f| (name.to_owned(), f));
    let (name, mut file) = named(id).or_else(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => named(&format!("{id}-{}", ulid())),
        _ => Err(error),
    })?;
    serde_json::to_writer_pretty(&mut file, request)?;
    file.write_all(b"\n")?;
    match prompt {
        Some(prompt) => create(&dir.join(format!("{name}.txt")))?.write_all(prompt.as_bytes()),
        None => Ok(()),
    }
}

/// A new file that only its owner reads. Never one that is there, so no link is followed.
fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn make_folder(dir: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_comes_twice_overwrites_nothing() {
        let outer = tempfile::tempdir().unwrap();
        let dir = outer.path().join("new").join("folder");
        for (n, prompt) in [(1, Some("one")), (2, Some("two")), (3, None)] {
            write(&dir, "same", &json!({ "n": n }), prompt).unwrap();
        }
        let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
        assert_eq!(read("same.txt"), "one");
        assert!(read("same.json").contains("\"n\": 1"));
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 5, "the third has no prompt");
        #[cfg(unix)]
        for entry in std::fs::read_dir(&dir).unwrap() {
            use std::os::unix::fs::PermissionsExt;
            let mode = entry.unwrap().metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }
}
