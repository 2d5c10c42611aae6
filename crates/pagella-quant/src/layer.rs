//! One layer at a time: laid out with the weights of the moment, run over rows of calibration, what
//! enters its linears written down.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use pagella_arch::{LinearSpec, ModelSpec};
use pagella_backend::{Backend, LogitUse, PAGE_TOKENS, StepPlan, StepRow};
use pagella_formats::{Checkpoint, Dtype, Linear, PlainLinear};
use pagella_model::{LoadOptions, ModelPart, Walk, Walker};

use crate::calibration::Rows;
use crate::error::QuantError;
use crate::linear::QuantizedLinear;
use crate::observed::{Inputs, Observed, Observer};

/// A model whose layers can be run one by one, under observation.
pub struct Machine<B: Backend> {
    /// The checked source.
    pub walk: Walk<Observed<B>>,
}

/// What entered linears in one row of calibration.
pub(crate) struct Seen {
    /// Numbers of the linears.
    pub linears: Vec<usize>,
    /// `[tokens, width]`.
    pub rows: Vec<f32>,
    /// Elements per token.
    pub width: usize,
}

/// Weights that stand in for those of the source, by number.
#[derive(Default)]
pub(crate) struct Replaced {
    linears: BTreeMap<usize, StandIn>,
    /// Where a whole part was written.
    file: Option<Arc<Checkpoint>>,
    /// The only ones of the file that count.
    numbers: Option<Vec<usize>>,
}

/// A quantised linear as a plain one.
struct StandIn {
    name: String,
    inputs: usize,
    outputs: usize,
    /// binary16, `[out, in]`.
    bytes: Vec<u8>,
    bias: Option<Vec<f32>>,
}

impl Replaced {
    /// What stands in a file that was written for the part.
    pub fn from_file(path: &Path) -> Result<Self, QuantError> {
        let file = Some(Arc::new(Checkpoint::open_file(path)?));
        Ok(Self { linears: BTreeMap::new(), file, numbers: None })
    }

    /// Only these linears of the file.
    pub fn only(&self, numbers: &[usize]) -> Self {
        let file = self.file.clone();
        Self { linears: BTreeMap::new(), file, numbers: Some(numbers.to_vec()) }
    }

    /// Puts a linear in the place of the source's.
    pub fn put(&mut self, number: usize, linear: &QuantizedLinear, bias: Option<Vec<f32>>) {
        let weights = linear.dequantized();
        let bytes = weights.plain().into_iter().flat_map(half::f16::to_le_bytes).collect();
        let (name, inputs, outputs) =
            (weights.name().to_owned(), weights.inputs(), weights.outputs());
        self.linears.insert(number, StandIn { name, inputs, outputs, bytes, bias });
    }

    fn get(&self, number: usize, spec: &LinearSpec) -> Option<Linear<'_>> {
        if let Some(file) = &self.file {
            let counts = self.numbers.as_ref().is_none_or(|numbers| numbers.contains(&number));
            return counts.then(|| load_written(file, spec)).flatten();
        }
        let StandIn { name, inputs, outputs, bytes, bias } = self.linears.get(&number)?;
        Some(Linear::Plain(PlainLinear {
            name: name.clone(),
            in_features: *inputs,
            out_features: *outputs,
            dtype: Dtype::F16,
            transposed: false,
            data: bytes,
            stride: *inputs,
            ranges: vec![std::ops::Range { start: 0, end: *outputs }],
            bias: bias.clone(),
            tensors: Vec::new(),
        }))
    }
}

/// A linear as this program has written it; `None` if the file does not have it quantised.
pub(crate) fn load_written<'a>(file: &'a Checkpoint, spec: &LinearSpec) -> Option<Linear<'a>> {
    let request = pagella_formats::LinearRequest {
        bases: spec.bases.get(..1)?,
        fused: None,
        in_features: spec.in_features,
        out_features: spec.out_features,
        bias: pagella_formats::BiasRule::IfPresent,
        transposed: false,
        gptq_zeros: pagella_formats::GptqZeros::LessOne,
    };
    let linear = pagella_formats::load_linear(file, &request).ok()?;
    matches!(linear, Linear::Exl2(_)).then_some(linear)
}

/// Numbers linears as they are laid out, and gives those that are replaced.
struct Numbering<'a, B: Backend> {
    observed: &'a Observed<B>,
    specs: Vec<&'a LinearSpec>,
    replaced: &'a Replaced,
    is_watched: &'a (dyn Fn(usize) -> bool + 'a),
}

impl<B: Backend> Walker for Numbering<'_, B> {
    fn weights(&self, linear: &LinearSpec) -> Option<Linear<'_>> {
        let number = self.specs.iter().position(|spec| std::ptr::eq(*spec, linear));
        self.observed.name_next(number.filter(|number| (self.is_watched)(*number)));
        self.replaced.get(number?, linear)
    }
}

/// Writes down what it sees.
struct Recorder(Arc<Mutex<Vec<Seen>>>);

impl Observer for Recorder {
    fn see(&mut self, inputs: &Inputs<'_>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Seen {
            linears: inputs.linears.to_vec(),
            rows: inputs.rows.to_vec(),
            width: inputs.width,
        });
    }
}

impl<B: Backend + Clone> Machine<B> {
    /// Opens a source for rows of `tokens` tokens.
    pub fn open(
        dir: &Path,
        mut spec: ModelSpec,
        backend: B,
        tokens: usize,
    ) -> Result<Self, QuantError> {
        // Rotary tables are as long as what is run through them.
        spec.context = spec.context.min(tokens.next_multiple_of(PAGE_TOKENS));
        let options = LoadOptions { step_tokens_max: tokens.max(1), ..LoadOptions::default() };
        Ok(Self { walk: Walk::open(dir, spec, Observed::new(backend), &options)? })
    }

    /// The model as data.
    pub fn spec(&self) -> &ModelSpec {
        self.walk.spec()
    }

    /// Lays out a layer; linears that are watched show what enters them.
    pub(crate) fn layer(
        &self,
        index: usize,
        tokens: usize,
        replaced: &Replaced,
        is_watched: &dyn Fn(usize) -> bool,
    ) -> Result<ModelPart<Observed<B>>, QuantError> {
        let linears = self.spec().layers[index].linear_specs();
        let specs = linears.into_iter().map(|(_, spec)| spec).collect();
        let observed = self.walk.backend();
        let numbering = Numbering { observed, specs, replaced, is_watched };
        Ok(self.walk.layer(index, tokens, &numbering)?)
    }

    /// Lays out the head; it has the number 0.
    pub(crate) fn head(
        &self,
        replaced: &Replaced,
        is_watched: bool,
    ) -> Result<ModelPart<Observed<B>>, QuantError> {
        let specs = vec![&self.spec().head.linear];
        let observed = self.walk.backend();
        let numbering = Numbering { observed, specs, replaced, is_watched: &|_| is_watched };
        Ok(self.walk.head(&numbering)?)
    }

    /// Runs a row of calibration through a part and says what entered watched linears.
    pub(crate) fn run(
        &self,
        part: &mut ModelPart<Observed<B>>,
        plan: &StepPlan,
        states: &mut Vec<f32>,
    ) -> Result<Vec<Seen>, QuantError> {
        let seen = Arc::default();
        let observed = self.walk.backend();
        observed.observe(Some(Box::new(Recorder(Arc::clone(&seen)))));
        let done = part.run(plan, states);
        observed.observe(None);
        done?;
        let seen = std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(seen)
    }
}

/// The step that feeds one row of calibration from its beginning.
pub(crate) fn row_plan(rows: &Rows, row: usize, logits: LogitUse) -> Result<StepPlan, QuantError> {
    let ids = rows.row(row);
    let pages: Vec<u32> = (0..ids.len().div_ceil(PAGE_TOKENS) as u32).collect();
    Ok(StepPlan::new(&[StepRow::new(ids, 0, &pages, logits)])?)
}
