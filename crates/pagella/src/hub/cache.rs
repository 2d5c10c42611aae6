//! The local cache: where a model's files are once they were pulled.
//!
//! Layout: `models--org--name/{blobs/<etag>, snapshots/<commit>/<file>, refs/<revision>}`; a
//! snapshot's files are links to blobs, a ref holds the commit that a revision meant.

use std::path::{Path, PathBuf};

use super::id::is_part;
use super::{HubError, HubId};

/// Parts of a revision's name, such as two in `refs/pr`.
const REVISION_PARTS_MAX: usize = 4;

/// The folder that holds models of the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubCache {
    root: PathBuf,
}

impl HubCache {
    /// A cache in a given folder.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        HubCache { root: root.into() }
    }

    /// The user's cache: `HF_HUB_CACHE`, else `HF_HOME/hub`, else `huggingface/hub` in
    /// `XDG_CACHE_HOME` or `~/.cache`.
    pub fn from_env() -> Result<Self, HubError> {
        if let Some(root) = std::env::var_os("HF_HUB_CACHE").filter(|v| !v.is_empty()) {
            return Ok(HubCache::at(root));
        }
        Ok(HubCache { root: hub_home()?.join("hub") })
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The directory of a model that was pulled; `None` when it was not, or not completely.
    pub fn find(&self, id: &HubId) -> Option<PathBuf> {
        let snapshots = self.repository(id).join("snapshots");
        let commit = std::fs::read_to_string(self.reference(id)).ok();
        let commit = commit.as_deref().map(str::trim).filter(|c| is_part(c));
        // A revision may also be a commit itself.
        let candidates = commit.into_iter().chain(Some(id.revision()));
        candidates
            .map(|commit| snapshots.join(commit))
            .find(|dir| dir.join("config.json").is_file())
    }

    /// Every model of which something is there, complete or not, sorted by name.
    pub fn models(&self) -> Vec<CachedModel> {
        let Ok(entries) = std::fs::read_dir(&self.root) else { return Vec::new() };
        let mut models: Vec<CachedModel> = entries
            .flatten()
            .filter_map(|entry| {
                let folder = entry.file_name().into_string().ok()?;
                let repository = folder.strip_prefix("models--")?.replacen("--", "/", 1);
                Some(snapshots_of(&repository, &entry.path()))
            })
            .flatten()
            .collect();
        models.sort_by(|a, b| a.name.cmp(&b.name));
        models
    }

    pub(super) fn repository(&self, id: &HubId) -> PathBuf {
        self.root.join(id.folder())
    }

    pub(super) fn reference(&self, id: &HubId) -> PathBuf {
        self.repository(id).join("refs").join(id.revision())
    }
}

/// A model of the cache; its directory need not hold all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedModel {
    /// What to write for it: a hub id, or its directory where it has none.
    pub name: String,
    /// Its files.
    pub dir: PathBuf,
}

/// One model per revision that has a name, and per snapshot that no revision points to; the folder
/// itself where there is no snapshot at all.
fn snapshots_of(repository: &str, folder: &Path) -> Vec<CachedModel> {
    let model = |revision: Option<&str>, dir: PathBuf| {
        let id = match revision {
            None | Some("main") => repository.to_owned(),
            Some(revision) => format!("{repository}@{revision}"),
        };
        let named = id.parse::<HubId>().is_ok();
        CachedModel { name: if named { id } else { dir.display().to_string() }, dir }
    };
    let snapshots = folder.join("snapshots");
    let commits = std::fs::read_dir(&snapshots).into_iter().flatten().flatten();
    let mut commits: Vec<String> =
        commits.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let mut refs = Vec::new();
    revisions(&folder.join("refs"), "", REVISION_PARTS_MAX, &mut refs);
    let (mut models, mut named) = (Vec::new(), Vec::new());
    for (revision, commit) in refs {
        if commits.contains(&commit) {
            models.push(model(Some(&revision), snapshots.join(&commit)));
            named.push(commit);
        }
    }
    commits.retain(|commit| !named.contains(commit));
    models.extend(commits.iter().map(|commit| model(Some(commit), snapshots.join(commit))));
    if models.is_empty() {
        models.push(model(None, folder.to_owned()));
    }
    models
}

/// Revisions below a folder of refs with the commits they mean; their names may have several parts.
fn revisions(refs: &Path, prefix: &str, parts: usize, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(refs).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let (revision, path) = (format!("{prefix}{name}"), entry.path());
        if path.is_dir() && parts > 1 {
            revisions(&path, &format!("{revision}/"), parts - 1, found);
        } else if let Ok(commit) = std::fs::read_to_string(&path) {
            found.push((revision, commit.trim().to_owned()));
        }
    }
}

/// The folder of the Hugging Face tools: cache and token.
pub(super) fn hub_home() -> Result<PathBuf, HubError> {
    let variable = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    variable("HF_HOME")
        .or_else(|| variable("XDG_CACHE_HOME").map(|dir| dir.join("huggingface")))
        .or_else(|| std::env::home_dir().map(|dir| dir.join(".cache").join("huggingface")))
        .ok_or(HubError::NoHome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_found_by_ref_and_by_commit_only_when_it_is_complete() {
        let dir = tempfile::tempdir().unwrap();
        let cache = HubCache::at(dir.path());
        let id: HubId = "org/name".parse().unwrap();
        assert_eq!(cache.find(&id), None);
        let snapshot = cache.repository(&id).join("snapshots/abc123");
        std::fs::create_dir_all(&snapshot).unwrap();
        std::fs::create_dir_all(cache.reference(&id).parent().unwrap()).unwrap();
        std::fs::write(cache.reference(&id), "abc123\n").unwrap();
        assert_eq!(cache.find(&id), None, "no config.json yet");
        std::fs::write(snapshot.join("config.json"), "{}").unwrap();
        assert_eq!(cache.find(&id), Some(snapshot.clone()));
        assert_eq!(cache.find(&"org/name@abc123".parse().unwrap()), Some(snapshot));
        assert_eq!(cache.find(&"org/name@other".parse().unwrap()), None);
    }

    #[test]
    fn every_revision_is_a_model_and_so_is_what_is_not_complete() {
        let dir = tempfile::tempdir().unwrap();
        let cache = HubCache::at(dir.path());
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        for commit in ["abc", "def", "loose"] {
            write(&format!("models--org--name/snapshots/{commit}/config.json"), "{}");
        }
        write("models--org--name/refs/main", "abc");
        write("models--org--name/refs/4.0bpw", "def\n");
        write("models--org--name/refs/refs/pr/1", "gone");
        write("models--org--begun/blobs/x.incomplete", "");
        write("models--gpt2/snapshots/abc/config.json", "{}");
        write("datasets--org--text/snapshots/abc/config.json", "{}");
        let old = dir.path().join("models--gpt2/snapshots/abc");
        let names: Vec<String> = cache.models().into_iter().map(|model| model.name).collect();
        let mut expected = ["org/begun", "org/name", "org/name@4.0bpw", "org/name@loose"]
            .map(str::to_owned)
            .to_vec();
        expected.push(old.display().to_string());
        expected.sort();
        assert_eq!(names, expected);
    }

    #[test]
    fn a_ref_that_points_outside_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let cache = HubCache::at(dir.path().join("hub"));
        let id: HubId = "org/name".parse().unwrap();
        std::fs::create_dir_all(cache.reference(&id).parent().unwrap()).unwrap();
        std::fs::write(dir.path().join("config.json"), "{}").unwrap();
        std::fs::write(cache.reference(&id), "../../../..").unwrap();
        assert_eq!(cache.find(&id), None);
    }
}
