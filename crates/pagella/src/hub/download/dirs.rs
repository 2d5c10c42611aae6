//! The folders of one repository in the cache, and the two ways in which files become visible.

use std::io;
use std::path::{Path, PathBuf};

use super::client::Located;
use super::{HubCache, HubError, HubId};

/// The folders of one repository at one commit.
pub(super) struct DownloadDirs {
    pub blobs: PathBuf,
    pub snapshot: PathBuf,
    layout: Layout,
}

/// How names lead to contents.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// Names are links, made as soon as a file is there.
    Cache,
    /// Names are made for all files at once, at the end.
    Folder,
}

impl DownloadDirs {
    pub fn new(cache: &HubCache, id: &HubId, commit: &str) -> Result<Self, HubError> {
        let repository = cache.repository(id);
        let dirs = DownloadDirs {
            blobs: repository.join("blobs"),
            snapshot: repository.join("snapshots").join(commit),
            layout: Layout::Cache,
        };
        dirs.made()
    }

    /// A folder beside the one that will be there in the end: what is in it does not look like a
    /// model.
    pub fn beside(target: &Path) -> Result<Self, HubError> {
        let mut name = target.as_os_str().to_owned();
        name.push(".part");
        let dir = PathBuf::from(name);
        let (blobs, snapshot) = (dir.join("blobs"), dir.join("files"));
        DownloadDirs { blobs, snapshot, layout: Layout::Folder }.made()
    }

    fn made(self) -> Result<Self, HubError> {
        for dir in [&self.blobs, &self.snapshot] {
            std::fs::create_dir_all(dir).map_err(|e| cache_error(dir, e))?;
        }
        Ok(self)
    }

    /// Gives all files their names and makes them the folder `target`, at once.
    pub fn become_folder(&self, files: &[(String, String)], target: &Path) -> Result<(), HubError> {
        for (etag, file) in files {
            let (blob, named) = (self.blobs.join(etag), self.snapshot.join(file));
            // A name of an earlier attempt may lead to other contents.
            let _ = std::fs::remove_file(&named);
            let linked = std::fs::hard_link(&blob, &named);
            let copied = linked.or_else(|_| std::fs::copy(&blob, &named).map(|_| ()));
            copied.map_err(|e| cache_error(&named, e))?;
        }
        std::fs::rename(&self.snapshot, target).map_err(|e| cache_error(target, e))?;
        self.remove();
        Ok(())
    }

    /// Bytes of a file that are not here yet.
    pub fn missing_bytes(&self, located: &Located) -> u64 {
        let bytes = |name: &str| std::fs::metadata(self.blobs.join(name)).map_or(0, |m| m.len());
        match bytes(&located.etag) == located.bytes {
            true => 0,
            // One that is too long begins anew.
            false => match bytes(&format!("{}.part", located.etag)) {
                there if there <= located.bytes => located.bytes - there,
                _ => located.bytes,
            },
        }
    }

    /// Removes a folder that is not complete.
    pub fn remove(&self) {
        if let (Layout::Folder, Some(dir)) = (self.layout, self.blobs.parent()) {
            // Nothing depends on its being gone.
            let _ = std::fs::remove_dir_all(dir);
        }
    }

    /// Makes a blob visible under its name, where that is done one by one.
    pub fn link(&self, etag: &str, file: &str) -> Result<(), HubError> {
        if self.layout == Layout::Folder {
            return Ok(());
        }
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
