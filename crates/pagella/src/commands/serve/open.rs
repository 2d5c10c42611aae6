//! Opening models for the server: from a name to the parts that the server knows.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pagella::{Engine, EngineBuilder, Error, KvFormat, Math, Place, RopeOverride};
use pagella_backend::{BackendError, PAGE_TOKENS};
use pagella_cuda::probe::Probe;
use pagella_engine::GeneratorOptions;
use pagella_formats::LinearKind;
use pagella_model::ModelError;
use pagella_server::{
    DevicePlan, KnownModel, LoadOptions, LoadStep, MemoryPlan, ModelFacts, ModelFile, ModelOpener,
    ModelParts, OpenError,
};

use super::embedding;
use super::folder::{self, Folder};
use super::rerank;
use crate::flags::{BatchFlags, ModelFlags};
use crate::machine;

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
    /// How prompts share a step.
    pub batch: BatchFlags,
    /// Models that share the memory.
    pub models_max: usize,
}

/// The name under which clients know a model: a hub id as it is, else the last part of its path.
pub fn model_id(model: &str, dir: &Path) -> String {
    let last = dir.file_name().and_then(|name| name.to_str());
    match model {
        _ if Path::new(model).exists() => last.unwrap_or(model).to_owned(),
        name => name.to_owned(),
    }
}

/// A model, and everything that was chosen for it.
struct Choice {
    dir: PathBuf,
    builder: EngineBuilder,
    cache: KvFormat,
    batch_max: usize,
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
        let batch_max = options.max_batch_size.or(self.batch.batch_max.map(usize::from));
        let batch_max = batch_max.unwrap_or(GeneratorOptions::default().batch_max);
        let choice = Choice { dir, builder, cache, batch_max };
        match stated {
            Some(_) => Ok(choice),
            None => {
                let dir = choice.dir.clone();
                choice.fill(self.models_max).map_err(|error| told(id, &dir, &error))
            }
        }
    }
}

impl ModelOpener for Opener {
    fn list(&self) -> Vec<KnownModel> {
        let mut models = self.folder.as_ref().map(Folder::list).unwrap_or_default();
        if let Some((id, dir)) = &self.named {
            models.retain(|model| model.id != *id);
            models.push(folder::describe(id.clone(), dir));
        }
        models.sort_by(|a, b| a.id.cmp(&b.id));
        models
    }

    fn find(&self, id: &str) -> Option<KnownModel> {
        self.dir(id).map(|(dir, _)| folder::describe(id.to_owned(), &dir))
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
        choice.plan().map_err(|error| told(id, &choice.dir, &error))
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
        let opened = choice.plan().and_then(|memory| {
            let engine = choice.builder.clone().open_with(&mut |at| {
                progress(LoadStep {
                    modules_done: at.modules_done,
                    modules_total: at.modules_total,
                    bytes_done: at.bytes_done,
                    bytes_total: at.bytes_total,
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
        opened.map_err(|error| told(id, &choice.dir, &error))
    }
}

impl Choice {
    /// With a cache that takes the memory that is left, as far as all sequences of a step could ever
    /// fill it, and holds one whole sequence in any case. On a CPU, which other programs share, it may
    /// grow to a quarter of what is free.
    fn fill(mut self, models: usize) -> Result<Self, Error> {
        let (place, spec) = (self.builder.place()?, self.builder.spec(&self.dir)?);
        let need = self.builder.predict_memory(&self.dir, &spec, place)?;
        let beside = need.peak_bytes(self.cache, 0);
        let room = match place {
            Place::Cpu => machine::available_bytes().unwrap_or(0).saturating_sub(beside) / 4,
            Place::Cuda(index) => {
                let mut probe = Probe::look();
                probe.measure_free();
                let free = probe.gpus().get(index).and_then(|gpu| gpu.free_bytes).unwrap_or(0);
                free.saturating_sub(beside + GPU_RESERVE_BYTES)
            }
        };
        let per_page = need.kv_bytes(self.cache, PAGE_TOKENS).max(1);
        let pages = room / models.max(1) as u64 / per_page;
        let least = self.builder.cache_tokens_for(&spec).max(spec.context.min(CONTEXT_LEAST));
        let most = spec.context.saturating_mul(self.batch_max).max(least);
        let tokens = usize::try_from(pages).unwrap_or(usize::MAX).saturating_mul(PAGE_TOKENS);
        self.builder = self.builder.cache_tokens(tokens.clamp(least, most));
        Ok(self)
    }

    fn plan(&self) -> Result<MemoryPlan, Error> {
        let (place, spec) = (self.builder.place()?, self.builder.spec(&self.dir)?);
        let need = self.builder.predict_memory(&self.dir, &spec, place)?;
        let tokens = self.builder.cache_tokens_for(&spec);
        let (weights_bytes, cache_bytes) =
            (need.report().weights_bytes, need.kv_bytes(self.cache, tokens));
        let peak = need.peak_bytes(self.cache, tokens);
        let other_bytes = peak.saturating_sub(weights_bytes).saturating_sub(cache_bytes);
        let device = match place {
            Place::Cpu => {
                let total_bytes = machine::Machine::look().memory_bytes.unwrap_or(u64::MAX);
                DevicePlan {
                    name: "cpu".to_owned(),
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
            quantization: main.map(|share| kind_name(share.kind).to_owned()),
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
        },
    })
}

/// How most weights are stored, in the words of model cards.
fn kind_name(kind: LinearKind) -> &'static str {
    match kind {
        LinearKind::Exl2 => "exl2",
        LinearKind::Gptq => "gptq",
        LinearKind::Plain => "none",
    }
}

/// An error in words that clients may read: the model by its name, not by its place.
fn told(id: &str, dir: &Path, error: &Error) -> OpenError {
    let message = error.to_string().replace(&dir.display().to_string(), id);
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
        (Error::Engine(_) | Error::ModelFile { .. }, _) => OpenError::Failed(message),
        _ => OpenError::Refused { option: None, message },
    }
}
