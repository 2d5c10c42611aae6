//! The local cache: where a model's files are once they were pulled.
//!
//! Layout: `models--org--name/{blobs/<etag>, snapshots/<commit>/<file>, refs/<revision>}`; a
//! snapshot's files are links to blobs, a ref holds the commit that a revision meant.

use std::path::{Path, PathBuf};

use super::id::is_part;
use super::{HubError, HubId};

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

    /// Every model with at least one complete snapshot, as `org/name`, sorted.
    pub fn models(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(&self.root) else { return Vec::new() };
        let mut models: Vec<String> = entries
            .filter_map(|entry| {
                let name = entry.ok()?.file_name().into_string().ok()?;
                let (organisation, name) = name.strip_prefix("models--")?.split_once("--")?;
                let id: HubId = format!("{organisation}/{name}").parse().ok()?;
                self.find_any(&id).then(|| id.repository())
            })
            .collect();
        models.sort();
        models
    }

    fn find_any(&self, id: &HubId) -> bool {
        let snapshots = std::fs::read_dir(self.repository(id).join("snapshots"));
        snapshots.is_ok_and(|mut dirs| {
            dirs.any(|dir| dir.is_ok_and(|dir| dir.path().join("config.json").is_file()))
        })
    }

    pub(super) fn repository(&self, id: &HubId) -> PathBuf {
        self.root.join(id.folder())
    }

    pub(super) fn reference(&self, id: &HubId) -> PathBuf {
        self.repository(id).join("refs").join(id.revision())
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
        assert_eq!(cache.models(), ["org/name"]);
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
