//! Adapters on disk: which there are below a folder, and what tells their content apart.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use blake2::digest::consts::U32;
use blake2::{Blake2b, Digest};

use crate::name::{self, Links};

/// What a folder has that is an adapter.
const CONFIG: &str = "adapter_config.json";
/// How the names of an adapter's other files begin.
const TENSORS: &str = "adapter_model";
/// Folders within folders that are looked into.
const DEPTH_MAX: usize = 4;
/// Most adapters that are listed.
const LISTED_MAX: usize = 10_000;
/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;

/// An adapter that could be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownAdapter {
    /// Its name: the path below the folder, with `/`.
    pub name: String,
    /// When its files were made, in seconds since 1970.
    pub created: u64,
    /// Bytes of its files.
    pub bytes: u64,
}

/// Adapters below a folder, in the order of their names. A folder that is not there has none.
pub fn list(root: &Path, links: Links) -> Vec<KnownAdapter> {
    let mut found = Vec::new();
    look(root, "", links, DEPTH_MAX, &mut found);
    found.sort_by(|a: &KnownAdapter, b| a.name.cmp(&b.name));
    found
}

fn look(root: &Path, below: &str, links: Links, depth: usize, found: &mut Vec<KnownAdapter>) {
    for entry in std::fs::read_dir(root.join(below)).into_iter().flatten().flatten() {
        let Ok(last) = entry.file_name().into_string() else { continue };
        let name = if below.is_empty() { last } else { format!("{below}/{last}") };
        let Ok(Some(dir)) = name::resolve(root, &name, links) else { continue };
        if found.len() >= LISTED_MAX || !dir.is_dir() {
            continue;
        }
        if dir.join(CONFIG).is_file() {
            let (created, bytes) = (created(&dir), files(&dir).map_or(0, |files| bytes(&files)));
            found.push(KnownAdapter { name, created, bytes });
        } else if depth > 1 {
            look(root, &name, links, depth - 1, found);
        }
    }
}

fn bytes(files: &[(PathBuf, Metadata)]) -> u64 {
    files.iter().map(|(_, data)| data.len()).fold(0, u64::saturating_add)
}

/// When an adapter was made, in seconds since 1970.
pub fn created(dir: &Path) -> u64 {
    let made = dir.join(CONFIG).metadata().and_then(|data| data.modified()).ok();
    made.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).map_or(0, |time| time.as_secs())
}

/// The files that make an adapter, in the order of their names.
fn files(dir: &Path) -> io::Result<Vec<(PathBuf, Metadata)>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let data = path.metadata()?;
        if data.is_file() && (name == CONFIG || name.starts_with(TENSORS)) {
            files.push((path, data));
        }
    }
    files.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(files)
}

/// Twelve digits that change with the content. Reads all of it.
pub fn digest(dir: &Path) -> io::Result<String> {
    let mut sum = Blake2b::<U32>::new();
    let mut buffer = vec![0; READ_BYTES];
    for (path, data) in files(dir)? {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        sum.update((name.len() as u64).to_le_bytes());
        sum.update(name);
        sum.update(data.len().to_le_bytes());
        let mut file = File::open(&path)?;
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                n => sum.update(buffer.get(..n).unwrap_or_default()),
            }
        }
    }
    Ok(sum.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &Path, files: &[(&str, &str)]) {
        std::fs::create_dir_all(dir).unwrap();
        files.iter().for_each(|(name, text)| std::fs::write(dir.join(name), text).unwrap());
    }

    #[test]
    fn folders_with_a_configuration_are_listed_at_any_depth() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        assert_eq!(list(&root.join("none"), Links::Follow), []);
        write(&root.join("b"), &[(CONFIG, "{}"), ("adapter_model.safetensors", "abc"), ("x", "?")]);
        write(&root.join("org/a"), &[(CONFIG, "{}")]);
        write(&root.join("org/model"), &[("config.json", "{}")]);
        write(&root.join("bad:name"), &[(CONFIG, "{}")]);
        let found = list(root, Links::Follow);
        let names: Vec<(&str, u64)> = found.iter().map(|a| (a.name.as_str(), a.bytes)).collect();
        assert_eq!(names, [("b", 5), ("org/a", 2)]);
        assert!(found[0].created > 0);
    }

    #[cfg(unix)]
    #[test]
    fn links_out_of_the_folder_count_where_the_operator_says_so() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write(&outside.path().join("a"), &[(CONFIG, "{}")]);
        std::os::unix::fs::symlink(outside.path().join("a"), root.path().join("a")).unwrap();
        assert_eq!(list(root.path(), Links::Follow).len(), 1);
        assert_eq!(list(root.path(), Links::Refuse).len(), 0);
    }

    #[test]
    fn the_digest_changes_with_what_is_read_and_with_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        write(dir, &[(CONFIG, "{}"), ("adapter_model.safetensors", "abc")]);
        let first = digest(dir).unwrap();
        assert_eq!(first.len(), 12);
        write(dir, &[("README.md", "words")]);
        assert_eq!(digest(dir).unwrap(), first);
        write(dir, &[("adapter_model.safetensors", "abd")]);
        assert_ne!(digest(dir).unwrap(), first);
        assert!(digest(&dir.join("none")).is_err());
    }
}
