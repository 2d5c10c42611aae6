//! A folder with copies of the demo model, and an opener that loads them: slowly, or not at all,
//! where a test says so.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use pagella_arch::{SpecOptions, load_spec};
use pagella_backend::KvFormat;
use pagella_conversation::TextModel;
use pagella_cpu::{CpuBackend, CpuOptions};
use pagella_engine::{Forward, GeneratorOptions, ModelWithCache, SampleOptions};
use pagella_model::{LoadOptions as ModelLoad, LoadProgress, Model};
use pagella_server::name::{self, Links};
use pagella_server::{
    DevicePlan, KnownModel, LoadOptions, LoadStep, MemoryPlan, ModelFacts, ModelFile, ModelOpener,
    ModelParts, OpenError,
};
use pagella_text::{ChatTemplate, Tokenizer};
use serde_json::Value;
use tempfile::TempDir;

use crate::gate::Gate;
use crate::support::demo_dir;
use crate::watched::Watched;

/// Bytes that a model takes of the one device there is.
pub const MODEL_BYTES: u64 = 100;
/// Files that make a model.
const FILES: [&str; 5] = [
    "config.json",
    "generation_config.json",
    "output.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
];

/// Where a load fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Plan,
    Open,
    Module(usize),
    Parts,
    Warmup,
    Panic,
}

/// What a test can do to loads and engines.
#[derive(Default)]
pub struct Levers {
    /// The next load fails here.
    pub fault: Mutex<Option<Fault>>,
    /// Loads wait before their third module until something comes.
    gate: Mutex<Option<Receiver<()>>>,
    /// Loads that wait.
    pub waiting: AtomicUsize,
    /// Models in memory.
    pub alive: Arc<AtomicUsize>,
    /// Models opened so far.
    pub opened: AtomicUsize,
    /// The next steps fail as a device does that is gone.
    pub device_gone: Arc<AtomicBool>,
    /// Nothing can be opened on the device again.
    pub device_lost: AtomicBool,
    /// Before the steps of every model.
    pub steps: Arc<Gate>,
    /// Bytes of the device.
    pub total_bytes: AtomicUsize,
    /// How the last model was opened.
    pub last: Mutex<Option<LoadOptions>>,
    /// What every model's own file says.
    pub file: Mutex<Option<ModelFile>>,
}

/// A folder of models and its opener.
pub struct ModelFolder {
    dir: TempDir,
    pub levers: Arc<Levers>,
}

impl ModelFolder {
    /// With copies of the demo model under these names.
    pub fn with(ids: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for id in ids {
            let to = dir.path().join(id);
            std::fs::create_dir_all(&to).unwrap();
            for file in FILES {
                std::fs::copy(demo_dir().join(file), to.join(file)).unwrap();
            }
        }
        let levers = Levers::default();
        levers.total_bytes.store(1 << 20, Ordering::Relaxed);
        ModelFolder { dir, levers: Arc::new(levers) }
    }

    pub fn opener(&self) -> Arc<dyn ModelOpener> {
        let root = self.dir.path().to_owned();
        Arc::new(FolderOpener { root, levers: self.levers.clone() })
    }

    /// Makes loads wait; whatever comes through the sender lets one go on.
    pub fn hold_loads(&self) -> Sender<()> {
        let (send, receive) = channel();
        *self.levers.gate.lock().unwrap() = Some(receive);
        send
    }

    pub fn fail_at(&self, fault: Fault) {
        *self.levers.fault.lock().unwrap() = Some(fault);
    }

    pub fn set_file(&self, tables: Value, foreign: bool) {
        let digest = tables.to_string();
        *self.levers.file.lock().unwrap() = Some(ModelFile { tables, digest, foreign });
    }

    pub fn alive(&self) -> usize {
        self.levers.alive.load(Ordering::SeqCst)
    }

    pub fn opened(&self) -> usize {
        self.levers.opened.load(Ordering::SeqCst)
    }

    pub fn is_waiting(&self) -> bool {
        self.levers.waiting.load(Ordering::SeqCst) > 0
    }
}

struct FolderOpener {
    root: std::path::PathBuf,
    levers: Arc<Levers>,
}

impl FolderOpener {
    fn fails(&self, at: Fault) -> Result<(), OpenError> {
        let fault = self.levers.fault.lock().unwrap().take_if(|fault| *fault == at);
        match fault {
            Some(Fault::Panic) => panic!("ordered by a test"),
            Some(_) => Err(OpenError::Failed(format!("ordered by a test at {at:?}"))),
            None => Ok(()),
        }
    }

    fn load(
        &self,
        dir: &Path,
        options: &LoadOptions,
        progress: &mut dyn FnMut(LoadStep) -> ControlFlow<()>,
    ) -> Result<Box<dyn Forward>, OpenError> {
        let spec_options = SpecOptions { context: options.max_seq_len, ..SpecOptions::default() };
        let refused = |error: String| OpenError::Refused { option: None, message: error };
        let spec = load_spec(dir, &spec_options).map_err(|error| refused(error.to_string()))?;
        let backend = CpuBackend::new(CpuOptions { threads: Some(2), ..CpuOptions::default() });
        let mut fault = Ok(());
        let mut report = |at: &LoadProgress<'_>| {
            fault = self.fails(Fault::Module(at.modules_done));
            if at.modules_done == 2
                && let Some(gate) = &*self.levers.gate.lock().unwrap()
            {
                self.levers.waiting.fetch_add(1, Ordering::SeqCst);
                // Nobody holds the other end any more: go on.
                let _ = gate.recv();
                self.levers.waiting.fetch_sub(1, Ordering::SeqCst);
            }
            let step = LoadStep {
                modules_done: at.modules_done,
                modules_total: at.modules_total,
                bytes_done: at.bytes_done,
                bytes_total: at.bytes_total,
                of_draft: false,
            };
            if fault.is_err() { ControlFlow::Break(()) } else { progress(step) }
        };
        let load = ModelLoad {
            step_tokens_max: options.chunk_size.unwrap_or(128),
            ignore_unused_tensors: false,
        };
        let model = Model::load(dir, spec, backend.unwrap(), &load, &mut report);
        fault?;
        let model = model.map_err(|_| OpenError::Cancelled)?;
        let format = options.cache_mode.unwrap_or(KvFormat::F16);
        let tokens = options.cache_size.unwrap_or(8192);
        let inner = ModelWithCache::new(model, format, tokens).unwrap();
        let (alive, device_gone) = (&self.levers.alive, &self.levers.device_gone);
        let watched = Watched::new(Box::new(inner), alive.clone(), device_gone.clone());
        Ok(Box::new(watched.behind(self.levers.steps.clone())))
    }
}

impl ModelOpener for FolderOpener {
    fn list(&self) -> Vec<KnownModel> {
        let mut ids = Vec::new();
        let mut dirs = vec![String::new()];
        while let Some(id) = dirs.pop() {
            let dir = self.root.join(&id);
            if dir.join("config.json").is_file() {
                ids.push(id);
                continue;
            }
            for entry in std::fs::read_dir(&dir).unwrap().flatten() {
                let name = entry.file_name().into_string().unwrap();
                dirs.push(if id.is_empty() { name } else { format!("{id}/{name}") });
            }
        }
        ids.sort();
        let model = |id| KnownModel { id, size_bytes: Some(1), ..KnownModel::default() };
        ids.into_iter().map(model).collect()
    }

    fn model_file(&self, _: &str) -> Result<Option<ModelFile>, OpenError> {
        Ok(self.levers.file.lock().unwrap().clone())
    }

    fn trust(&self, digest: &str) -> Result<(), OpenError> {
        let mut file = self.levers.file.lock().unwrap();
        file.iter_mut().filter(|file| file.digest == digest).for_each(|file| file.foreign = false);
        Ok(())
    }

    fn device_is_lost(&self, _: &str, _: &LoadOptions) -> bool {
        self.levers.device_lost.load(Ordering::SeqCst)
    }

    fn plan(&self, _: &str, options: &LoadOptions) -> Result<MemoryPlan, OpenError> {
        self.fails(Fault::Plan)?;
        let taken = MODEL_BYTES * self.levers.alive.load(Ordering::SeqCst) as u64;
        let total_bytes = self.levers.total_bytes.load(Ordering::SeqCst) as u64;
        let device = DevicePlan {
            parts: None,
            name: "cpu".to_owned(),
            total_bytes,
            available_bytes: total_bytes.saturating_sub(taken),
            weights_bytes: MODEL_BYTES,
            cache_bytes: options.cache_size.unwrap_or(0) as u64,
            other_bytes: 0,
            held_bytes: MODEL_BYTES,
        };
        Ok(MemoryPlan { devices: vec![device] })
    }

    fn open(
        &self,
        id: &str,
        options: &LoadOptions,
        progress: &mut dyn FnMut(LoadStep) -> ControlFlow<()>,
    ) -> Result<ModelParts, OpenError> {
        self.fails(Fault::Open)?;
        self.fails(Fault::Panic)?;
        let dir = name::resolve(&self.root, id, Links::Refuse).ok().flatten();
        let dir = dir.ok_or(OpenError::NotFound)?;
        let memory = self.plan(id, options)?;
        let forward = self.load(&dir, options, progress)?;
        let tokenizer = Tokenizer::from_dir(&dir).unwrap();
        let batch_max = options.max_batch_size.unwrap_or(64);
        let mut generator = GeneratorOptions { batch_max, ..GeneratorOptions::default() };
        // Most tests count steps of which each writes one token.
        if options.draft.tokens.is_some() {
            generator.draft = options.draft.options();
        }
        let cache_tokens = forward.cache_tokens();
        let cache_mode = forward.kv_format().name().to_owned();
        let mut model = TextModel::start(forward, tokenizer, generator, None).unwrap();
        model.template = Some(ChatTemplate::from_dir(&dir).unwrap());
        model.sampling = SampleOptions::greedy();
        if let Err(error) = self.fails(Fault::Parts) {
            let vitals = model.worker.vitals().clone();
            drop(model);
            assert!(vitals.wait_over(std::time::Duration::from_secs(20)));
            return Err(error);
        }
        if self.fails(Fault::Warmup).is_err() {
            self.levers.device_gone.store(true, Ordering::SeqCst);
        }
        self.levers.opened.fetch_add(1, Ordering::SeqCst);
        *self.levers.last.lock().unwrap() = Some(options.clone());
        Ok(ModelParts {
            id: id.to_owned(),
            model,
            facts: ModelFacts {
                cache_tokens,
                cache_mode,
                batch_max,
                memory,
                ..ModelFacts::default()
            },
        })
    }
}
