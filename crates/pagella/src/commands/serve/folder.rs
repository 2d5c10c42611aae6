//! The folder of models: what is in it, and what a model's own file says.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use pagella_arch::{SpecOptions, load_spec};
use pagella_server::config::read_yaml;
use pagella_server::name::{self, Links};
use pagella_server::settings::ModelSettings;
use pagella_server::{KnownModel, ModelFile, OpenError};
use pagella_text::ChatTemplate;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Folders within folders.
const DEPTH_MAX: usize = 8;
/// Directories that are looked at.
const DIRS_MAX: usize = 10_000;
/// Longest file in which a model says how to open it, in bytes.
const MODEL_FILE_BYTES_MAX: u64 = 64 << 10;
/// Longest configuration that is looked at for a list, in bytes.
const CONFIG_BYTES_MAX: u64 = 4 << 20;
/// In one of these, a model says how to open it: ours, or else TabbyAPI's.
const MODEL_FILES: [&str; 2] = ["model.toml", "tabby_config.yml"];
/// A directory with it was downloaded.
pub const DOWNLOAD_MARK: &str = ".pagella-download";
/// Digests of files that an administrator trusts, one a line, in the folder of models.
const TRUSTED: &str = ".pagella-trusted";

/// A folder of models.
pub struct Folder {
    /// Where it is.
    pub root: PathBuf,
    /// Whether links may lead out of it.
    pub links: Links,
}

/// Whether links in folders of models may lead out of them.
pub fn links(settings: &ModelSettings) -> Links {
    if settings.follow_symlinks { Links::Follow } else { Links::Refuse }
}

impl Folder {
    /// The directory of a model.
    pub fn find(&self, id: &str) -> Option<PathBuf> {
        let dir = name::resolve(&self.root, id, self.links).ok().flatten()?;
        dir.join("config.json").is_file().then_some(dir)
    }

    /// Every model, at any depth. A model's own directory is not searched for more.
    pub fn list(&self) -> Vec<KnownModel> {
        let mut models = Vec::new();
        let mut dirs = vec![(String::new(), 0)];
        // Links may lead in circles.
        let mut seen = BTreeSet::new();
        while let Some((id, depth)) = dirs.pop() {
            let Ok(dir) = self.root.join(&id).canonicalize() else { continue };
            if seen.len() >= DIRS_MAX || !seen.insert(dir.clone()) {
                continue;
            }
            if !id.is_empty() && dir.join("config.json").is_file() {
                models.push(describe(id, &dir));
                continue;
            }
            let Ok(entries) = std::fs::read_dir(&dir) else { continue };
            for entry in entries.flatten().filter(|entry| entry.path().is_dir()) {
                let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
                let inner = if id.is_empty() { name } else { format!("{id}/{name}") };
                let hidden = inner.split('/').any(|part| part.starts_with('.'));
                let found = name::resolve(&self.root, &inner, self.links);
                if depth < DEPTH_MAX && !hidden && found.is_ok_and(|found| found.is_some()) {
                    dirs.push((inner, depth + 1));
                }
            }
        }
        models
    }

    /// What the model in a directory says about opening it.
    pub fn model_file(&self, dir: &Path) -> Result<Option<ModelFile>, OpenError> {
        let Some(name) = MODEL_FILES.into_iter().find(|name| dir.join(name).exists()) else {
            return Ok(None);
        };
        let refused = |problem: String| {
            let message = format!("the model's file {name} cannot be read: {problem}");
            OpenError::Refused { option: None, message }
        };
        let Some(text) = read_short(&dir.join(name), MODEL_FILE_BYTES_MAX) else {
            return Err(refused("it is too long, or no text".to_owned()));
        };
        let tables = match name.ends_with("toml") {
            true => toml::from_str::<toml::Table>(&text).map_err(|e| e.message().to_owned()),
            false => read_yaml(&text),
        };
        let tables = tables.map_err(refused)?;
        let tables = serde_json::to_value(tables).map_err(|error| refused(error.to_string()))?;
        let hash = Sha256::digest(text.as_bytes());
        let digest: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        let foreign = dir.join(DOWNLOAD_MARK).exists() && !self.trusts(&digest);
        Ok(Some(ModelFile { tables, digest, foreign }))
    }

    fn trusts(&self, digest: &str) -> bool {
        let trusted = std::fs::read_to_string(self.root.join(TRUSTED)).unwrap_or_default();
        trusted.lines().any(|line| line == digest)
    }

    /// Remembers that an administrator trusts a content.
    pub fn trust(&self, digest: &str) -> Result<(), OpenError> {
        use std::io::Write;
        let mut options = std::fs::OpenOptions::new();
        let opened = options.create(true).append(true).open(self.root.join(TRUSTED));
        let written = opened.and_then(|mut file| writeln!(file, "{digest}"));
        written.map_err(|error| OpenError::Failed(format!("cannot write {TRUSTED}: {error}")))
    }
}

/// What can be said of a model without opening it.
pub fn describe(id: String, dir: &Path) -> KnownModel {
    let text = read_short(&dir.join("config.json"), CONFIG_BYTES_MAX).unwrap_or_default();
    let config: Value = serde_json::from_str(&text).unwrap_or_default();
    let quant = &config["quantization_config"];
    let spec = load_spec(dir, &SpecOptions::default());
    let problem =
        spec.as_ref().err().map(|error| error.to_string().replace(&dir.display().to_string(), &id));
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let weights = files.filter(|file| file.path().extension().is_some_and(|e| e == "safetensors"));
    let size = weights.filter_map(|file| Some(file.path().metadata().ok()?.len())).sum();
    KnownModel {
        created: created(dir),
        size_bytes: Some(size),
        max_model_len: spec.ok().map(|spec| spec.context),
        quantization: quant["quant_method"].as_str().map(str::to_owned),
        bits_per_weight: quant["bits"].as_f64(),
        talks: ChatTemplate::from_dir(dir).is_ok(),
        problem,
        id,
    }
}

/// When a model was made, in seconds since 1970; 0 if that is not known.
pub fn created(dir: &Path) -> u64 {
    let modified = std::fs::metadata(dir.join("config.json")).and_then(|meta| meta.modified());
    let since = modified.ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |since| since.as_secs())
}

/// The text of a file that is not longer than it should be.
fn read_short(path: &Path, bytes_max: u64) -> Option<String> {
    let short = path.metadata().is_ok_and(|meta| meta.is_file() && meta.len() <= bytes_max);
    if short { std::fs::read_to_string(path).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> (tempfile::TempDir, Folder) {
        let dir = tempfile::tempdir().unwrap();
        for id in ["a", "org/b", "org/b/inner", ".hidden/c", "empty"] {
            std::fs::create_dir_all(dir.path().join(id)).unwrap();
        }
        for id in ["a", "org/b", "org/b/inner", ".hidden/c"] {
            std::fs::write(dir.path().join(id).join("config.json"), "{}").unwrap();
        }
        let folder = Folder { root: dir.path().to_owned(), links: Links::Follow };
        (dir, folder)
    }

    #[test]
    fn models_are_found_at_any_depth() {
        let (dir, folder) = folder();
        let ids = || {
            let mut ids: Vec<String> = folder.list().into_iter().map(|model| model.id).collect();
            ids.sort();
            ids
        };
        assert_eq!(ids(), ["a", "org/b"]);
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(dir.path(), dir.path().join("org/circle")).unwrap();
            assert_eq!(ids(), ["a", "org/b"]);
        }
        assert!(folder.find("org/b").is_some() && folder.find("empty").is_none());
        assert!(folder.find("../a").is_none() && folder.find("org/../a").is_none());
        let described = folder.list().into_iter().find(|model| model.id == "a").unwrap();
        let problem = described.problem.unwrap();
        assert!(!problem.contains(dir.path().to_str().unwrap()), "{problem}");
    }

    #[test]
    fn the_file_of_a_downloaded_model_counts_once_it_is_trusted() {
        let (dir, folder) = folder();
        let model = dir.path().join("a");
        assert_eq!(folder.model_file(&model).unwrap(), None);
        std::fs::write(model.join("model.toml"), "[model]\nmax_seq_len = 512\n").unwrap();
        let file = folder.model_file(&model).unwrap().unwrap();
        assert!(!file.foreign && file.tables["model"]["max_seq_len"] == 512);
        std::fs::write(model.join(DOWNLOAD_MARK), "").unwrap();
        assert!(folder.model_file(&model).unwrap().unwrap().foreign);
        folder.trust(&file.digest).unwrap();
        assert!(!folder.model_file(&model).unwrap().unwrap().foreign);
        std::fs::write(model.join("model.toml"), "[model]\nmax_seq_len = 256\n").unwrap();
        assert!(folder.model_file(&model).unwrap().unwrap().foreign, "other content");
        std::fs::write(model.join("model.toml"), "[model").unwrap();
        assert!(folder.model_file(&model).is_err());
        std::fs::write(model.join("model.toml"), "#".repeat(100_000)).unwrap();
        assert!(folder.model_file(&model).is_err());
        std::fs::remove_file(model.join("model.toml")).unwrap();
        std::fs::write(model.join("tabby_config.yml"), "model:\n  cache_mode: Q8\n").unwrap();
        let file = folder.model_file(&model).unwrap().unwrap();
        assert_eq!(file.tables["model"]["cache_mode"], "Q8");
    }
}
