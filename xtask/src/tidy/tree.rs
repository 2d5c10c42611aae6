//! The files of the repository, read once; what every check looks at.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Text beyond this size is data, and checks of text do not look at it.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// One file. `path` is relative to the root and uses `/`.
pub struct File {
    pub path: String,
    pub bytes: u64,
    /// `None` for binary or very large files.
    pub text: Option<String>,
}

impl File {
    /// The extension, or nothing.
    pub fn extension(&self) -> &str {
        let name = self.path.rsplit('/').next().unwrap_or("");
        name.rsplit_once('.').map_or("", |(_, extension)| extension)
    }

    /// Whether a person wrote this as program text.
    pub fn is_source(&self) -> bool {
        matches!(self.extension(), "rs" | "cu" | "cuh" | "py" | "js")
    }

    /// Whether the file holds nothing but tests, which may be long.
    pub fn is_test(&self) -> bool {
        let (dir, name) = self.path.rsplit_once('/').unwrap_or(("", &self.path));
        name == "tests.rs" || dir.split('/').any(|part| part == "tests")
    }
}

/// All files that git tracks or would track.
pub struct Tree {
    pub files: Vec<File>,
}

impl Tree {
    /// Lists the files with git, which knows what is ignored, and reads them.
    pub fn read(root: &Path) -> Result<Self> {
        let paths = list(root)?;
        let mut files = Vec::with_capacity(paths.len());
        for path in paths {
            let full = root.join(&path);
            // Deleted but not yet committed, or a link to a directory: nothing to check.
            let Ok(bytes) = full.metadata().map(|m| m.len()) else { continue };
            if !full.is_file() {
                continue;
            }
            let text = if bytes <= TEXT_BYTES_MAX {
                let raw = std::fs::read(&full).with_context(|| format!("cannot read {path}"))?;
                String::from_utf8(raw).ok().filter(|text| !text.contains('\0'))
            } else {
                None
            };
            files.push(File { path, bytes, text });
        }
        Ok(Self { files })
    }

    /// The text files, with their text.
    pub fn texts(&self) -> impl Iterator<Item = (&File, &str)> {
        self.files.iter().filter_map(|file| Some((file, file.text.as_deref()?)))
    }

    /// Whether `path` is a file of the tree or a directory that holds one.
    pub fn contains(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let inside = |file: &str| file.strip_prefix(path).is_some_and(|r| r.starts_with('/'));
        self.files.iter().any(|file| file.path == path || inside(&file.path))
    }

    /// A tree that exists only in a test.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Self {
        let file = |(path, text): &(&str, &str)| File {
            path: path.to_string(),
            bytes: text.len() as u64,
            text: Some(text.to_string()),
        };
        Self { files: files.iter().map(file).collect() }
    }
}

/// Tracked files and new ones that no `.gitignore` covers, sorted.
fn list(root: &Path) -> Result<BTreeSet<String>> {
    let output = Command::new("git")
        // A build machine may check out as one user and test as another; listing is harmless.
        .args(["-c", "safe.directory=*"])
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("cannot start git, which lists the files to check")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`git ls-files` failed in {}: {}", root.display(), said.trim());
    }
    let names = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
    Ok(names.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_contains_its_files_and_their_directories() {
        let tree = Tree::of(&[("crates/one/src/lib.rs", "")]);
        for path in ["crates", "crates/one/", "crates/one/src/lib.rs"] {
            assert!(tree.contains(path), "{path}");
        }
        for path in ["crates/on", "crates/one/src/lib", "lib.rs"] {
            assert!(!tree.contains(path), "{path}");
        }
    }

    #[test]
    fn test_files_are_known_by_name_or_directory() {
        let tree = Tree::of(&[
            ("crates/a/src/b/tests.rs", ""),
            ("crates/a/tests/golden.rs", ""),
            ("crates/a/src/latest.rs", ""),
        ]);
        let is_test: Vec<bool> = tree.files.iter().map(File::is_test).collect();
        assert_eq!(is_test, [true, true, false]);
    }
}
