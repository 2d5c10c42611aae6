//! Loading: survey, then every module in the order it runs, with progress between them.

use std::path::Path;
use std::sync::Arc;

use pagella_arch::{LatentSpec, LinearSpec, ModelSpec, NormSpec};
use pagella_backend::Backend;
use pagella_formats::Linear;

use crate::block::{Embedding, Layer, check_backend};
use crate::error::ModelError;
use crate::head::Head;
use crate::memory::Tally;
use crate::model::Model;
use crate::progress::{Module, Progress, ProgressFn};
use crate::stage::Stage;
use crate::survey::{check_blocks, gptq_zeros, open, survey};
use crate::unfold::take_apart;
use crate::unused;
use crate::weights::{CheckpointSource, LinearUse, WeightSource};

/// Most tokens a step may bring; beyond it the activations alone would fill a machine.
const STEP_TOKENS_LIMIT: usize = 1 << 20;

/// Choices of the user at load time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadOptions {
    /// Largest number of new tokens per step; sizes the scratch memory.
    pub step_tokens_max: usize,
    /// Load files with tensors that the model should have taken and did not, instead of refusing them.
    pub ignore_unused_tensors: bool,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self { step_tokens_max: 512, ignore_unused_tensors: false }
    }
}

impl LoadOptions {
    /// Refuses a limit of zero or one that no machine could allocate.
    pub(crate) fn check(&self) -> Result<(), ModelError> {
        let value = self.step_tokens_max;
        if (1..=STEP_TOKENS_LIMIT).contains(&value) {
            return Ok(());
        }
        let option = "step_tokens_max";
        Err(ModelError::BadOption { option, value, min: 1, max: STEP_TOKENS_LIMIT })
    }
}

impl<B: Backend> Model<B> {
    /// Loads the weights of `dir` with the given spec.
    ///
    /// Every tensor is found and its type and shape checked before the first one is laid out. The
    /// embedding stays mapped from its file.
    pub fn load(
        dir: &Path,
        spec: ModelSpec,
        backend: B,
        options: &LoadOptions,
        progress: &mut ProgressFn<'_>,
    ) -> Result<Self, ModelError> {
        let layers = spec.layers.len();
        Self::load_over(dir, spec, vec![(backend, layers)], options, progress)
    }

    /// [`Model::load`] over several devices: each backend takes so many of the layers, in order. The
    /// embedding lies with the first of them, the head with the last, which may have no layer.
    pub fn load_over(
        dir: &Path,
        mut spec: ModelSpec,
        parts: Vec<(B, usize)>,
        options: &LoadOptions,
        progress: &mut ProgressFn<'_>,
    ) -> Result<Self, ModelError> {
        options.check()?;
        check_parts(&spec, &parts)?;
        check_blocks(&spec)?;
        let backends = || parts.iter().map(|(backend, _)| backend);
        backends().try_for_each(|backend| check_backend(&spec, backend))?;
        let checkpoint = Arc::new(open(dir, &spec)?);
        let survey = survey(&checkpoint, &spec)?;
        if !options.ignore_unused_tensors {
            unused::refuse(&checkpoint, &survey.unused)?;
        }
        for facts in &survey.linears {
            backends().try_for_each(|backend| backend.accept_linear(facts.kind, &facts.widths))?;
        }
        let modules = survey.modules(&spec);
        spec.warnings.extend(survey.warnings);
        let source = CheckpointSource { checkpoint, gptq_zeros: gptq_zeros(&spec) };
        assemble(spec, parts, source, options, modules, progress)
    }
}

/// Refuses parts that are not the whole model.
fn check_parts<B>(spec: &ModelSpec, parts: &[(B, usize)]) -> Result<(), ModelError> {
    let (layers, n): (usize, usize) =
        (parts.iter().map(|(_, layers)| layers).sum(), spec.layers.len());
    if parts.is_empty() || layers != n {
        let option = "the number of layers over all devices";
        return Err(ModelError::BadOption { option, value: layers, min: n, max: n });
    }
    Ok(())
}

/// Lays out all modules of `source` and puts the model together from `parts`, at least one: backends,
/// each with so many of the layers.
pub(crate) fn assemble<B: Backend>(
    spec: ModelSpec,
    parts: Vec<(B, usize)>,
    source: impl WeightSource,
    options: &LoadOptions,
    modules: Vec<Module>,
    progress: &mut ProgressFn<'_>,
) -> Result<Model<B>, ModelError> {
    let mut progress = Progress::new(modules, progress);
    let step_tokens_max = options.step_tokens_max;
    let mut loader =
        Loader { backend: &parts[0].0, source, step_tokens_max, tally: Tally::default() };
    let embed = progress.module(|| Embedding::load(&spec, &mut loader))?;
    let (mut loaded, mut first) = (Vec::with_capacity(parts.len()), 0);
    for (backend, n_layers) in &parts {
        loader.backend = backend;
        let range = first..first + n_layers;
        let mut layers = Vec::with_capacity(*n_layers);
        for (index, layer) in spec.layers[range.clone()].iter().enumerate() {
            layers.push(Layer::load(index, layer, &mut loader, &mut progress)?);
        }
        first = range.end;
        loaded.push((range, layers));
    }
    let norm = progress.module(|| Head::load_norm(&spec.final_norm, &mut loader))?;
    let head = progress.module(|| Head::load(&spec.head, norm, &mut loader))?;
    let tally = loader.tally;
    let stages = parts.into_iter().zip(loaded).map(|((backend, _), (range, layers))| {
        Stage::new(backend, &spec, range, layers, step_tokens_max)
    });
    let mut stages = stages.collect::<Result<Vec<_>, _>>()?;
    let last = stages.len() - 1;
    stages[0].embed = Some(embed);
    stages[last].head = Some(head);
    let mut model = Model::new(spec, stages, step_tokens_max, tally);
    model.probe()?;
    progress.report()?;
    Ok(model)
}

/// What modules are loaded through: a source, a backend to lay out for, and the books.
pub(crate) struct Loader<'a, B, S> {
    pub backend: &'a B,
    pub source: S,
    /// Most tokens of a step.
    pub step_tokens_max: usize,
    pub tally: Tally,
}

impl<B: Backend, S: WeightSource> Loader<'_, B, S> {
    /// Lays out one linear.
    pub(crate) fn linear(
        &mut self,
        spec: &LinearSpec,
        usage: LinearUse,
    ) -> Result<B::Linear, ModelError> {
        self.linear_with(spec, usage, |backend, linear| Ok(backend.linear(linear)?))
    }

    /// Lays out one linear by way of `lay_out`.
    pub(crate) fn linear_with(
        &mut self,
        spec: &LinearSpec,
        usage: LinearUse,
        lay_out: impl FnOnce(&B, &Linear<'_>) -> Result<B::Linear, ModelError>,
    ) -> Result<B::Linear, ModelError> {
        let (backend, tally) = (self.backend, &mut self.tally);
        self.source.linear(spec, usage, |linear| {
            let laid_out = lay_out(backend, linear)?;
            tally.add_linear(linear, usage, backend.linear_bytes(&laid_out) as u64);
            Ok(laid_out)
        })
    }

    /// Lays out the linear that unfolds latent vectors: of queries into latent space, and of what was
    /// attended out of it.
    pub(crate) fn unfolding(
        &mut self,
        spec: &LinearSpec,
        heads: usize,
        latent: &LatentSpec,
    ) -> Result<[B::HeadLinear; 2], ModelError> {
        let (backend, tally) = (self.backend, &mut self.tally);
        let usage = LinearUse::Layer;
        self.source.linear(spec, usage, |linear| {
            let [into, out_of] = take_apart(linear, heads, latent);
            let (into, out_of) = (backend.head_linear(&into)?, backend.head_linear(&out_of)?);
            let bytes = backend.head_linear_bytes(&into) + backend.head_linear_bytes(&out_of);
            tally.add_linear(linear, usage, bytes as u64);
            Ok([into, out_of])
        })
    }

    /// Takes one norm's weights; `heads` is 1 except for per-head norms.
    pub(crate) fn norm(&mut self, spec: &NormSpec, heads: usize) -> Result<B::Norm, ModelError> {
        let weights = self.source.norm(spec, heads)?;
        let bias = weights.bias.as_ref().map_or(0, Vec::len);
        self.tally.device_bytes += 4 * (weights.weight.len() + bias) as u64;
        Ok(self.backend.norm(weights)?)
    }

    /// Takes a vector.
    pub(crate) fn vector(&mut self, base: &str, len: usize) -> Result<B::Vector, ModelError> {
        let values = self.source.vector(base, len)?;
        self.tally.device_bytes += 4 * len as u64;
        Ok(self.backend.vector(&values)?)
    }

    /// Takes a norm that may be absent.
    pub(crate) fn optional_norm(
        &mut self,
        spec: Option<&NormSpec>,
    ) -> Result<Option<B::Norm>, ModelError> {
        spec.map(|spec| self.norm(spec, 1)).transpose()
    }

    /// Takes a table.
    pub(crate) fn table(
        &mut self,
        base: &str,
        rows: usize,
        width: usize,
    ) -> Result<B::Table, ModelError> {
        let source = self.source.table(base, rows, width)?;
        self.tally.mapped_bytes += (source.rows * source.width * source.dtype.bytes()) as u64;
        Ok(self.backend.table(source)?)
    }
}
