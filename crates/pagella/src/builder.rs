//! Opening a model: every choice with its default, then loading.

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use pagella_arch::{ModelSpec, RopeOverride, SpecOptions, load_spec};
use pagella_backend::{Backend, KvFormat};
use pagella_cpu::{CpuBackend, CpuOptions, Isa};
use pagella_cuda::probe::Probe;
use pagella_cuda::{CudaBackend, CudaOptions};
use pagella_engine::{Forward, GeneratorOptions, ModelWithCache, Reserve};
use pagella_model::{LoadOptions, MemoryReport, Model, ProgressFn, SyntheticWeights, synthetic};

use crate::identity::ModelIdentity;
use crate::{CudaLayout, Device, Engine, Error, Math, MemoryNeed, Place, resolve_model};

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

/// How a model is opened; made by [`Engine::builder`].
#[derive(Clone, Debug)]
pub struct EngineBuilder {
    model: OsString,
    device: Device,
    threads: Option<usize>,
    isa: Option<Isa>,
    /// What was chosen; `None`: `default_math`.
    math: Option<Math>,
    default_math: Math,
    cache: KvFormat,
    cache_tokens: Option<usize>,
    context: Option<usize>,
    step_tokens: Option<usize>,
    dequantised_max: Option<usize>,
    low_memory: bool,
    rope: Option<RopeOverride>,
    assume_llama: bool,
    generator: GeneratorOptions,
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
}

impl EngineBuilder {
    pub(crate) fn new(model: OsString) -> Self {
        EngineBuilder {
            model,
            device: Device::default(),
            threads: None,
            isa: None,
            math: None,
            default_math: Math::default(),
            cache: KvFormat::F16,
            cache_tokens: None,
            context: None,
            step_tokens: None,
            dequantised_max: None,
            low_memory: false,
            rope: None,
            assume_llama: false,
            generator: GeneratorOptions::default(),
        }
    }

    /// Where to run; the best device there is unless stated.
    pub fn device(mut self, device: Device) -> Self {
        self.device = device;
        self
    }

    /// Threads on the CPU; one per physical core unless stated.
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
    /// that was stated and is more, unless stated. Memory is taken as the cache fills.
    pub fn cache_tokens(mut self, tokens: usize) -> Self {
        self.cache_tokens = Some(tokens);
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

    /// The directory of the model.
    pub fn dir(&self) -> Result<PathBuf, Error> {
        resolve_model(&self.model)
    }

    /// The model as data, with these choices applied; reads the configuration only.
    pub fn spec(&self, dir: &Path) -> Result<ModelSpec, Error> {
        let EngineBuilder { context, rope, assume_llama, .. } = *self;
        let options = SpecOptions { context, rope, assume_llama };
        Ok(load_spec(dir, &options)?)
    }

    /// Load an unknown architecture as if it were Llama, instead of refusing it. What comes out is
    /// right only if the model is Llama in all but name.
    pub fn assume_llama(mut self) -> Self {
        self.assume_llama = true;
        self
    }

    /// Tokens the cache of this spec will hold.
    pub fn cache_tokens_for(&self, spec: &ModelSpec) -> usize {
        let context = self.context.unwrap_or(0).min(spec.context);
        self.cache_tokens.unwrap_or(context.max(DEFAULT_CACHE_TOKENS)).max(1)
    }

    /// What the loader is told for a model at `place`.
    pub fn load_options(&self, place: Place) -> LoadOptions {
        let usual = match (place, self.low_memory) {
            (Place::Cpu, false) => LoadOptions::default().step_tokens_max,
            (Place::Cpu, true) => LOW_MEMORY_CPU_STEP_TOKENS,
            (Place::Cuda(_), false) => CUDA_STEP_TOKENS,
            (Place::Cuda(_), true) => LOW_MEMORY_CUDA_STEP_TOKENS,
        };
        LoadOptions { step_tokens_max: self.step_tokens.unwrap_or(usual) }
    }

    /// Where the model will run; refuses choices that mean nothing there.
    pub fn place(&self) -> Result<Place, Error> {
        let place = self.device.place()?;
        if let Place::Cuda(index) = place {
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

    /// Loads model, tokenizer and template.
    pub fn open(self) -> Result<Engine, Error> {
        self.open_with(&mut |_| ControlFlow::Continue(()))
    }

    /// Loads model, tokenizer and template, reporting progress.
    pub fn open_with(self, progress: &mut ProgressFn<'_>) -> Result<Engine, Error> {
        let dir = self.dir()?;
        let parts = crate::engine::TextParts::read(&dir)?;
        let place = self.place()?;
        let loaded = self.load_from(&dir, place, progress)?;
        let arithmetic = match place {
            Place::Cpu => format!("cpu, {} math", self.math.unwrap_or(self.default_math).name()),
            Place::Cuda(_) => loaded.device.clone(),
        };
        let identity = ModelIdentity::new(&dir, loaded.forward.spec(), &arithmetic);
        Engine::assemble(dir, loaded, parts, self.generator, identity)
    }

    /// Loads the model alone, for programs that bring token ids.
    pub fn load(self, progress: &mut ProgressFn<'_>) -> Result<LoadedModel, Error> {
        let dir = self.dir()?;
        self.load_from(&dir, self.place()?, progress)
    }

    fn load_from(
        &self,
        dir: &Path,
        place: Place,
        progress: &mut ProgressFn<'_>,
    ) -> Result<LoadedModel, Error> {
        let spec = self.spec(dir)?;
        let options = self.load_options(place);
        match place {
            Place::Cpu => self.finish(Model::load(dir, spec, self.cpu()?, &options, progress)?),
            Place::Cuda(index) => {
                self.finish(Model::load(dir, spec, self.cuda(index)?, &options, progress)?)
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
        let mut spec = synthetic::preset_spec(preset)?;
        spec.context = self.context.unwrap_or(spec.context).min(spec.context);
        let place = self.place()?;
        let options = self.load_options(place);
        match place {
            Place::Cpu => {
                self.finish(Model::synthetic(spec, self.cpu()?, weights, &options, progress)?)
            }
            Place::Cuda(index) => {
                let cuda = self.cuda(index)?;
                self.finish(Model::synthetic(spec, cuda, weights, &options, progress)?)
            }
        }
    }

    fn cpu(&self) -> Result<CpuBackend, Error> {
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
        let dequantises = probe.gpus().get(device).is_some_and(|gpu| probe.has_warpgroups(&gpu.limits));
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
        })
    }
}
