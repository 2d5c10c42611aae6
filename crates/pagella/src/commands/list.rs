//! `pagella list`: which models are here, from their configurations and headers only.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use pagella::hub::HubCache;
use pagella::{DEMO, Engine, Error, Place, resolve_model};
use serde_json::{Value, json};

use super::inspect::weight_file_bytes;
use crate::flags::OutputFlags;
use crate::output::{self, Table};
use crate::printable;

/// Folders within folders.
const DEPTH_MAX: usize = 8;
/// Directories that are looked at.
const DIRS_MAX: usize = 10_000;

/// List the models that are here
///
/// Those of the local Hugging Face cache, those in the folders that are named, and demo. The first
/// column is what to write for MODEL. A model that cannot be used is listed with the reason.
#[derive(Args)]
pub struct ListArgs {
    /// Folders to look into, at any depth; a folder can be a model itself
    #[arg(value_name = "DIR")]
    dirs: Vec<PathBuf>,
    #[command(flatten)]
    output: OutputFlags,
}

/// A model by the name that stands for it.
struct Listed {
    name: String,
    source: &'static str,
    /// Where its files are, if they are anywhere.
    dir: Option<PathBuf>,
    found: Result<Facts, String>,
}

/// What configuration and headers say.
struct Facts {
    family: String,
    formats: String,
    bits_per_weight: f64,
    context: usize,
}

/// Runs the command. A folder that is not there is said at the end, as an error.
pub fn run(args: &ListArgs) -> Result<()> {
    let mut models = vec![Listed::new(DEMO.to_owned(), "bundled", resolve_model(DEMO))];
    models.extend(HubCache::from_env().map(|cache| cached(&cache)).unwrap_or_default());
    let absent = args.dirs.iter().find(|dir| !dir.is_dir());
    for dir in &args.dirs {
        models.extend(models_below(dir).into_iter().map(|dir| {
            let (name, resolved) = (dir.display().to_string(), resolve_model(&dir));
            Listed { dir: Some(dir), ..Listed::new(name, "folder", resolved) }
        }));
    }
    match args.output.json {
        true => output::print_json(&models.iter().map(Listed::json).collect())?,
        false => output::print(&text(&models))?,
    }
    match absent {
        None => Ok(()),
        Some(dir) => anyhow::bail!("{} is no folder: name one that holds models", dir.display()),
    }
}

fn cached(cache: &HubCache) -> Vec<Listed> {
    let list = |model: pagella::hub::CachedModel| {
        let resolved = resolve_model(&model.dir);
        let mut listed = Listed::new(model.name, "hub", resolved);
        // Only what was asked for by path is told to be the wrong path.
        if !model.dir.join("config.json").exists() && !holds(&model.dir, "gguf") {
            let again = format!("it is not complete: fetch it with `pagella pull {}`", listed.name);
            listed.found = Err(again);
        }
        Listed { dir: Some(model.dir), ..listed }
    };
    cache.models().into_iter().map(list).collect()
}

impl Listed {
    fn new(name: String, source: &'static str, dir: Result<PathBuf, Error>) -> Self {
        let found = dir.as_deref().map_err(ToString::to_string);
        let found = found.and_then(|dir| Facts::of(dir).map_err(|error| error.to_string()));
        Listed { name, source, dir: dir.ok(), found }
    }

    fn size_bytes(&self) -> Option<u64> {
        self.dir.as_deref().map(weight_file_bytes)
    }

    fn json(&self) -> Value {
        let facts = self.found.as_ref().ok();
        json!({
            "name": self.name,
            "source": self.source,
            "dir": self.dir,
            "family": facts.map(|facts| &facts.family),
            "format": facts.map(|facts| &facts.formats),
            "bits_per_weight": facts.map(|facts| facts.bits_per_weight),
            "context": facts.map(|facts| facts.context),
            "size_bytes": self.size_bytes(),
            "problem": self.found.as_ref().err(),
        })
    }
}

impl Facts {
    fn of(dir: &Path) -> Result<Self, Error> {
        let builder = Engine::builder(dir);
        let spec = builder.spec(dir)?;
        let need = builder.predict_memory(dir, &spec, Place::Cpu)?;
        let report = need.report();
        // The head is often stored in its own way; the largest part names the model.
        let main = report.kinds.iter().max_by_key(|kind| kind.share.params);
        Ok(Facts {
            family: spec.family.to_owned(),
            formats: main.map_or("none", |kind| kind.kind.name()).to_owned(),
            bits_per_weight: report.layers.bits_per_weight(),
            context: spec.context,
        })
    }
}

/// Directories at or below `root` that are models, or would be if they were complete, in order. A
/// model's own directory is not searched for more.
fn models_below(root: &Path) -> Vec<PathBuf> {
    let mut models = Vec::new();
    let mut dirs = vec![(root.to_owned(), 0)];
    // Links may lead in circles.
    let mut seen = BTreeSet::new();
    while let Some((dir, depth)) = dirs.pop() {
        let Ok(real) = dir.canonicalize() else { continue };
        if seen.len() >= DIRS_MAX || !seen.insert(real) {
            continue;
        }
        let is_model = dir.join("config.json").is_file();
        if is_model || holds(&dir, "safetensors") || holds(&dir, "gguf") {
            models.push(dir);
        } else if depth < DEPTH_MAX {
            let inner = std::fs::read_dir(&dir).into_iter().flatten().flatten();
            let hidden = |path: &Path| {
                path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'))
            };
            let inner = inner.map(|entry| entry.path());
            let inner = inner.filter(|path| path.is_dir() && !hidden(path));
            dirs.extend(inner.map(|path| (path, depth + 1)));
        }
    }
    models.sort();
    models
}

/// Whether a directory has a file with this ending.
fn holds(dir: &Path, ending: &str) -> bool {
    let mut files = std::fs::read_dir(dir).into_iter().flatten().flatten();
    files.any(|file| file.path().extension().is_some_and(|e| e.eq_ignore_ascii_case(ending)))
}

/// A table of what can be used, then what cannot and why.
fn text(models: &[Listed]) -> String {
    let mut table = Table::new(&["model", "family", "format", "bits", "context", "size"]);
    let mut problems = String::new();
    for model in models {
        let size = model.size_bytes().map_or_else(String::new, output::bytes);
        match &model.found {
            Ok(facts) => table.row(vec![
                model.name.clone(),
                facts.family.clone(),
                facts.formats.clone(),
                format!("{:.2}", facts.bits_per_weight),
                facts.context.to_string(),
                size,
            ]),
            Err(problem) => {
                let (name, problem) = (printable::word(&model.name), printable::word(problem));
                problems.push_str(&format!("  {name}: {problem}\n"));
            }
        }
    }
    match problems.as_str() {
        "" => table.render(),
        problems => format!("{}\ncannot be used:\n{problems}", table.render()),
    }
}
