//! The demo model behind a generator.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;

use pagella_arch::{SpecOptions, load_spec};
use pagella_backend::KvFormat;
use pagella_cpu::{CpuBackend, CpuOptions};
use pagella_engine::{Completion, Generator, GeneratorOptions, ModelWithCache};
use pagella_model::{LoadOptions, LoadProgress, Model};
use pagella_text::Tokenizer;

pub fn demo_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../models/demo")
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
    let spec = load_spec(&demo_dir(), &SpecOptions::default()).unwrap();
    let backend = CpuBackend::new(CpuOptions::default()).unwrap();
    let load = LoadOptions { step_tokens_max };
    let mut progress = |_: &LoadProgress<'_>| ControlFlow::Continue(());
    let model = Model::load(&demo_dir(), spec, backend, &load, &mut progress).unwrap();
    let forward = ModelWithCache::new(model, format, cache_tokens).unwrap();
    Generator::new(Box::new(forward), tokenizer(), options).unwrap()
}

/// Runs all jobs to their end; every page is free afterwards.
pub fn run(generator: &mut Generator) -> BTreeMap<u64, Completion> {
    let mut done = BTreeMap::new();
    while generator.has_work() {
        for record in generator.iterate() {
            if let Some(completion) = record.eos {
                done.insert(record.serial, *completion);
            }
        }
    }
    assert_eq!((generator.n_jobs(), generator.stats().pages.referenced), (0, 0));
    generator.check().unwrap();
    done
}
