//! MODEL on the command line and in [`crate::Engine::open`]: a directory, `demo`, or a hub id.
//!
//! Nothing is downloaded here; a hub id that is not in the local cache is an error that says how to
//! get it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::hub::{HubCache, HubId};

/// Name of the bundled model.
pub const DEMO: &str = "demo";

/// Every bundled model, with its folder: the demo, and a smaller one that drafts for it.
pub const BUNDLED: [(&str, &str); 2] = [(DEMO, "demo"), ("demo-draft", "demo/draft")];

/// The directory that a model's name stands for.
pub fn resolve_model(model: impl AsRef<OsStr>) -> Result<PathBuf, Error> {
    let model = model.as_ref();
    if let Some((_, folder)) = BUNDLED.into_iter().find(|(name, _)| model == *name) {
        return bundled_dir(folder);
    }
    let path = Path::new(model);
    if path.is_dir() {
        return check_dir(path);
    }
    if path.exists() {
        return Err(wrong_file(path));
    }
    let name = model.to_string_lossy();
    if let Ok(id) = name.parse::<HubId>() {
        let cache = HubCache::from_env()?;
        let absent = || Error::NotPulled { id: id.to_string(), cache: cache.root().to_owned() };
        return cache.find(&id).ok_or_else(absent);
    }
    Err(Error::NoSuchModel { model: name.into_owned() })
}

/// A bundled model: in `PAGELLA_MODELS`, beside the executable, or in the source checkout.
fn bundled_dir(model: &str) -> Result<PathBuf, Error> {
    let mut places = Vec::new();
    if let Some(models) = std::env::var_os("PAGELLA_MODELS").filter(|v| !v.is_empty()) {
        places.push(PathBuf::from(models).join(model));
    }
    if let Some(folder) = std::env::current_exe().ok().as_deref().and_then(Path::parent) {
        places.push(folder.join("../share/pagella/models").join(model));
        places.push(folder.join("models").join(model));
    }
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    places.extend(checkout.map(|root| root.join("models").join(model)));
    let found = places.iter().find(|dir| dir.join("config.json").is_file()).cloned();
    found.ok_or(Error::NoDemo { places })
}

fn check_dir(dir: &Path) -> Result<PathBuf, Error> {
    if dir.join("config.json").is_file() {
        return Ok(dir.to_owned());
    }
    let holds = |extension: &str| {
        std::fs::read_dir(dir).is_ok_and(|mut entries| {
            entries.any(|e| e.is_ok_and(|e| e.path().extension() == Some(OsStr::new(extension))))
        })
    };
    if holds("gguf") {
        return Err(Error::Gguf { path: dir.to_owned() });
    }
    Err(Error::NotAModelDir { dir: dir.to_owned() })
}

fn wrong_file(path: &Path) -> Error {
    if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gguf")) {
        return Error::Gguf { path: path.to_owned() };
    }
    Error::ModelIsFile { path: path.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(model: impl AsRef<OsStr>) -> String {
        resolve_model(model).unwrap_err().to_string()
    }

    #[test]
    fn the_demo_is_found_in_the_checkout() {
        assert!(resolve_model("demo").unwrap().join("tokenizer.json").is_file());
    }

    #[test]
    fn what_is_no_model_gets_a_hint() {
        let dir = tempfile::tempdir().unwrap();
        assert!(message(dir.path()).contains("config.json"));
        std::fs::write(dir.path().join("a.gguf"), "").unwrap();
        assert!(message(dir.path()).contains("GGUF"));
        assert!(message(dir.path().join("a.gguf")).contains("GGUF"));
        std::fs::write(dir.path().join("model.safetensors"), "").unwrap();
        assert!(message(dir.path().join("model.safetensors")).contains("directory"));
        assert!(message("no-such-thing").contains("no-such-thing"));
        assert!(message("surely/not-cached-anywhere").contains("pagella pull"));
    }
}
