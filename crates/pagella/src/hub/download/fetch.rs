//! Fetching a model into a folder of its own, for servers: watched, stoppable, resumable.
//!
//! Everything is fetched and checked beside the folder, which appears at the end, complete. What was
//! stopped goes on with the next attempt.

use std::ops::ControlFlow;
use std::path::Path;

use super::client::{Client, Located};
use super::dirs::DownloadDirs;
use super::file::Download;
use super::id::is_part;
use super::pull::{check_list, is_wanted};
use super::space;
use super::{HubError, HubId, PullOptions};

/// Where from, and what of it.
#[derive(Clone, Debug)]
pub struct FetchOptions {
    /// Where from and how patiently.
    pub pull: PullOptions,
    /// Patterns of the files that are wanted; empty for what a model needs.
    pub include: Vec<String>,
    /// Patterns of files that are not.
    pub exclude: Vec<String>,
    /// Hosts that may be asked; `*.` stands for any part before a domain.
    pub hosts: Vec<String>,
    /// Remove what is there when it is stopped.
    pub cleanup: bool,
}

/// How far it is, over all files.
#[derive(Clone, Copy, Debug)]
pub struct Fetching<'a> {
    /// The file.
    pub file: &'a str,
    /// Files that are there.
    pub files_done: usize,
    /// Files in all.
    pub n_files: usize,
    /// Bytes that are there.
    pub bytes_done: u64,
    /// Bytes in all.
    pub bytes_total: u64,
}

/// Fetches a model into `target`, which must not be there yet. Stops when `progress` says so.
pub fn fetch(
    id: &HubId,
    target: &Path,
    options: &FetchOptions,
    progress: &mut dyn FnMut(&Fetching<'_>) -> ControlFlow<()>,
) -> Result<(), HubError> {
    let pull = &options.pull;
    let client = Client::new(&pull.endpoint, pull.token.clone()).only(&options.hosts);
    let listing = client.list(id)?;
    if !is_part(&listing.sha) {
        let problem = "a commit with strange characters".to_owned();
        return Err(HubError::Answer { url: pull.endpoint.clone(), problem });
    }
    let names: Vec<&str> = listing.siblings.iter().map(|s| s.rfilename.as_str()).collect();
    let files = wanted(id, &names, options)?;
    // All sizes are known before the first byte is fetched.
    let mut located: Vec<(&str, Located)> = Vec::with_capacity(files.len());
    for file in files {
        located.push((file, client.locate(id, &listing.sha, file)?));
    }
    let bytes_total = located.iter().map(|(_, found)| found.bytes).fold(0, u64::saturating_add);
    let dirs = DownloadDirs::beside(target)?;
    let missing = located.iter().map(|(_, found)| dirs.missing_bytes(found));
    let missing = missing.fold(0, u64::saturating_add);
    if let Err(error) = space::check(&dirs.blobs, missing, pull.free_bytes) {
        // What is there of an earlier attempt is kept.
        if options.cleanup || missing == bytes_total {
            dirs.remove();
        }
        return Err(error);
    }
    let mut before = 0;
    for (files_done, (file, found)) in located.iter().enumerate() {
        let mut report = |bytes: u64| {
            let (n_files, bytes_done) = (located.len(), before + bytes);
            progress(&Fetching { file, files_done, n_files, bytes_done, bytes_total })
        };
        let download = Download { client: &client, located: found, file, options: pull };
        if let Err(error) = download.run(&dirs, &mut report) {
            if options.cleanup {
                dirs.remove();
            }
            return Err(error);
        }
        before += found.bytes;
    }
    let names = located.iter().map(|(file, found)| (found.etag.clone(), (*file).to_owned()));
    dirs.become_folder(&names.collect::<Vec<_>>(), target)?;
    if let Some((file, _)) = located.last() {
        let n_files = located.len();
        let bytes_done = bytes_total;
        // It is there; nobody can stop it any more.
        let _ = progress(&Fetching { file, files_done: n_files, n_files, bytes_done, bytes_total });
    }
    Ok(())
}

/// The files to fetch: top level only, each name once in every way of writing it.
fn wanted<'a>(
    id: &HubId,
    names: &[&'a str],
    options: &FetchOptions,
) -> Result<Vec<&'a str>, HubError> {
    let asked = |name: &str| match options.include.as_slice() {
        [] => is_wanted(name),
        patterns => is_part(name) && patterns.iter().any(|pattern| matches(pattern, name)),
    };
    let refused = |name: &str| options.exclude.iter().any(|pattern| matches(pattern, name));
    let files: Vec<&str> =
        names.iter().copied().filter(|name| asked(name) && !refused(name)).collect();
    if options.include.is_empty() && options.exclude.is_empty() {
        check_list(id, names, &files)?;
    }
    if files.is_empty() {
        return Err(HubError::NothingMatches { id: id.to_string() });
    }
    let mut seen = std::collections::HashSet::new();
    match files.iter().find(|name| !seen.insert(name.to_lowercase())) {
        Some(name) => Err(HubError::Names { id: id.to_string(), name: (*name).to_owned() }),
        None => Ok(files),
    }
}

/// Whether a name matches a pattern in which `*` stands for any text.
fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else {
        return false;
    };
    let mut last = None;
    for part in parts {
        if let Some(earlier) = last.replace(part) {
            let Some(at) = rest.find(earlier) else { return false };
            rest = &rest[at + earlier.len()..];
        }
    }
    match last {
        None => rest.is_empty(),
        Some(end) => rest.ends_with(end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match() {
        for (pattern, name, expected) in [
            ("*.json", "config.json", true),
            ("*.json", "config.jso", false),
            ("model-*-of-*.safetensors", "model-1-of-2.safetensors", true),
            ("a*b*c", "abab", false),
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "anything", true),
            ("a*a", "a", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn repository_listing_is_hostile() {
        let id: HubId = "a/b".parse().unwrap();
        let options = |include: &[&str]| FetchOptions {
            pull: PullOptions::from_env(),
            include: include.iter().map(|text| (*text).to_owned()).collect(),
            exclude: vec!["*.py".to_owned()],
            hosts: Vec::new(),
            cleanup: false,
        };
        let names =
            ["config.json", "../evil.json", "a/b.json", "x.py", "pytorch_model.bin", ".x.json"];
        assert_eq!(wanted(&id, &names, &options(&[])).unwrap(), ["config.json"]);
        assert_eq!(
            wanted(&id, &names, &options(&["*"])).unwrap(),
            ["config.json", "pytorch_model.bin"]
        );
        let twice = ["config.json", "Config.json"];
        assert!(matches!(wanted(&id, &twice, &options(&[])), Err(HubError::Names { .. })));
        let none = wanted(&id, &["README.md"], &options(&[]));
        assert!(matches!(none, Err(HubError::NothingMatches { .. })));
    }
}
