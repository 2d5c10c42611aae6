//! Opening a model: every choice with its default, then loading.

mod open;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use pagella_arch::{ArchError, ModelSpec, RopeOverride, SpecOptions, load_spec, spec_from_json};
use pagella_backend::{Backend, KvFormat, PAGE_TOKENS};
use pagella_cpu::{CpuBackend, CpuOptions, Isa};
use pagella_cuda::probe::Probe;
use pagella_cuda::{CudaBackend, CudaOptions};
use pagella_engine::{
    DraftDepth, DraftModel, DraftOptions, Forward, GeneratorOptions, ModelWithCache, Reserve,
};
use pagella_model::{
    BoundAdapter, LoadOptions, MemoryReport, Model, ProgressFn, SyntheticWeights, synthetic,
};

use crate::open_machine::OpenMachine;
use crate::{CudaLayout, Devices, Error, Math, MemoryNeed, Place, Placement, Split, resolve_model};

/// Tokens of the cache when nobody says how many: enough for long conversations or a few short ones
/// at once, and small next to the weights.
pub const DEFAULT_CACHE_TOKENS: usize = 8192;

/// Most prompt tokens per step on CUDA when nobody says how many.
const CUDA_STEP_TOKENS: usize = 2048;

/// The same, where memory is short.
const LOW_MEMORY_CUDA_STEP_TOKENS: usize = 512;
/// Most prompt tokens per step on a CPU, where memory is short.
const LOW_MEMORY_CPU_STEP_TOKENS: usize = 128;
/// Most weights that CUDA unpacks at once, where memory is short: 64 MiB.
const LOW_MEMORY_DEQUANTISED_MAX: usize = 32 << 20;

/// How a model is opened; made by [`Engine::builder`](crate::Engine::builder).
#[derive(Clone, Debug)]
pub struct EngineBuilder {
    model: OsString,
    pub(crate) devices: Devices,
    pub(crate) split: Split,
    threads: Option<usize>,
    isa: Option<Isa>,
    /// What was chosen; `None`: `default_math`.
    math: Option<Math>,
    default_math: Math,
    pub(crate) cache: KvFormat,
    cache_tokens: Option<usize>,
    /// Most tokens of a cache that takes what is left.
    pub(crate) cache_tokens_most: Option<usize>,
    /// Of adapters that are loaded later.
    pub(crate) later_adapter_bytes: u64,
    context: Option<usize>,
    step_tokens: Option<usize>,
    dequantised_max: Option<usize>,
    low_memory: bool,
    rope: Option<RopeOverride>,
    assume_llama: bool,
    ignore_unused_tensors: bool,
    draft: Option<OsString>,
    draft_cache: Option<KvFormat>,
    draft_rope: Option<RopeOverride>,
    /// A draft model does not change how many ids are guessed.
    states_draft_depth: bool,
    generator: GeneratorOptions,
    /// Directories of adapters, with their scales.
    adapters: Vec<(PathBuf, f32)>,
}

/// A model with an empty cache, before a tokenizer comes in.
pub struct LoadedModel {
    /// The model and its cache.
    pub forward: Box<dyn Forward>,
    /// What the weights take.
    pub memory: MemoryReport,
    /// Device, instruction set, threads and arithmetic, for people.
    pub device: String,
    /// Encoding of the cache.
    pub cache: KvFormat,
    /// Tokens in the cache.
    pub cache_tokens: usize,
    /// The plan by which it was loaded, if it was placed.
    pub placement: Option<Placement>,
}

/// An adapter with its name and its scale.
pub(crate) type NamedAdapter = (String, BoundAdapter, f32);

/// A draft model, ready to guess.
pub(crate) struct LoadedDraft {
    pub model: DraftModel,
    /// What its weights take.
    pub memory: MemoryReport,
    pub dir: PathBuf,
}

impl EngineBuilder {
    pub(crate) fn new(model: OsString) -> Self {
        EngineBuilder {
            model,
            devices: Devices::default(),
            split: Split::default(),
            threads: None,
            isa: None,
            math: None,
            default_math: Math::default(),
            cache: KvFormat::F16,
            cache_tokens: None,
            cache_tokens_most: None,
            later_adapter_bytes: 0,
            context: None,
            step_tokens: None,
            dequantised_max: None,
            low_memory: false,
            rope: None,
            assume_llama: false,
            ignore_unused_tensors: false,
            draft: None,
            draft_cache: None,
            draft_rope: None,
            states_draft_depth: false,
            generator: GeneratorOptions::default(),
            adapters: Vec::new(),
        }
    }

    /// Where to run: one device, or several in the order in which they take layers; the best device
    /// there is unless stated.
    pub fn device(mut self, devices: impl Into<Devices>) -> Self {
        self.devices = devices.into();
        self
    }

    /// How the model is cut over its devices; by what is free there unless stated.
    pub fn split(mut self, split: Split) -> Self {
        self.split = split;
        self
    }

    /// Changes how the model is cut over its devices.
    pub fn with_split(mut self, change: impl FnOnce(&mut Split)) -> Self {
        change(&mut self.split);
        self
    }

    /// Bytes that adapters will take which are loaded later; none unless stated. Only plans for
    /// several devices ask for it.
    pub fn later_adapter_bytes(mut self, bytes: u64) -> Self {
        self.later_adapter_bytes = bytes;
        self
    }

    /// Threads on the CPU, at most one per CPU; one per physical core unless stated.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Vector code on the CPU; the best this machine has unless stated. Results are the same.
    pub fn isa(mut self, isa: Isa) -> Self {
        self.isa = Some(isa);
        self
    }

    /// How the CPU computes; [`Math::Wide`] unless stated.
    pub fn math(mut self, math: Math) -> Self {
        self.math = Some(math);
        self
    }

    /// How the CPU computes where nothing else was stated.
    pub fn default_math(mut self, math: Math) -> Self {
        self.default_math = math;
        self
    }

    /// How keys and values are stored; as f16 unless stated.
    pub fn cache(mut self, format: KvFormat) -> Self {
        self.cache = format;
        self
    }

    /// Tokens in the cache, which all jobs share; [`DEFAULT_CACHE_TOKENS`], or the context where
    /// that was stated and is more, unless stated; rounded up to whole pages of 256. Memory is taken as
    /// the cache fills.
    pub fn cache_tokens(mut self, tokens: usize) -> Self {
        self.cache_tokens = Some(tokens);
        self
    }

    /// Most tokens of a cache that takes what several devices have left; one whole context unless
    /// stated.
    pub fn cache_tokens_most(mut self, tokens: usize) -> Self {
        self.cache_tokens_most = Some(tokens);
        self
    }

    /// Longest sequence; the model's own, or the cache if that is smaller, unless stated.
    pub fn context(mut self, tokens: usize) -> Self {
        self.context = Some(tokens);
        self
    }

    /// Most prompt tokens computed in one step; sizes the scratch memory. 512 on the CPU and 2048 on
    /// CUDA unless stated.
    pub fn step_tokens(mut self, tokens: usize) -> Self {
        self.step_tokens = Some(tokens);
        self
    }

    /// Most weights that CUDA unpacks at once to compute long prompts, two bytes each; 512 Mi unless
    /// stated. Fewer take less memory and a little more time; results are the same.
    pub fn dequantised_max(mut self, elements: usize) -> Self {
        self.dequantised_max = Some(elements);
        self
    }

    /// Prefers little memory to speed, in everything that was not stated: long prompts are computed in
    /// shorter steps and, on CUDA, with fewer weights unpacked at once; there the embedding stays in
    /// host memory.
    pub fn low_memory(mut self) -> Self {
        self.low_memory = true;
        self
    }

    /// Scaling of positions in place of the model's own.
    pub fn rope(mut self, rope: RopeOverride) -> Self {
        self.rope = Some(rope);
        self
    }

    /// Most sequences computed in one step; 256 unless stated.
    pub fn batch_max(mut self, rows: usize) -> Self {
        self.generator.batch_max = rows;
        self
    }

    /// Most prompt tokens of one sequence in one step; no limit of its own unless stated.
    pub fn chunk_tokens(mut self, tokens: usize) -> Self {
        self.generator.chunk_tokens = Some(tokens);
        self
    }

    /// Most prompt tokens in a step in which others write: lower for smoother streams, higher for
    /// earlier first tokens. No limit of its own unless stated.
    pub fn prefill_tokens_while_decoding(mut self, tokens: usize) -> Self {
        self.generator.prefill_tokens_while_decoding = Some(tokens);
        self
    }

    /// Whether a job takes all its pages when it starts, or as it grows; as it grows unless stated.
    pub fn reserve(mut self, reserve: Reserve) -> Self {
        self.generator.reserve = reserve;
        self
    }

    /// Most jobs that may wait; 4096 unless stated.
    pub fn queue_max(mut self, jobs: usize) -> Self {
        self.generator.queue_max = jobs;
        self
    }

    /// Puts the pages of the cache in order whenever nothing else is to be done. No result depends
    /// on it.
    pub fn defragment(mut self) -> Self {
        self.generator.defragment = true;
        self
    }

    /// Fewest common tokens for which part of a page is copied instead of computed; 16 unless
    /// stated.
    pub fn copy_tokens_min(mut self, tokens: usize) -> Self {
        self.generator.copy_tokens_min = tokens;
        self
    }

    /// Threads that choose tokens and compute what constraints allow; one per core, at most 16,
    /// unless stated.
    pub fn host_threads(mut self, threads: usize) -> Self {
        self.generator.host_threads = Some(threads);
        self
    }

    /// A small model that guesses what this one will write, so that it can check several ids in one
    /// step: a directory, a hub id in the local cache, or `demo-draft`. Texts are the same as without.
    /// [`draft_depth`](Self::draft_depth) says how many ids are guessed.
    pub fn draft(mut self, model: impl Into<OsString>) -> Self {
        self.draft = Some(model.into());
        if !self.states_draft_depth {
            self.generator.draft.depth = DraftDepth::Adaptive;
        }
        self
    }

    /// How the draft model stores keys and values; as this model does unless stated.
    pub fn draft_cache(mut self, format: KvFormat) -> Self {
        self.draft_cache = Some(format);
        self
    }

    /// Scaling of the draft model's positions in place of its own.
    pub fn draft_rope(mut self, rope: RopeOverride) -> Self {
        self.draft_rope = Some(rope);
        self
    }

    /// How many ids are guessed, by a draft model or from texts that were seen, and checked together;
    /// none unless stated, or as many as pay where there is a draft model.
    pub fn draft_depth(mut self, depth: DraftDepth) -> Self {
        self.generator.draft.depth = depth;
        self.states_draft_depth = true;
        self
    }

    /// Everything about guesses, their number included.
    pub fn draft_options(mut self, options: DraftOptions) -> Self {
        self.generator.draft = options;
        self.states_draft_depth = true;
        self
    }

    /// Gives an adapter, a directory as PEFT writes it, to everything that the engine computes and that
    /// names no other; what it adds is multiplied by `scale`. Several add up in this order.
    pub fn adapter(mut self, dir: impl Into<PathBuf>, scale: f32) -> Self {
        self.adapters.push((dir.into(), scale));
        self
    }

    /// Bytes that all adapters together may hold; 8 GiB unless stated.
    pub fn adapter_bytes_max(mut self, bytes: u64) -> Self {
        self.generator.adapter_bytes_max = bytes;
        self
    }

    /// The directory of the model.
    pub fn dir(&self) -> Result<PathBuf, Error> {
        resolve_model(&self.model)
    }

    /// The model as data, with these choices applied; reads the configuration only.
    pub fn spec(&self, dir: &Path) -> Result<ModelSpec, Error> {
        let EngineBuilder { context, rope, assume_llama, .. } = *self;
        let options = SpecOptions { context, rope, assume_llama };
        let mut spec = load_spec(dir, &options)?;
        if self.split.tensor_parallel {
            spec.warnings.push("tensor_parallel: there is one device, which has all of it".into());
        }
        Ok(spec)
    }

    /// As [`spec`](Self::spec), without `generation_config.json`.
    pub fn spec_of_config(&self, dir: &Path) -> Result<ModelSpec, Error> {
        let path = dir.join("config.json");
        let config = std::fs::read(&path).map_err(|source| ArchError::Read { path, source })?;
        let EngineBuilder { context, rope, assume_llama, .. } = *self;
        Ok(spec_from_json(&config, None, &SpecOptions { context, rope, assume_llama })?)
    }

    /// Load an unknown architecture as if it were Llama, instead of refusing it. What comes out is
    /// right only if the model is Llama in all but name.
    pub fn assume_llama(mut self) -> Self {
        self.assume_llama = true;
        self
    }

    /// Load files with tensors that no part of the model takes, instead of refusing them. What comes
    /// out is right only if the model does without.
    pub fn ignore_unused_tensors(mut self) -> Self {
        self.ignore_unused_tensors = true;
        self
    }

    /// Tokens the cache of this spec will hold, in whole pages.
    pub fn cache_tokens_for(&self, spec: &ModelSpec) -> usize {
        let context = self.context.unwrap_or(0).min(spec.context);
        let tokens = self.cache_tokens.unwrap_or(context.max(DEFAULT_CACHE_TOKENS)).max(1);
        tokens.saturating_add(PAGE_TOKENS - 1) / PAGE_TOKENS * PAGE_TOKENS
    }

    /// Whether somebody has said how long the cache is.
    pub(crate) fn cache_is_stated(&self) -> bool {
        self.cache_tokens.is_some()
    }

    /// What the loader is told for a model at `place`.
    pub fn load_options(&self, place: Place) -> LoadOptions {
        let usual = match (place, self.low_memory) {
            (Place::Cpu, false) => LoadOptions::default().step_tokens_max,
            (Place::Cpu, true) => LOW_MEMORY_CPU_STEP_TOKENS,
            (Place::Cuda(_), false) => CUDA_STEP_TOKENS,
            (Place::Cuda(_), true) => LOW_MEMORY_CUDA_STEP_TOKENS,
        };
        LoadOptions {
            step_tokens_max: self.step_tokens.unwrap_or(usual),
            ignore_unused_tensors: self.ignore_unused_tensors,
        }
    }

    /// Most rows of logits of a step of a model at `place`.
    pub fn logit_rows_max(&self, place: Place) -> usize {
        self.generator.logit_rows_max().min(self.load_options(place).step_tokens_max)
    }

    /// Where the model will run; refuses choices that mean nothing there.
    pub fn place(&self) -> Result<Place, Error> {
        let place = self.devices.place()?;
        if let Some(problem) = self.tensor_parallel_problem() {
            return Err(Error::Split(problem));
        }
        if let Place::Cuda(index) = place {
            if self.split.cpu_layers.is_some() {
                let devices = format!("{}, with layers on the CPU,", self.devices);
                return Err(Error::SeveralGpus { devices });
            }
            let stated = [
                (self.threads.is_some(), "a number of threads"),
                (self.isa.is_some(), "a choice of vector code"),
                (self.math.is_some(), "a choice of arithmetic"),
            ];
            if let Some((_, option)) = stated.into_iter().find(|(stated, _)| *stated) {
                return Err(Error::CpuOnly { option, device: format!("cuda:{index}") });
            }
        }
        Ok(place)
    }

    /// Which choice of the split cannot be met on these devices, with a sentence.
    pub fn split_problem(&self) -> Option<(&'static str, String)> {
        let sentence = self.tensor_parallel_problem();
        let problem = sentence.map(|sentence| ("tensor_parallel", sentence));
        let devices = match self.split.cpu_layers {
            None => self.devices.clone(),
            Some(_) => self.devices.with_cpu(),
        };
        problem.or_else(|| self.split.longer_than(&devices))
    }

    /// What stands against layers that are shared by all devices, if they were asked for.
    fn tensor_parallel_problem(&self) -> Option<String> {
        let takers = self.split.takers(self.devices.all().len());
        (self.split.tensor_parallel && takers > 1).then(|| {
            format!(
                "tensor_parallel: {takers} devices cannot share a layer: leave it out, and each takes \
                 whole layers, as many as fit or as gpu_split says"
            )
        })
    }

    /// How the draft model is opened: on the same machine, with a cache of the same length.
    pub fn draft_builder(&self, cache_tokens: usize) -> Option<EngineBuilder> {
        let model = self.draft.clone()?;
        let (cache, rope) = (self.draft_cache.unwrap_or(self.cache), self.draft_rope);
        let (cache_tokens, context) = (Some(cache_tokens), None);
        let own = EngineBuilder { model, cache, rope, cache_tokens, context, ..self.clone() };
        Some(EngineBuilder { draft: None, ignore_unused_tensors: false, ..own })
    }

    /// Loads the model alone, for programs that bring token ids.
    pub fn load(self, progress: &mut ProgressFn<'_>) -> Result<LoadedModel, Error> {
        let (dir, place) = (self.dir()?, self.place()?);
        if self.is_placed() && place == Place::Cpu {
            let (spec, rows) = (self.spec(&dir)?, self.load_options(place).step_tokens_max);
            let placing = self.placing(&dir, &spec, &[], rows)?;
            let loaded = self.load_placed(&dir, placing, progress, &mut |_, _, _| Ok(()));
            return loaded.map(|(model, ())| model);
        }
        self.load_from(&dir, &self.machine(place)?, progress)
    }

    fn load_from(
        &self,
        dir: &Path,
        machine: &OpenMachine,
        progress: &mut ProgressFn<'_>,
    ) -> Result<LoadedModel, Error> {
        let spec = self.spec(dir)?;
        self.check_share(dir, &spec, machine.place())?;
        let options = self.load_options(machine.place());
        match machine {
            OpenMachine::Cpu(cpu) => {
                self.finish(Model::load(dir, spec, cpu.clone(), &options, progress)?)
            }
            OpenMachine::Cuda(_, cuda) => {
                self.finish(Model::load(dir, spec, cuda.clone(), &options, progress)?)
            }
        }
    }

    /// A model of a published shape with random weights, for measuring speed; the model this
    /// builder names is not touched.
    pub fn load_synthetic(
        &self,
        preset: &str,
        weights: SyntheticWeights,
        progress: &mut ProgressFn<'_>,
    ) -> Result<LoadedModel, Error> {
        let machine = self.machine(self.place()?)?;
        self.synthesize(preset, weights, &machine, progress)
    }

    /// As [`load_synthetic`](Self::load_synthetic), with a second model of shape `draft` on the same
    /// machine.
    pub fn load_synthetic_pair(
        &self,
        preset: &str,
        draft: &str,
        weights: SyntheticWeights,
        progress: &mut ProgressFn<'_>,
    ) -> Result<(LoadedModel, LoadedModel), Error> {
        let machine = self.machine(self.place()?)?;
        let loaded = self.synthesize(preset, weights, &machine, progress)?;
        let own = EngineBuilder { cache_tokens: Some(loaded.cache_tokens), ..self.clone() };
        Ok((loaded, own.synthesize(draft, weights, &machine, progress)?))
    }

    fn synthesize(
        &self,
        preset: &str,
        weights: SyntheticWeights,
        machine: &OpenMachine,
        progress: &mut ProgressFn<'_>,
    ) -> Result<LoadedModel, Error> {
        if self.is_placed() {
            let sentence =
                "synthetic models run on one whole device: name it without a limit or a split";
            return Err(Error::Split(sentence.to_owned()));
        }
        let mut spec = synthetic::preset_spec(preset)?;
        spec.context = self.context.unwrap_or(spec.context).min(spec.context);
        let options = self.load_options(machine.place());
        match machine {
            OpenMachine::Cpu(cpu) => {
                self.finish(Model::synthetic(spec, cpu.clone(), weights, &options, progress)?)
            }
            OpenMachine::Cuda(_, cuda) => {
                self.finish(Model::synthetic(spec, cuda.clone(), weights, &options, progress)?)
            }
        }
    }

    fn machine(&self, place: Place) -> Result<OpenMachine, Error> {
        Ok(match place {
            Place::Cpu => OpenMachine::Cpu(self.cpu()?),
            Place::Cuda(index) => OpenMachine::Cuda(index, self.cuda(index)?),
        })
    }

    pub(crate) fn cpu(&self) -> Result<CpuBackend, Error> {
        let EngineBuilder { threads, isa, math, default_math, .. } = *self;
        let math = math.unwrap_or(default_math).mode();
        Ok(CpuBackend::new(CpuOptions { threads, isa, math, ..CpuOptions::default() })?)
    }

    fn cuda(&self, device: usize) -> Result<CudaBackend, Error> {
        let CudaLayout { dequantised_max, tables_on_host, .. } = self.cuda_layout(device);
        let options =
            CudaOptions { device, dequantised_max, tables_on_host, ..CudaOptions::default() };
        Ok(CudaBackend::new(options)?)
    }

    fn cuda_layout(&self, device: usize) -> CudaLayout {
        let usual = match self.low_memory {
            false => CudaOptions::default().dequantised_max,
            true => LOW_MEMORY_DEQUANTISED_MAX,
        };
        let dequantised_max = self.dequantised_max.unwrap_or(usual);
        let probe = Probe::look();
        let dequantises =
            probe.gpus().get(device).is_some_and(|gpu| probe.has_warpgroups(&gpu.limits));
        CudaLayout { dequantised_max, tables_on_host: self.low_memory, dequantises }
    }

    /// What a run of the model in `dir` will need at `place`; reads headers only.
    pub fn predict_memory(
        &self,
        dir: &Path,
        spec: &ModelSpec,
        place: Place,
    ) -> Result<MemoryNeed, Error> {
        let layout = |device| self.cuda_layout(device);
        MemoryNeed::predict(dir, spec, &self.load_options(place), place, layout)
    }

    fn finish<B: Backend>(&self, model: Model<B>) -> Result<LoadedModel, Error> {
        let cache_tokens = self.cache_tokens_for(model.spec());
        let (memory, device) = (model.memory(), model.backend().describe());
        let forward = ModelWithCache::new(model, self.cache, cache_tokens)?;
        Ok(LoadedModel {
            forward: Box::new(forward),
            memory,
            device,
            cache: self.cache,
            cache_tokens,
            placement: None,
        })
    }
}
