//! The folders of one repository in the cache, and the two ways in which files become visible.

use std::io;
use std::path::{Path, PathBuf};

use super::{HubCache, HubError, HubId};

/// The folders of one repository at one commit.
pub(super) struct Place {
    pub blobs: PathBuf,
    pub snapshot: PathBuf,
}

impl Place {
    pub fn new(cache: &HubCache, id: &HubId, commit: &str) -> Result<Self, HubError> {
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
    pub fn link(&self, etag: &str, file: &str) -> Result<(), HubError> {
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
    pub fn publish(&self, cache: &HubCache, id: &HubId, commit: &str) -> Result<(), HubError> {
        let reference = cache.reference(id);
        let parent = reference.parent().unwrap_or(cache.root());
        std::fs::create_dir_all(parent).map_err(|e| cache_error(parent, e))?;
        let draft = self.blobs.join("ref.part");
        std::fs::write(&draft, commit).map_err(|e| cache_error(&draft, e))?;
        std::fs::rename(&draft, &reference).map_err(|e| cache_error(&reference, e))
    }
}

/// A failure to write the cache.
pub(super) fn cache_error(path: &Path, source: io::Error) -> HubError {
    HubError::Cache { path: path.to_owned(), source }
}
