//! The demo model behind a generator.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use pagella_arch::{SpecOptions, load_spec};
use pagella_backend::{Backend, KvFormat};
use pagella_cpu::{CpuBackend, CpuOptions};
use pagella_cuda::{CudaBackend, CudaOptions};
use pagella_engine::{
    Completion, DraftModel, Forward, Generator, GeneratorOptions, ModelWithCache,
};
use pagella_model::{LoadOptions, LoadProgress, Model};
use pagella_text::Tokenizer;

pub fn demo_dir() -> PathBuf {
    let built_here = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../models/demo");
    std::env::var_os("PAGELLA_DEMO_DIR").map_or_else(built_here, PathBuf::from)
}

pub fn tokenizer() -> Tokenizer {
    Tokenizer::from_dir(&demo_dir()).unwrap()
}

/// A generator over the demo model with a cache of `cache_tokens`.
pub fn generator(
    format: KvFormat,
    cache_tokens: usize,
    step_tokens_max: usize,
    options: GeneratorOptions,
) -> Generator {
    let forward = model(&demo_dir(), format, cache_tokens, step_tokens_max);
    Generator::new(forward, tokenizer(), options).unwrap()
}

/// The model that drafts for the demo model, with a cache of its own.
pub fn draft_model(format: KvFormat, cache_tokens: usize) -> DraftModel {
    let dir = demo_dir().join("draft");
    let forward = model(&dir, format, cache_tokens, 128);
    DraftModel::new(forward, &Tokenizer::from_dir(&dir).unwrap(), &tokenizer()).unwrap()
}

fn model(
    dir: &Path,
    format: KvFormat,
    cache_tokens: usize,
    step_tokens_max: usize,
) -> Box<dyn Forward> {
    if on_cuda() {
        let backend = CudaBackend::new(CudaOptions::default()).unwrap();
        forward(dir, backend, format, cache_tokens, step_tokens_max)
    } else {
        let backend = CpuBackend::new(CpuOptions::default()).unwrap();
        forward(dir, backend, format, cache_tokens, step_tokens_max)
    }
}

/// Whether these tests run on a CUDA device: on a machine that has one, when asked to.
pub fn on_cuda() -> bool {
    std::env::var("PAGELLA_TEST_DEVICE").is_ok_and(|device| device == "cuda")
}

fn forward<B: Backend>(
    dir: &Path,
    backend: B,
    format: KvFormat,
    cache_tokens: usize,
    step_tokens_max: usize,
) -> Box<dyn Forward> {
    let spec = load_spec(dir, &SpecOptions::default()).unwrap();
    let load = LoadOptions { step_tokens_max, ..LoadOptions::default() };
    let mut progress = |_: &LoadProgress<'_>| ControlFlow::Continue(());
    let model = Model::load(dir, spec, backend, &load, &mut progress).unwrap();
    Box::new(ModelWithCache::new(model, format, cache_tokens).unwrap())
}

/// Runs all jobs to their end; every page is free afterwards.
pub fn run(generator: &mut Generator) -> BTreeMap<u64, Completion> {
    let mut done = BTreeMap::new();
    while generator.has_work() {
        for record in generator.step() {
            if let Some(completion) = record.eos {
                done.insert(record.serial, *completion);
            }
        }
    }
    assert_eq!((generator.n_jobs(), generator.stats().pages.referenced), (0, 0));
    generator.check().unwrap();
    done
}
