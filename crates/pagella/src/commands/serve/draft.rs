//! Draft models for the server: which one guesses for a model, where it is, and what it needs.

use std::path::{Path, PathBuf};

use anyhow::Result;
use pagella::{
    BUNDLED, EngineBuilder, Error, KvFormat, MemoryNeed, Place, RopeOverride, resolve_model,
};
use pagella_engine::Vocabularies;
use pagella_server::config::Config;
use pagella_server::{DraftFacts, DraftLoad, KnownModel, OpenError};
use pagella_text::Tokenizer;

use super::folder::{self, Folder};
use crate::output;
use crate::usage::Usage;

/// Where draft models are found, and what holds where a load says nothing.
pub struct Drafts {
    /// What the configuration says.
    usual: DraftLoad,
    /// The model that it names, for the model of the start.
    named: Option<(String, PathBuf)>,
    /// The folder of draft models.
    folder: Option<Folder>,
}

/// How tokens are guessed for one model.
pub struct DraftChoice {
    /// Everything that was said.
    pub load: DraftLoad,
    /// The model that guesses.
    pub model: Option<DraftDir>,
}

/// A model that guesses.
pub struct DraftDir {
    /// Its name.
    pub id: String,
    /// Where it is.
    pub dir: PathBuf,
    /// How it stores keys and values.
    pub cache: KvFormat,
}

impl Drafts {
    /// What the configuration says. A draft model that is named there must be there.
    pub fn new(config: &Config, models: Option<&Folder>, starts: bool) -> Result<Self> {
        let settings = &config.settings.draft_model;
        let usual = DraftLoad::of(settings)
            .map_err(|problem| Usage::error(format!("draft_model: {problem}")))?;
        let root = &settings.draft_model_dir;
        let links = folder::links(&config.settings.model);
        let folder = root.is_dir().then(|| Folder { root: root.clone(), links });
        let named = match usual.drafting_model() {
            None => None,
            Some(name) => {
                let found = [folder.as_ref(), models].into_iter().flatten();
                let found = found.filter_map(|folder| folder.find(name)).next();
                let dir = match found {
                    Some(dir) => dir,
                    None => resolve_model(name)
                        .map_err(|error| Usage::error(format!("draft model {name}: {error}")))?,
                };
                Some((super::open::model_id(name, &dir), dir))
            }
        };
        let by_request = &config.settings.model.use_as_default;
        if named.is_some() && !starts && !by_request.iter().any(|key| key == "draft_model_name") {
            output::note(
                "warning: the draft model guesses for the model of the start, and there is none: list \
                 draft_model_name in model.use_as_default, or name it when a model is loaded",
            );
        }
        Ok(Drafts { usual, named, folder })
    }

    /// Every draft model of the folder.
    pub fn list(&self) -> Vec<KnownModel> {
        let mut models = self.folder.as_ref().map(Folder::list).unwrap_or_default();
        models.sort_by(|a, b| a.id.cmp(&b.id));
        models
    }

    /// Leaves out what is in the folder of draft models, where that is within `models`.
    pub fn hide_in(&self, models: &Folder, list: &mut Vec<KnownModel>) {
        let own = self.folder.as_ref().and_then(|folder| folder.root.canonicalize().ok());
        let outer = models.root.canonicalize().ok();
        let inner = own.zip(outer).and_then(|(own, outer)| {
            own.strip_prefix(&outer).ok().and_then(Path::to_str).map(|path| path.replace('\\', "/"))
        });
        if let Some(inner) = inner.filter(|inner| !inner.is_empty()) {
            let prefix = format!("{inner}/");
            list.retain(|model| !model.id.starts_with(&prefix));
        }
    }

    /// How tokens are guessed for a model with this cache; `is_named` for that of the start.
    pub fn choose(
        &self,
        load: &DraftLoad,
        is_named: bool,
        cache: KvFormat,
        models: impl FnOnce(&str) -> Option<PathBuf>,
    ) -> Result<DraftChoice, OpenError> {
        let usual = if is_named { self.usual.clone() } else { self.usual.of_any_model() };
        let own_name = load.model.is_some();
        let load = load.or(&usual);
        let model = match load.drafting_model() {
            None => None,
            Some(name) => {
                let by_operator = self.named.clone().filter(|_| !own_name);
                let (id, dir) = match by_operator {
                    Some(named) => named,
                    None => {
                        let of_folder = self.folder.as_ref().and_then(|folder| folder.find(name));
                        let found = of_folder.or_else(|| models(name)).or_else(|| bundled(name));
                        (name.to_owned(), found.ok_or(OpenError::NoDraft)?)
                    }
                };
                Some(DraftDir { id, dir, cache: load.cache_mode.unwrap_or(cache) })
            }
        };
        Ok(DraftChoice { load, model })
    }
}

/// The directory of a bundled model.
fn bundled(name: &str) -> Option<PathBuf> {
    let known = BUNDLED.iter().any(|(bundled, _)| *bundled == name);
    known.then(|| resolve_model(name).ok()).flatten()
}

impl DraftChoice {
    /// A builder with these choices.
    pub fn apply(&self, mut builder: EngineBuilder) -> EngineBuilder {
        if let Some(DraftDir { dir, cache, .. }) = &self.model {
            builder = builder.draft(dir).draft_cache(*cache);
            let scale = self.load.rope_scale.map(RopeOverride::Linear);
            if let Some(rope) = scale.or(self.load.rope_alpha.map(RopeOverride::NtkAlpha)) {
                builder = builder.draft_rope(rope);
            }
        }
        builder.draft_options(self.load.options())
    }

    /// Whether the tokens of the draft model can stand for those of the model in `dir`.
    pub fn check_vocabulary(&self, dir: &Path) -> Result<(), Error> {
        let Some(draft) = &self.model else { return Ok(()) };
        let (own, other) = (Tokenizer::from_dir(&draft.dir)?, Tokenizer::from_dir(dir)?);
        Vocabularies::new(&own, &other)?;
        Ok(())
    }

    /// What the draft model of `builder` will need at `place`, and how it stores keys and values.
    pub fn memory(
        &self,
        builder: &EngineBuilder,
        place: Place,
    ) -> Result<Option<(MemoryNeed, KvFormat)>, Error> {
        let Some(DraftDir { dir, cache, .. }) = &self.model else { return Ok(None) };
        // Its length is that of the model's cache and does not change what a token takes.
        let Some(own) = builder.draft_builder(0) else { return Ok(None) };
        let need = own.predict_memory(dir, &own.spec(dir)?, place)?;
        Ok(Some((need, *cache)))
    }

    /// What is worth knowing about the draft model, once it is there.
    pub fn facts(&self, opened: Option<&pagella::DraftFacts>) -> Option<DraftFacts> {
        let (draft, opened) = self.model.as_ref().zip(opened)?;
        Some(DraftFacts {
            known: folder::describe(draft.id.clone(), &draft.dir),
            cache_mode: draft.cache.name().to_owned(),
            weight_bytes: opened.memory.weights_bytes,
            rope_scale: self.load.rope_scale,
            rope_alpha: self.load.rope_alpha,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagella_server::name::Links;

    fn folder(ids: &[&str]) -> (tempfile::TempDir, Folder) {
        let dir = tempfile::tempdir().unwrap();
        for id in ids {
            std::fs::create_dir_all(dir.path().join(id)).unwrap();
            std::fs::write(dir.path().join(id).join("config.json"), "{}").unwrap();
        }
        let folder = Folder { root: dir.path().to_owned(), links: Links::Follow };
        (dir, folder)
    }

    fn load(model: Option<&str>) -> DraftLoad {
        DraftLoad { model: model.map(str::to_owned), ..DraftLoad::default() }
    }

    #[test]
    fn a_draft_model_is_found_by_its_name_wherever_models_are() {
        let (drafts_dir, folder) = folder(&["tiny"]);
        let usual = DraftLoad { cache_mode: Some(KvFormat::Q4), ..load(Some("/somewhere/own")) };
        let named = Some(("own".to_owned(), PathBuf::from("/somewhere/own")));
        let drafts = Drafts { usual, named, folder: Some(folder) };
        let models = |name: &str| (name == "big").then(|| PathBuf::from("/models/big"));
        let choose = |load: DraftLoad, is_named| {
            let choice = drafts.choose(&load, is_named, KvFormat::F16, models)?;
            Ok(choice.model.map(|model| (model.id, model.dir, model.cache)))
        };
        let of = |id: &str, dir: PathBuf, cache| Ok(Some((id.to_owned(), dir, cache)));
        assert_eq!(choose(load(None), true), of("own", "/somewhere/own".into(), KvFormat::Q4));
        assert_eq!(choose(load(None), false), Ok(None), "another model has other words");
        let tiny = drafts_dir.path().join("tiny").canonicalize().unwrap();
        assert_eq!(choose(load(Some("tiny")), true), of("tiny", tiny, KvFormat::F16));
        assert_eq!(
            choose(load(Some("big")), false),
            of("big", "/models/big".into(), KvFormat::F16)
        );
        let bundled = resolve_model("demo-draft").unwrap();
        assert_eq!(
            choose(load(Some("demo-draft")), false),
            of("demo-draft", bundled, KvFormat::F16)
        );
        assert_eq!(choose(load(Some("absent")), true), Err(OpenError::NoDraft));
        assert_eq!(choose(load(Some("/etc")), true), Err(OpenError::NoDraft));
    }

    #[test]
    fn the_folder_of_drafts_is_not_part_of_the_models() {
        let (dir, models) = folder(&["a", "drafts/tiny", "drafts2/b"]);
        let inner = Folder { root: dir.path().join("drafts"), links: Links::Follow };
        let of = |folder| Drafts { usual: DraftLoad::default(), named: None, folder };
        let ids = |drafts: &Drafts| {
            let mut list = models.list();
            drafts.hide_in(&models, &mut list);
            let mut ids: Vec<String> = list.into_iter().map(|model| model.id).collect();
            ids.sort();
            ids
        };
        let drafts = of(Some(inner));
        assert_eq!(ids(&drafts), ["a", "drafts2/b"]);
        assert_eq!(drafts.list()[0].id, "tiny");
        let same = of(Some(Folder { root: dir.path().to_owned(), links: Links::Follow }));
        assert_eq!(ids(&same), ["a", "drafts/tiny", "drafts2/b"]);
        assert_eq!(ids(&of(None)).len(), 3);
    }
}
