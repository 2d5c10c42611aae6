//! Fetching a model into the cache: which files, in which order, and when it becomes visible.
//!
//! The ref that makes the model findable is written last, so an interrupted pull never looks like a
//! model.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::cache::hub_home;
use super::client::{Client, Located};
use super::dirs::DownloadDirs;
use super::file::Download;
use super::id::is_part;
use super::space::{self, free_bytes};
use super::{HubCache, HubError, HubId};

/// Where from and how patiently.
#[derive(Clone, Debug)]
pub struct PullOptions {
    /// Address of the hub.
    pub endpoint: String,
    /// Sent to that address only.
    pub token: Option<String>,
    /// Attempts in a row that may fail without a single new byte.
    pub attempts: usize,
    /// Wait after the first failure; doubles with every further one.
    pub retry_wait: Duration,
    /// Says how much room there is; see [`free_bytes`].
    pub free_bytes: fn(&Path) -> Option<u64>,
}

impl PullOptions {
    /// The public hub, or what `HF_ENDPOINT` and `HF_TOKEN` say; the token may also be in the file
    /// that the Hugging Face tools write.
    pub fn from_env() -> Self {
        let variable = |name| std::env::var(name).ok().filter(|v| !v.trim().is_empty());
        let stored = || std::fs::read_to_string(hub_home().ok()?.join("token")).ok();
        let token = variable("HF_TOKEN").or_else(stored).map(|t| t.trim().to_owned());
        PullOptions {
            endpoint: variable("HF_ENDPOINT").unwrap_or("https://huggingface.co".to_owned()),
            token: token.filter(|t| !t.is_empty()),
            attempts: 5,
            retry_wait: Duration::from_millis(500),
            free_bytes,
        }
    }
}

/// How far a download is.
#[derive(Clone, Copy, Debug)]
pub struct PullProgress<'a> {
    /// The file.
    pub file: &'a str,
    /// Its place in the list, from 0.
    pub file_idx: usize,
    /// Files in the list.
    pub n_files: usize,
    /// Bytes of the file that are there.
    pub bytes_done: u64,
    /// Bytes of the file.
    pub bytes_total: u64,
}

/// A model in the cache.
#[derive(Clone, Debug)]
pub struct Pulled {
    /// Its directory.
    pub dir: PathBuf,
    /// The commit.
    pub commit: String,
    /// Names of its files.
    pub files: Vec<String>,
    /// Bytes of all files.
    pub bytes_total: u64,
    /// Bytes that came over the network this time.
    pub bytes_fetched: u64,
}

/// Fetches what is missing of a model and makes it findable.
pub fn pull(
    id: &HubId,
    cache: &HubCache,
    options: &PullOptions,
    progress: &mut dyn FnMut(&PullProgress<'_>),
) -> Result<Pulled, HubError> {
    let client = Client::new(&options.endpoint, options.token.clone());
    let listing = client.list(id)?;
    if !is_part(&listing.sha) {
        let problem = "a commit with strange characters".to_owned();
        return Err(HubError::Answer { url: options.endpoint.clone(), problem });
    }
    let names: Vec<&str> = listing.siblings.iter().map(|s| s.rfilename.as_str()).collect();
    let files: Vec<&str> = names.iter().copied().filter(|name| is_wanted(name)).collect();
    check_list(id, &names, &files)?;
    let dirs = DownloadDirs::new(cache, id, &listing.sha)?;
    let mut pulled = Pulled {
        dir: dirs.snapshot.clone(),
        commit: listing.sha.clone(),
        files: files.iter().map(|&f| f.to_owned()).collect(),
        bytes_total: 0,
        bytes_fetched: 0,
    };
    // All sizes are known before the first byte is fetched.
    let locate = |file: &&str| client.locate(id, &listing.sha, file);
    let all: Vec<Located> = files.iter().map(locate).collect::<Result<_, _>>()?;
    let missing = all.iter().map(|located| dirs.missing_bytes(located));
    let missing = missing.fold(0, u64::saturating_add);
    space::check(&dirs.blobs, missing, options.free_bytes)?;
    for (file_idx, (&file, located)) in files.iter().zip(&all).enumerate() {
        let mut report = |bytes_done| {
            let (n_files, bytes_total) = (files.len(), located.bytes);
            progress(&PullProgress { file, file_idx, n_files, bytes_done, bytes_total });
            ControlFlow::Continue(())
        };
        let download = Download { client: &client, located, file, options };
        pulled.bytes_fetched += download.run(&dirs, &mut report)?;
        pulled.bytes_total += located.bytes;
    }
    dirs.publish(cache, id, &listing.sha)?;
    Ok(pulled)
}

/// The files a model needs: configuration, tokenizer, template, weights; top level only.
pub(super) fn is_wanted(name: &str) -> bool {
    let suffixes = [".json", ".safetensors", ".jinja"];
    is_part(name) && (name == "tokenizer.model" || suffixes.iter().any(|s| name.ends_with(s)))
}

pub(super) fn check_list(id: &HubId, names: &[&str], files: &[&str]) -> Result<(), HubError> {
    let hint = if names.iter().any(|name| name.ends_with(".gguf")) {
        " (it holds GGUF files; look for an EXL2, AWQ, GPTQ or float16 version)"
    } else if names.iter().any(|name| name.ends_with(".bin")) {
        " (it holds pickled weights; look for a safetensors version)"
    } else {
        " (EXL2 repositories often keep each bit rate in a branch: try org/name@4.0bpw)"
    };
    let missing = if !files.contains(&"config.json") {
        "config.json"
    } else if !files.iter().any(|name| name.ends_with(".safetensors")) {
        ".safetensors file"
    } else {
        return Ok(());
    };
    Err(HubError::NotAModel { id: id.to_string(), missing, hint })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_model_needs_is_wanted() {
        for name in ["config.json", "model-00001-of-2.safetensors", "tokenizer.model", "x.jinja"] {
            assert!(is_wanted(name), "{name}");
        }
        for name in [
            "README.md",
            "a.gguf",
            "pytorch_model.bin",
            "onnx/model.json",
            "../config.json",
            ".json",
        ] {
            assert!(!is_wanted(name), "{name}");
        }
    }

    #[test]
    fn repositories_without_a_model_say_what_is_missing() {
        let id: HubId = "a/b".parse().unwrap();
        let problem = |names: &[&str]| {
            let files: Vec<&str> = names.iter().copied().filter(|n| is_wanted(n)).collect();
            check_list(&id, names, &files).err().map(|e| e.to_string()).unwrap_or_default()
        };
        assert!(problem(&["README.md", "a.gguf"]).contains("GGUF"));
        assert!(problem(&["config.json", "pytorch_model.bin"]).contains("pickled"));
        assert!(problem(&["README.md"]).contains("branch"));
        assert_eq!(problem(&["config.json", "model.safetensors"]), "");
    }
}
