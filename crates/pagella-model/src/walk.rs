//! `Walk`: a model run one part at a time, with the weights of that part alone in memory.
//!
//! For work that looks at every layer by itself, such as quantising. Hidden states pass between
//! parts through the host, so that several texts can go through one part before the next is laid
//! out. Whoever walks may give a linear other weights than the files do. The pass is that of
//! [`Model`](crate::Model): a part is one of its stages.

use std::path::Path;
use std::sync::Arc;

use pagella_arch::{LinearSpec, ModelSpec, NormSpec};
use pagella_backend::{Backend, KvFormat, NormWeights, StepPlan, TableSource};
use pagella_formats::{Checkpoint, Linear};

use crate::block::{Embedding, Layer, Until, check_backend};
use crate::cache::kv_spec;
use crate::error::ModelError;
use crate::forward::TappedStates;
use crate::head::Head;
use crate::load::{LoadOptions, Loader};
use crate::memory::Tally;
use crate::progress::{Module, Progress};
use crate::stage::Stage;
use crate::survey::{Survey, check_blocks, gptq_zeros, open, survey};
use crate::unused;
use crate::weights::{CheckpointSource, LinearUse, WeightSource};

/// Whoever walks: it hears which linear is laid out next and may give it other weights.
pub trait Walker {
    /// Called right before the linear is laid out. `Some` takes the place of what the files hold and
    /// has the same shape.
    fn weights(&self, linear: &LinearSpec) -> Option<Linear<'_>>;
}

/// Walks with the weights of the files.
pub struct AsStored;

impl Walker for AsStored {
    fn weights(&self, _linear: &LinearSpec) -> Option<Linear<'_>> {
        None
    }
}

/// A checked directory whose parts can be laid out one after the other.
pub struct Walk<B: Backend> {
    spec: ModelSpec,
    backend: B,
    checkpoint: Arc<Checkpoint>,
    survey: Survey,
    step_tokens_max: usize,
}

impl<B: Backend + Clone> Walk<B> {
    /// Opens the weights of `dir` and checks all of them, as [`Model::load`](crate::Model::load) does.
    pub fn open(
        dir: &Path,
        spec: ModelSpec,
        backend: B,
        options: &LoadOptions,
    ) -> Result<Self, ModelError> {
        options.check()?;
        check_blocks(&spec)?;
        check_backend(&spec, &backend)?;
        let checkpoint = Arc::new(open(dir, &spec)?);
        let survey = survey(&checkpoint, &spec)?;
        if !options.ignore_unused_tensors {
            unused::refuse(&checkpoint, &survey.unused)?;
        }
        Ok(Self { spec, backend, checkpoint, survey, step_tokens_max: options.step_tokens_max })
    }

    /// The model as data.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// The tensors, under the names that the spec uses.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// What the files hold.
    pub fn survey(&self) -> &Survey {
        &self.survey
    }

    /// The machine that parts are laid out for.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// Passes a linear as the files hold it to `take` and gives its file pages back.
    pub fn linear<T>(
        &self,
        spec: &LinearSpec,
        take: impl FnOnce(&Linear<'_>) -> T,
    ) -> Result<T, ModelError> {
        self.stored().linear(spec, LinearUse::Layer, |linear| Ok(take(linear)))
    }

    fn stored(&self) -> CheckpointSource {
        let gptq_zeros = gptq_zeros(&self.spec);
        CheckpointSource { checkpoint: self.checkpoint.clone(), gptq_zeros }
    }

    fn loader<'a>(&'a self, walker: &'a dyn Walker) -> Loader<'a, B, WalkSource<'a>> {
        Loader {
            backend: &self.backend,
            source: WalkSource { stored: self.stored(), walker },
            step_tokens_max: self.step_tokens_max,
            tally: Tally::default(),
        }
    }

    fn stage(
        &self,
        range: std::ops::Range<usize>,
        layers: Vec<Layer<B>>,
        tokens: usize,
    ) -> Result<ModelPart<B>, ModelError> {
        let kv_spec = kv_spec(&self.spec.layers[range.clone()], KvFormat::F16, tokens);
        let kv = self.backend.kv(&kv_spec)?;
        let backend = self.backend.clone();
        let stage = Stage::new(backend, &self.spec, range, layers, self.step_tokens_max)?;
        Ok(ModelPart { stage, kv, hidden: self.spec.hidden })
    }

    /// Ids to hidden states.
    pub fn embedding(&self) -> Result<ModelPart<B>, ModelError> {
        let mut part = self.stage(0..0, Vec::new(), 1)?;
        part.stage.embed = Some(Embedding::load(&self.spec, &mut self.loader(&AsStored))?);
        Ok(part)
    }

    /// One layer, with a cache of `tokens` tokens: steps may fill it from position 0 again and again.
    pub fn layer(
        &self,
        index: usize,
        tokens: usize,
        walker: &dyn Walker,
    ) -> Result<ModelPart<B>, ModelError> {
        let layers = self.spec.layers.len();
        let layer = self.spec.layers.get(index);
        let layer = layer.ok_or(ModelError::NoSuchLayer { layer: index, layers })?;
        let module = || Module { name: String::new(), bytes: 0 };
        let mut go_on = |_: &crate::LoadProgress<'_>| std::ops::ControlFlow::Continue(());
        let mut progress = Progress::new(vec![module(), module()], &mut go_on);
        // The cache of a part has one layer.
        let laid_out = Layer::load(0, layer, &mut self.loader(walker), &mut progress)?;
        self.stage(index..index + 1, vec![laid_out], tokens)
    }

    /// Hidden states to logits.
    pub fn head(&self, walker: &dyn Walker) -> Result<ModelPart<B>, ModelError> {
        let n = self.spec.layers.len();
        let mut part = self.stage(n..n, Vec::new(), 1)?;
        let mut loader = self.loader(walker);
        let norm = Head::load_norm(&self.spec.final_norm, &mut loader)?;
        part.stage.head = Some(Head::load(&self.spec.head, norm, &mut loader)?);
        Ok(part)
    }
}

/// A part of a model that is laid out: the embedding, a layer or the head.
pub struct ModelPart<B: Backend> {
    stage: Stage<B>,
    kv: B::Kv,
    hidden: usize,
}

impl<B: Backend> ModelPart<B> {
    /// Runs the plan's tokens through the part and replaces `states`, `[tokens, hidden]`, by what
    /// comes out. The embedding looks at the ids and not at the states; the head leaves them.
    pub fn run(&mut self, plan: &StepPlan, states: &mut Vec<f32>) -> Result<(), ModelError> {
        let tokens = plan.tokens();
        if self.stage.embed.is_none() {
            let (expected, found) = (tokens * self.hidden, states.len());
            if expected != found {
                let what = "hidden states";
                return Err(pagella_backend::BackendError::Size { what, expected, found }.into());
            }
            self.stage.receive(tokens, states)?;
        }
        self.stage.workspace.logits.clear();
        let mut taps = TappedStates::new(&[], 0)?;
        self.stage.run(plan, &mut self.kv, &mut taps, Until::End, None)?;
        if self.stage.head.is_none() {
            self.stage.backend.read(&self.stage.workspace.residual, tokens, states)?;
        }
        Ok(())
    }

    /// The logits of the last step's `logit_tokens`, `[n, vocab]`; replaces `out`. Only of the head.
    pub fn read_logits(&self, out: &mut Vec<f32>) -> Result<(), ModelError> {
        out.clear();
        self.stage.workspace.logits.read(&self.stage.backend, out)
    }
}

/// The files, with what the walker puts in the place of some linears.
struct WalkSource<'a> {
    stored: CheckpointSource,
    walker: &'a dyn Walker,
}

impl WeightSource for WalkSource<'_> {
    fn linear<T>(
        &mut self,
        spec: &LinearSpec,
        usage: LinearUse,
        take: impl FnOnce(&Linear<'_>) -> Result<T, ModelError>,
    ) -> Result<T, ModelError> {
        match self.walker.weights(spec) {
            Some(linear) => take(&linear),
            None => self.stored.linear(spec, usage, take),
        }
    }

    fn norm(&mut self, spec: &NormSpec, heads: usize) -> Result<NormWeights, ModelError> {
        self.stored.norm(spec, heads)
    }

    fn vector(&mut self, base: &str, len: usize) -> Result<Vec<f32>, ModelError> {
        self.stored.vector(base, len)
    }

    fn table(&mut self, base: &str, rows: usize, width: usize) -> Result<TableSource, ModelError> {
        self.stored.table(base, rows, width)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use pagella_arch::{SpecOptions, load_spec};
    use pagella_backend::{LogitUse, StepRow};
    use pagella_cpu::{CpuBackend, CpuOptions};

    use super::*;
    use crate::Model;

    #[test]
    fn part_by_part_gives_the_bits_of_the_whole() {
        let dir = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/demo"));
        let spec = || load_spec(dir, &SpecOptions::default()).unwrap();
        let cpu = || CpuBackend::new(CpuOptions::default()).unwrap();
        let ids: Vec<u32> = (5..35).collect();
        let use_ = LogitUse::Score { choice: false };
        let plan = StepPlan::new(&[StepRow::new(&ids, 0, &[0], use_)]).unwrap();
        let options = LoadOptions::default();

        let go_on = &mut |_: &crate::LoadProgress<'_>| ControlFlow::Continue(());
        let mut model = Model::load(dir, spec(), cpu(), &options, go_on).unwrap();
        let mut kv = model.new_kv(KvFormat::F16, 256).unwrap();
        model.forward(&plan, &mut kv).unwrap();
        let mut whole = Vec::new();
        model.read_logits(&mut whole).unwrap();

        let walk = Walk::open(dir, spec(), cpu(), &options).unwrap();
        let mut states = Vec::new();
        walk.embedding().unwrap().run(&plan, &mut states).unwrap();
        for index in 0..walk.spec().layers.len() {
            let mut layer = walk.layer(index, 256, &AsStored).unwrap();
            // What another text has left in the cache makes no difference.
            layer.run(&plan, &mut states.iter().map(|x| x + 1.0).collect()).unwrap();
            layer.run(&plan, &mut states).unwrap();
        }
        let mut head = walk.head(&AsStored).unwrap();
        head.run(&plan, &mut states).unwrap();
        let mut parts = Vec::new();
        head.read_logits(&mut parts).unwrap();
        assert_eq!(parts.len(), 30 * walk.spec().vocab);
        assert!(parts == whole);
        assert!(head.run(&plan, &mut vec![0.0; 7]).is_err());
    }
}
