//! From choices to an engine: tokenizer and template beside the weights, then everything together.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use pagella_arch::ModelSpec;
use pagella_engine::{DraftModel, Vocabularies};
use pagella_model::{BoundAdapter, LoadProgress, ProgressFn};
use pagella_text::Tokenizer;

use super::{EngineBuilder, LoadedDraft, LoadedModel, NamedAdapter};
use crate::engine::TextParts;
use crate::identity::ModelIdentity;
use crate::open_machine::OpenMachine;
use crate::{Engine, Error, Place};

/// A model with what else is known when its weights are there.
type WeightParts = (OpenMachine, Vec<NamedAdapter>, LoadedModel);

/// Everything that was read.
struct Opened {
    text: TextParts,
    adapters: Vec<NamedAdapter>,
    model: LoadedModel,
    draft: Option<LoadedDraft>,
}

impl EngineBuilder {
    /// Loads model, tokenizer and template.
    pub fn open(self) -> Result<Engine, Error> {
        self.open_with(&mut |_| ControlFlow::Continue(()))
    }

    /// Loads model, tokenizer and template, reporting progress.
    pub fn open_with(self, progress: &mut ProgressFn<'_>) -> Result<Engine, Error> {
        let dir = self.dir()?;
        let place = self.place()?;
        // Where devices are planned, the draft model is placed with its model, by tokenizers that are known.
        let opened = match self.is_placed() {
            true => self.read_in_turn(&dir, place, progress)?,
            false => self.read_beside(&dir, place, progress)?,
        };
        let Opened { text, adapters, model, draft } = opened;
        let arithmetic = match place {
            Place::Cpu => format!("cpu, {} math", self.math.unwrap_or(self.default_math).name()),
            Place::Cuda(_) => model.device.clone(),
        };
        let identity = ModelIdentity::new(&dir, model.forward.spec(), &arithmetic);
        let engine = Engine::assemble(dir, (model, draft), text, self.generator, identity)?;
        let mut defaults = Vec::new();
        for (name, bound, scale) in adapters {
            defaults.push((engine.worker().add_adapter(&name, bound)?, scale));
        }
        engine.set_default_adapters(defaults)?;
        Ok(engine)
    }

    fn read_in_turn(
        &self,
        dir: &Path,
        place: Place,
        progress: &mut ProgressFn<'_>,
    ) -> Result<Opened, Error> {
        let text = TextParts::read(dir)?;
        let adapters = self.bind_adapters(&self.spec(dir)?)?;
        let (model, draft) = self.load_pair(dir, place, &adapters, text.tokenizer(), progress)?;
        Ok(Opened { text, adapters, model, draft })
    }

    /// Tokenizer and template on a thread of their own, beside the weights; what is wrong with them ends
    /// the loading of weights.
    fn read_beside(
        &self,
        dir: &Path,
        place: Place,
        progress: &mut ProgressFn<'_>,
    ) -> Result<Opened, Error> {
        let failed = AtomicBool::new(false);
        let read = || {
            let parts = TextParts::read(dir);
            failed.store(parts.is_err(), Ordering::Relaxed);
            parts
        };
        let (text, weights) = std::thread::scope(|scope| {
            let text = scope.spawn(read);
            let mut report = |loaded: &LoadProgress<'_>| match failed.load(Ordering::Relaxed) {
                true => ControlFlow::Break(()),
                false => progress(loaded),
            };
            let weights = self.load_weights(dir, place, &mut report);
            (text.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), weights)
        });
        // What is wrong with the text's side is told first: it is found out first, too.
        let text = text?;
        let (machine, adapters, model) = weights?;
        let draft = self.load_draft(&model, text.tokenizer(), &machine, progress)?;
        Ok(Opened { text, adapters, model, draft })
    }

    fn load_weights(
        &self,
        dir: &Path,
        place: Place,
        progress: &mut ProgressFn<'_>,
    ) -> Result<WeightParts, Error> {
        // What is wrong with an adapter is known before weights are read.
        let bound = self.bind_adapters(&self.spec(dir)?)?;
        let machine = self.machine(place)?;
        let loaded = self.load_from(dir, &machine, progress)?;
        Ok((machine, bound, loaded))
    }

    fn load_draft(
        &self,
        loaded: &LoadedModel,
        tokenizer: &Tokenizer,
        machine: &OpenMachine,
        progress: &mut ProgressFn<'_>,
    ) -> Result<Option<LoadedDraft>, Error> {
        let Some(builder) = self.draft_builder(loaded.cache_tokens) else { return Ok(None) };
        let dir = builder.dir()?;
        let own = Tokenizer::from_dir(&dir)?;
        // What does not fit is known before weights are read.
        Vocabularies::new(&own, tokenizer)?;
        let LoadedModel { forward, memory, .. } = builder.load_from(&dir, machine, progress)?;
        let model = DraftModel::new(forward, &own, tokenizer)?;
        Ok(Some(LoadedDraft { model, memory, dir }))
    }

    fn load_pair(
        &self,
        dir: &Path,
        place: Place,
        adapters: &[NamedAdapter],
        tokenizer: &Tokenizer,
        progress: &mut ProgressFn<'_>,
    ) -> Result<(LoadedModel, Option<LoadedDraft>), Error> {
        if self.is_placed() && place == Place::Cpu {
            let spec = self.spec(dir)?;
            let placing = self.placing(dir, &spec, adapters, self.logit_rows_max(place))?;
            return self.load_placed(dir, placing, progress, &mut |loaded, cpu, progress| {
                self.load_draft(loaded, tokenizer, &OpenMachine::Cpu(cpu), progress)
            });
        }
        let machine = self.machine(place)?;
        let loaded = self.load_from(dir, &machine, progress)?;
        let draft = self.load_draft(&loaded, tokenizer, &machine, progress)?;
        Ok((loaded, draft))
    }

    /// Loads the model and the one that drafts for it, if there is one, with the model's tokenizer, for
    /// programs that have a generator of their own.
    pub fn load_drafting(
        self,
        progress: &mut ProgressFn<'_>,
    ) -> Result<(LoadedModel, Option<DraftModel>, Tokenizer), Error> {
        let dir = self.dir()?;
        let tokenizer = Tokenizer::from_dir(&dir)?;
        let (loaded, draft) = self.load_pair(&dir, self.place()?, &[], &tokenizer, progress)?;
        Ok((loaded, draft.map(|draft| draft.model), tokenizer))
    }

    /// The adapters with their names and scales.
    pub(crate) fn bind_adapters(&self, spec: &ModelSpec) -> Result<Vec<NamedAdapter>, Error> {
        let bind = |(index, (dir, scale)): (usize, &(PathBuf, f32))| {
            Ok((adapter_name(dir, index), BoundAdapter::open(dir, spec)?, *scale))
        };
        self.adapters.iter().enumerate().map(bind).collect()
    }
}

/// The name of an adapter that has none: the last part of its path, with a number from the second on.
fn adapter_name(dir: &Path, index: usize) -> String {
    let last = dir.file_name().map_or_else(|| "adapter".into(), |name| name.to_string_lossy());
    if index == 0 { last.into_owned() } else { format!("{last}#{}", index + 1) }
}
