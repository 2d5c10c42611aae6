//! Opening models for the server: from a name to the parts that the server knows.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pagella::{
    Engine, EngineBuilder, Error, KvFormat, Math, MemoryNeed, Place, PlacedPart, RopeOverride,
    Split, UnknownName,
};
use pagella_arch::ModelSpec;
use pagella_backend::{BackendError, PAGE_TOKENS};
use pagella_cuda::probe::Probe;
use pagella_engine::GeneratorOptions;
use pagella_model::ModelError;
use pagella_server::{
    AdapterLoad, DevicePlan, KnownModel, LoadOptions, LoadStep, MemoryPlan, ModelFacts, ModelFile,
    ModelOpener, ModelParts, OpenError, OperatorAdapter,
};

use super::draft::{DraftChoice, Drafts};
use super::embedding;
use super::folder::{self, Folder};
use super::rerank;
use crate::commands::inspect::weight_file_bytes;
use crate::flags::{AdapterFlags, BatchFlags, ModelFlags};
use crate::{machine, output};

/// Memory of a device that stays free beside a cache that fills it: for its other users, such as a
/// screen, and for what was predicted a little too small.
const GPU_RESERVE_BYTES: u64 = 512 << 20;
/// A longer context need not fit the cache as a whole.
const CONTEXT_LEAST: usize = 32 * 1024;

/// How long the thread of an engine that is not wanted may take to end.
const ENGINE_END: Duration = Duration::from_secs(30);

/// Opens the model of the command line and those of a folder.
pub struct Opener {
    /// The name and the directory of the model of the command line.
    pub named: Option<(String, PathBuf)>,
    /// The folder of models.
    pub folder: Option<Folder>,
    /// How the model of the command line is opened; of these, what concerns the machine holds for all.
    pub model_flags: ModelFlags,
    /// Adapters of the model of the command line.
    pub adapters: AdapterFlags,
    /// Folder of adapters that are asked for by name.
    pub adapter_dir: PathBuf,
    /// Most bytes of all adapters of a model.
    pub adapter_bytes_max: u64,
    /// How prompts share a step.
    pub batch: BatchFlags,
    /// Models that share the memory.
    pub models_max: usize,
    /// Models that guess for others.
    pub drafts: Drafts,
    /// Plans for several devices are written to standard error.
    pub shows_plans: bool,
}

/// The name under which clients know a model: a hub id as it is, else the last part of its path.
pub fn model_id(model: &str, dir: &Path) -> String {
    let last = dir.file_name().and_then(|name| name.to_str());
    match model {
        _ if Path::new(model).exists() => last.unwrap_or(model).to_owned(),
        name => name.to_owned(),
    }
}

/// The adapters of the command line under the last parts of their paths, with a number where that is
/// taken.
fn operator_adapters(all: &[(PathBuf, f32)]) -> Vec<OperatorAdapter> {
    let mut named: Vec<OperatorAdapter> = Vec::new();
    for (dir, scaling) in all {
        let dir = dir.canonicalize().unwrap_or_else(|_| dir.clone());
        let last = dir.file_name().map_or_else(|| "adapter".into(), |name| name.to_string_lossy());
        let is_free = |name: &String| named.iter().all(|other| other.name != *name);
        let mut numbered = (2..).map(|number| format!("{last}-{number}"));
        let first = Some(last.to_string()).filter(is_free);
        let name = first.or_else(|| numbered.find(is_free)).unwrap_or_default();
        named.push(OperatorAdapter { name, dir, scaling: *scaling });
    }
    named
}

/// A builder that cuts the model as a load says.
fn split(builder: EngineBuilder, options: &LoadOptions) -> Result<EngineBuilder, OpenError> {
    let refused = |option, problem: UnknownName| OpenError::Refused {
        option: Some(option),
        message: format!("{option}: {problem}"),
    };
    let shares = Split::shares_of_gb(&options.gpu_split);
    let shares = shares.map_err(|problem| refused("gpu_split", problem))?;
    let reserves = Split::reserves_of_mb(&options.autosplit_reserve);
    let reserves = reserves.map_err(|problem| refused("autosplit_reserve", problem))?;
    let builder = builder.with_split(|split| {
        if !shares.is_empty() {
            split.shares = shares;
        }
        if !reserves.is_empty() {
            split.reserves = reserves;
        }
        split.tensor_parallel = options.tensor_parallel.unwrap_or(split.tensor_parallel);
    });
    match builder.split_problem() {
        Some((name, message)) => {
            let option = Some(if name == "reserve_vram" { "autosplit_reserve" } else { name });
            Err(OpenError::Refused { option, message })
        }
        None => Ok(builder),
    }
}

/// A model, and everything that was chosen for it.
struct Choice {
    dir: PathBuf,
    builder: EngineBuilder,
    cache: KvFormat,
    batch_max: usize,
    draft: DraftChoice,
    /// Of the adapters that are loaded with it.
    adapter_bytes: u64,
}

/// What a model, its draft model and its adapters will need.
struct Needs {
    model: (MemoryNeed, KvFormat),
    draft: Option<(MemoryNeed, KvFormat)>,
    adapter_bytes: u64,
    /// Most rows of logits of a step of either.
    logit_rows: usize,
}

impl Needs {
    fn sum(&self, bytes: impl Fn(&MemoryNeed, KvFormat) -> u64) -> u64 {
        let all = std::iter::once(&self.model).chain(&self.draft);
        all.map(|(need, format)| bytes(need, *format)).fold(0, u64::saturating_add)
    }

    fn weights_bytes(&self) -> u64 {
        self.adapter_bytes + self.sum(|need, _| need.report().weights_bytes)
    }

    /// Of both caches: every page of the model's has one of the draft model's beside it.
    fn kv_bytes(&self, tokens: usize) -> u64 {
        self.sum(|need, format| need.kv_bytes(format, tokens))
    }

    fn peak_bytes(&self, tokens: usize) -> u64 {
        let models = self.sum(|need, format| {
            need.peak_bytes(format, tokens) + need.more_logits_bytes(self.logit_rows)
        });
        models + self.adapter_bytes
    }
}

impl Opener {
    /// The directory of a model, and whether it is the one of the command line.
    fn dir(&self, id: &str) -> Option<(PathBuf, bool)> {
        if let Some((_, dir)) = self.named.as_ref().filter(|(name, _)| name == id) {
            return Some((dir.clone(), true));
        }
        self.folder.as_ref()?.find(id).map(|dir| (dir, false))
    }

    fn choice(&self, id: &str, options: &LoadOptions) -> Result<Choice, OpenError> {
        let (dir, is_named) = self.dir(id).ok_or(OpenError::NotFound)?;
        let flags = match is_named {
            true => self.model_flags.clone(),
            false => self.model_flags.of_the_machine(),
        };
        let cache = options.cache_mode.unwrap_or(flags.cache_or(KvFormat::F16));
        let model = dir.to_str().ok_or(OpenError::NotFound)?;
        let mut builder = self.batch.apply(flags.builder(model, Math::Wide)).cache(cache);
        builder = builder.adapter_bytes_max(self.adapter_bytes_max);
        if let Some(tokens) = options.max_seq_len {
            builder = builder.context(tokens);
        }
        let stated = options.cache_size.or(flags.cache_tokens);
        if let Some(tokens) = options.cache_size {
            builder = builder.cache_tokens(tokens);
        }
        if let Some(tokens) = options.chunk_size {
            builder = builder.step_tokens(tokens);
        }
        if let Some(rows) = options.max_batch_size {
            builder = builder.batch_max(rows);
        }
        let scale = options.rope_scale.map(RopeOverride::Linear);
        if let Some(rope) = scale.or(options.rope_alpha.map(RopeOverride::NtkAlpha)) {
            builder = builder.rope(rope);
        }
        if options.ignore_unused_tensors {
            builder = builder.ignore_unused_tensors();
        }
        builder = split(builder, options)?;
        let batch_max = options.max_batch_size.or(self.batch.batch_max.map(usize::from));
        let batch_max = batch_max.unwrap_or(GeneratorOptions::default().batch_max);
        let models = |name: &str| self.dir(name).map(|(dir, _)| dir);
        let draft = self.drafts.choose(&options.draft, is_named, cache, models)?;
        let builder = draft.apply(builder);
        let adapter_bytes = self.adapter_bytes(id, options);
        let builder = builder.later_adapter_bytes(adapter_bytes);
        let mut choice = Choice { dir, builder, cache, batch_max, draft, adapter_bytes };
        if stated.is_none() {
            choice.fill(self.models_max).map_err(|error| choice.told(id, &error))?;
        }
        Ok(choice)
    }
}

impl Opener {
    /// Bytes of the adapters that are loaded with a model, as their files have them. What cannot be read
    /// is said when it is loaded.
    fn adapter_bytes(&self, id: &str, options: &LoadOptions) -> u64 {
        let own = self.adapters(id).unwrap_or_default();
        let dir_of = |load: &AdapterLoad| {
            let own = own.iter().find(|adapter| adapter.name == load.name);
            own.map_or_else(|| self.adapter_dir.join(load.folder()), |own| own.dir.clone())
        };
        let dirs: Vec<PathBuf> = match &options.adapters {
            Some(loads) => loads.iter().map(dir_of).collect(),
            None => own.iter().map(|adapter| adapter.dir.clone()).collect(),
        };
        dirs.iter().map(|dir| weight_file_bytes(dir)).sum()
    }
}

impl ModelOpener for Opener {
    fn list(&self) -> Vec<KnownModel> {
        let mut models = self.folder.as_ref().map(Folder::list).unwrap_or_default();
        if let Some(folder) = &self.folder {
            self.drafts.hide_in(folder, &mut models);
        }
        if let Some((id, dir)) = &self.named {
            models.retain(|model| model.id != *id);
            models.push(folder::describe(id.clone(), dir));
        }
        models.sort_by(|a, b| a.id.cmp(&b.id));
        models
    }

    fn list_drafts(&self) -> Vec<KnownModel> {
        self.drafts.list()
    }

    fn find(&self, id: &str) -> Option<KnownModel> {
        self.dir(id).map(|(dir, _)| folder::describe(id.to_owned(), &dir))
    }

    fn adapters(&self, id: &str) -> Option<Vec<OperatorAdapter>> {
        let (name, _) = self.named.as_ref()?;
        (name == id).then(|| operator_adapters(self.adapters.all()))
    }

    fn model_file(&self, id: &str) -> Result<Option<ModelFile>, OpenError> {
        match (self.dir(id), &self.folder) {
            (Some((dir, false)), Some(folder)) => folder.model_file(&dir),
            // What the command line says of its own model is not for its folder to change.
            _ => Ok(None),
        }
    }

    fn trust(&self, digest: &str) -> Result<(), OpenError> {
        self.folder.as_ref().map_or(Ok(()), |folder| folder.trust(digest))
    }

    fn plan(&self, id: &str, options: &LoadOptions) -> Result<MemoryPlan, OpenError> {
        let choice = self.choice(id, options)?;
        // Words that do not fit are known before another model goes for this one.
        let checked = choice.draft.check_vocabulary(&choice.dir);
        checked.and_then(|()| choice.plan()).map_err(|error| choice.told(id, &error))
    }

    fn device_is_lost(&self, id: &str, options: &LoadOptions) -> bool {
        let place = self.choice(id, options).ok().and_then(|choice| choice.builder.place().ok());
        matches!(place, Some(Place::Cuda(index)) if Probe::look().is_lost(index))
    }

    fn open(
        &self,
        id: &str,
        options: &LoadOptions,
        progress: &mut dyn FnMut(LoadStep) -> ControlFlow<()>,
    ) -> Result<ModelParts, OpenError> {
        let choice = self.choice(id, options)?;
        if let (true, Ok(Some(plan))) = (self.shows_plans, choice.builder.placement()) {
            output::note(output::placement(&plan).trim_end());
        }
        let opened = choice.plan().and_then(|memory| {
            let mut model_done = false;
            let engine = choice.builder.clone().open_with(&mut |at| {
                let of_draft = model_done;
                model_done |= at.modules_done == at.modules_total;
                progress(LoadStep {
                    modules_done: at.modules_done,
                    modules_total: at.modules_total,
                    bytes_done: at.bytes_done,
                    bytes_total: at.bytes_total,
                    of_draft,
                })
            })?;
            let vitals = engine.worker().vitals().clone();
            let parts = parts(&engine, id, options, &choice, memory);
            drop(engine);
            if parts.is_err() {
                // Its memory is returned when its thread is over.
                vitals.wait_over(ENGINE_END);
            }
            parts
        });
        opened.map_err(|error| choice.told(id, &error))
    }
}

impl Choice {
    /// With a cache that takes the memory that is left, as far as all sequences of a step could ever
    /// fill it, and holds one whole sequence in any case. On a CPU, which other programs share, it may
    /// grow to a quarter of what is free.
    fn fill(&mut self, models: usize) -> Result<(), Error> {
        let (place, spec) = (self.builder.place()?, self.builder.spec(&self.dir)?);
        if self.is_placed()? {
            // The plan says how long the cache is.
            let most = spec.context.saturating_mul(self.batch_max);
            self.builder = self.builder.clone().cache_tokens_most(most);
            return Ok(());
        }
        let needs = self.needs(&spec, place)?;
        let beside = needs.peak_bytes(0);
        let room = match place {
            Place::Cpu => machine::available_bytes().unwrap_or(0).saturating_sub(beside) / 4,
            Place::Cuda(index) => {
                let mut probe = Probe::look();
                probe.measure_free();
                let free = probe.gpus().get(index).and_then(|gpu| gpu.free_bytes).unwrap_or(0);
                free.saturating_sub(beside + GPU_RESERVE_BYTES)
            }
        };
        let per_page = needs.kv_bytes(PAGE_TOKENS).max(1);
        let pages = room / models.max(1) as u64 / per_page;
        let least = self.builder.cache_tokens_for(&spec).max(spec.context.min(CONTEXT_LEAST));
        let most = spec.context.saturating_mul(self.batch_max).max(least);
        let tokens = usize::try_from(pages).unwrap_or(usize::MAX).saturating_mul(PAGE_TOKENS);
        self.builder = self.builder.clone().cache_tokens(tokens.clamp(least, most));
        Ok(())
    }

    /// Whether the model is cut over devices by a plan.
    fn is_placed(&self) -> Result<bool, Error> {
        Ok(self.builder.is_placed() && self.builder.place()? == Place::Cpu)
    }

    fn needs(&self, spec: &ModelSpec, place: Place) -> Result<Needs, Error> {
        let need = self.builder.predict_memory(&self.dir, spec, place)?;
        let draft = self.draft.memory(&self.builder, place)?;
        let (adapter_bytes, logit_rows) = (self.adapter_bytes, self.builder.logit_rows_max(place));
        Ok(Needs { model: (need, self.cache), draft, adapter_bytes, logit_rows })
    }

    fn plan(&self) -> Result<MemoryPlan, Error> {
        if let Some(placement) = self.builder.placement()? {
            let device = |part: PlacedPart| DevicePlan {
                parts: Some(part.words()),
                total_bytes: part.free_bytes,
                available_bytes: part.free_bytes,
                held_bytes: part.weights_bytes,
                weights_bytes: part.weights_bytes,
                cache_bytes: part.cache_bytes,
                other_bytes: part.scratch_bytes,
                name: part.name,
            };
            return Ok(MemoryPlan { devices: placement.parts.into_iter().map(device).collect() });
        }
        let (place, spec) = (self.builder.place()?, self.builder.spec(&self.dir)?);
        let needs = self.needs(&spec, place)?;
        let tokens = self.builder.cache_tokens_for(&spec);
        let (weights_bytes, cache_bytes) = (needs.weights_bytes(), needs.kv_bytes(tokens));
        let peak = needs.peak_bytes(tokens);
        let other_bytes = peak.saturating_sub(weights_bytes).saturating_sub(cache_bytes);
        let device = match place {
            Place::Cpu => {
                let total_bytes = machine::Machine::look().memory_bytes.unwrap_or(u64::MAX);
                DevicePlan {
                    name: "cpu".to_owned(),
                    parts: None,
                    total_bytes,
                    available_bytes: machine::available_bytes().unwrap_or(total_bytes),
                    // The cache takes memory as it fills.
                    held_bytes: weights_bytes,
                    weights_bytes,
                    cache_bytes,
                    other_bytes,
                }
            }
            Place::Cuda(index) => {
                let mut probe = Probe::look();
                probe.measure_free();
                let gpu = probe.gpus().get(index);
                let total_bytes = gpu.map_or(u64::MAX, |gpu| gpu.memory_bytes);
                DevicePlan {
                    name: format!("cuda:{index}"),
                    parts: None,
                    total_bytes,
                    available_bytes: gpu.and_then(|gpu| gpu.free_bytes).unwrap_or(total_bytes),
                    held_bytes: peak,
                    weights_bytes,
                    cache_bytes,
                    other_bytes,
                }
            }
        };
        Ok(MemoryPlan { devices: vec![device] })
    }

    /// An error in words that clients may read: models by their names, not by their places.
    fn told(&self, id: &str, error: &Error) -> OpenError {
        let mut message = error.to_string();
        let mut option = None;
        // The folder of a draft model may be within that of its model.
        if let Some(draft) = &self.draft.model {
            let dir = draft.dir.display().to_string();
            if matches!(error, Error::Draft(_)) || message.contains(&dir) {
                message = message.replace(&dir, &draft.id);
                option = Some("draft_model.draft_model_name");
            }
        }
        told(message.replace(&self.dir.display().to_string(), id), option, error)
    }
}

fn parts(
    engine: &Engine,
    id: &str,
    options: &LoadOptions,
    choice: &Choice,
    memory: MemoryPlan,
) -> Result<ModelParts, Error> {
    let facts = engine.facts();
    let kinds = facts.memory.kinds.iter();
    let main = kinds.max_by_key(|kind| kind.share.params);
    let chunk_tokens = choice.builder.load_options(choice.builder.place()?).step_tokens_max;
    Ok(ModelParts {
        id: id.to_owned(),
        model: engine.model().clone(),
        facts: ModelFacts {
            cache_tokens: facts.cache_tokens,
            cache_mode: facts.cache.name().to_owned(),
            chunk_tokens,
            batch_max: choice.batch_max.min(chunk_tokens),
            rope_scale: options.rope_scale,
            rope_alpha: options.rope_alpha,
            device: facts.device.clone(),
            quantization: main.map(|share| share.kind.format().id.to_owned()),
            bits_per_weight: Some(facts.memory.layers.bits_per_weight()),
            weight_bytes: Some(facts.memory.weights_bytes),
            memory,
            warnings: facts.warnings.clone(),
            created: folder::created(&facts.dir),
            fingerprint: engine.fingerprint()?,
            embedding: embedding::read(&facts.dir),
            rerank: rerank::read(&facts.dir),
            family: Some(facts.family.to_owned()),
            parameters: Some(facts.memory.kinds.iter().map(|kind| kind.share.params).sum()),
            draft: choice.draft.facts(facts.draft.as_ref()),
        },
    })
}

/// What clients are told of an error.
fn told(message: String, option: Option<&'static str>, error: &Error) -> OpenError {
    let backend = match error {
        Error::Backend(error) => Some(error),
        Error::Model(error) => match &**error {
            ModelError::Backend(error) => Some(error),
            ModelError::Cancelled => return OpenError::Cancelled,
            _ => None,
        },
        _ => None,
    };
    match (error, backend) {
        (_, Some(BackendError::OutOfMemory { .. })) => OpenError::OutOfMemory(message),
        (_, Some(BackendError::Device { .. } | BackendError::Worker { .. })) => {
            OpenError::Failed(message)
        }
        (Error::Engine(error), _) if error.is_out_of_memory() => OpenError::OutOfMemory(message),
        (Error::NoRoom { .. }, _) => OpenError::OutOfMemory(message),
        (Error::Engine(_) | Error::ModelFile { .. }, _) => OpenError::Failed(message),
        _ => OpenError::Refused { option, message },
    }
}
