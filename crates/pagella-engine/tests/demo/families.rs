//! One model of every family behind a generator: jobs in a small cache, with shared beginnings, prompts
//! in chunks and preemption, get the ids of their solo runs.

#[allow(dead_code, reason = "shared with other crates' tests")]
#[path = "../../../../testdata/families/recipe.rs"]
mod recipe;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use pagella_arch::{ModelSpec, SpecOptions, families, load_spec};
use pagella_backend::{Backend, BackendError, KvFormat};
use pagella_cpu::{CpuBackend, CpuOptions};
use pagella_cuda::{CudaBackend, CudaOptions};
use pagella_engine::{
    Forward, Generator, GeneratorOptions, JobOptions, JobSpec, LengthPolicy, ModelWithCache,
    SampleOptions,
};
use pagella_formats::Dtype;
use pagella_formats::safetensors::write::{TensorData, write_file};
use pagella_model::{LoadOptions, LoadProgress, Model, ModelError};
use serde_json::{Map, Value};

use crate::schemas::Rng;
use crate::support::{on_cuda, run, tokenizer};

/// Tokens that all prompts may share; more than a page.
const STEM_TOKENS: usize = 300;

/// A family's model in a directory of its own.
pub struct Case {
    pub name: String,
    pub dir: tempfile::TempDir,
    pub spec: ModelSpec,
}

/// The first case of a family that is long enough and whose heads fit every kind of cache.
pub fn case_of(family: &str) -> Case {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/families");
    let mut dirs: Vec<PathBuf> =
        std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    dirs.retain(|dir| dir.join("expected.safetensors").exists());
    dirs.sort();
    let long_enough = |dir: &PathBuf| {
        let spec = load_spec(dir, &SpecOptions::default()).unwrap();
        let attn = &spec.layers[0].attn;
        let fits = attn.head_dim.is_multiple_of(32)
            && (attn.kv_heads * attn.head_dim).is_multiple_of(64)
            && spec.context >= 512;
        (spec.family == family && fits).then_some((dir.clone(), spec))
    };
    let Some((stored, spec)) = dirs.iter().find_map(long_enough) else {
        panic!("{family} has no case that fits");
    };
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(stored.join("config.json"), dir.path().join("config.json")).unwrap();
    write_weights(&stored.join("expected.safetensors"), dir.path());
    Case { name: stored.file_name().unwrap().to_string_lossy().into_owned(), dir, spec }
}

/// Writes the weights that the metadata of a case lists.
fn write_weights(case: &Path, dir: &Path) {
    let bytes = std::fs::read(case).unwrap();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..8 + header]).unwrap();
    let metadata = |key: &str| header["__metadata__"][key].as_str().unwrap();
    let centre: f32 = metadata("norm_centre").parse().unwrap();
    let shapes: Map<String, Value> = serde_json::from_str(metadata("tensors")).unwrap();
    let tensors: Vec<(&String, Vec<usize>, Vec<u8>)> = shapes
        .iter()
        .map(|(name, shape)| {
            let extents = shape.as_array().unwrap().iter();
            let shape: Vec<usize> = extents.map(|n| n.as_u64().unwrap() as usize).collect();
            let kind = recipe::Kind::of(name, *shape.last().unwrap(), centre);
            let values = recipe::values(name, shape.iter().product(), kind);
            (name, shape, values.iter().flat_map(|value| value.to_le_bytes()).collect())
        })
        .collect();
    let data = |(name, shape, data): &'_ (&String, Vec<usize>, Vec<u8>)| -> (String, Vec<usize>) {
        assert_eq!(data.len(), 4 * shape.iter().product::<usize>());
        ((*name).clone(), shape.clone())
    };
    let tensors: Vec<TensorData<'_>> = tensors
        .iter()
        .map(|tensor| {
            let (name, shape) = data(tensor);
            TensorData { name, dtype: Dtype::F32, shape, data: &tensor.2 }
        })
        .collect();
    write_file(&dir.join("model.safetensors"), &tensors).unwrap();
}

impl Case {
    /// A generator over the model; `None` where the device has not what it needs.
    fn generator(
        &self,
        format: KvFormat,
        cache_tokens: usize,
        options: GeneratorOptions,
    ) -> Option<Generator> {
        let forward = if on_cuda() {
            self.forward(CudaBackend::new(CudaOptions::default()).unwrap(), format, cache_tokens)?
        } else {
            let options = CpuOptions { threads: Some(2), pin: false, ..CpuOptions::default() };
            self.forward(CpuBackend::new(options).unwrap(), format, cache_tokens)?
        };
        Some(Generator::new(forward, tokenizer(), options).unwrap())
    }

    fn forward<B: Backend>(
        &self,
        backend: B,
        format: KvFormat,
        cache_tokens: usize,
    ) -> Option<Box<dyn Forward>> {
        let load = LoadOptions { step_tokens_max: 128, ..LoadOptions::default() };
        let mut progress = |_: &LoadProgress<'_>| ControlFlow::Continue(());
        let unsupported = |error: &ModelError| {
            matches!(error, ModelError::Backend(BackendError::Unsupported { .. }))
        };
        let loaded = Model::load(self.dir.path(), self.spec.clone(), backend, &load, &mut progress);
        let model = match loaded {
            Err(error) if unsupported(&error) => {
                println!("{}: {error}", self.name);
                return None;
            }
            other => other.unwrap(),
        };
        match ModelWithCache::new(model, format, cache_tokens) {
            Err(error) => {
                println!("{}: {error}", self.name);
                None
            }
            Ok(forward) => Some(Box::new(forward)),
        }
    }

    /// Jobs with shared beginnings, cut and continued at random; some are sampled.
    pub fn jobs(&self, rng: &mut Rng) -> Vec<JobSpec> {
        let vocab = self.spec.vocab;
        let stem: Vec<u32> = (0..STEM_TOKENS).map(|_| rng.below(vocab) as u32).collect();
        (0..7)
            .map(|_| {
                let length = [1, 17, 255, 256, 257, STEM_TOKENS][rng.below(6)];
                let mut prompt = stem[..length].to_vec();
                prompt.extend((0..rng.below(30)).map(|_| rng.below(vocab) as u32));
                let mut options = JobOptions {
                    max_new_tokens: Some(1 + rng.below(12)),
                    length_policy: LengthPolicy::Clamp,
                    ..JobOptions::default()
                };
                if rng.below(2) == 0 {
                    let seed = rng.below(1000) as u64;
                    options.sampling = SampleOptions { temperature: 0.9, seed, ..options.sampling };
                }
                JobSpec::new(prompt, options).unwrap()
            })
            .collect()
    }

    /// Whether jobs together give what they give alone; `None` where the device refuses.
    fn check(&self, format: KvFormat, rng: &mut Rng) -> Option<()> {
        let options = GeneratorOptions {
            batch_max: 4,
            step_tokens: [None, Some(33)][rng.below(2)],
            copy_tokens_min: 1,
            ..GeneratorOptions::default()
        };
        let mut together = self.generator(format, 256 * 5, options)?;
        let mut alone = self.generator(format, 1024, GeneratorOptions::default())?;
        let jobs = self.jobs(rng);
        let serials: Vec<u64> =
            jobs.iter().map(|job| together.enqueue(job.clone()).unwrap()).collect();
        let done = run(&mut together);
        for (serial, job) in serials.iter().zip(jobs) {
            assert!(alone.reset_page_table());
            let solo = alone.enqueue(job).unwrap();
            let solo = run(&mut alone).remove(&solo).unwrap();
            assert_eq!(done[serial].token_ids, solo.token_ids, "{} {}", self.name, format.name());
        }
        Some(())
    }
}

#[test]
fn jobs_of_every_family_get_the_ids_of_their_solo_runs() {
    let formats = [KvFormat::F16, KvFormat::Fp8, KvFormat::Q8, KvFormat::K8V4, KvFormat::Q4];
    let (mut checked, mut refused) = (0, 0);
    for (index, family) in families().iter().enumerate() {
        let case = case_of(family.name);
        let rng = &mut Rng(index as u64 * 31 + 7);
        // Every family with a plain cache, and each with one other kind in turn.
        for format in [KvFormat::F16, formats[1 + index % 4]] {
            match case.check(format, rng) {
                Some(()) => checked += 1,
                None => refused += 1,
            }
        }
    }
    println!("{checked} checked, {refused} refused");
    if !on_cuda() {
        assert_eq!((checked, refused), (2 * families().len(), 0));
    }
}
