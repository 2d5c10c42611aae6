//! The first pass: on the unquantised model every linear is rounded in every way, and what the loss of
//! each means is measured at the model's answers.
//!
//! Losses are kept layer by layer. Then all linears, each rounded for itself, go through the layers
//! after them side by side, so that every layer is laid out once; the divergence of what comes out over
//! the loss of what went in is how sensitive the model is to the linear.

use std::path::PathBuf;

use pagella_backend::{Backend, LogitUse};
use pagella_model::ModelPart;

use crate::calibration::Rows;
use crate::error::QuantError;
use crate::factor::{Factor, FactorOptions};
use crate::job::{Job, write_text};
use crate::layer::{Machine, Replaced, row_plan};
use crate::linear::{QuantizedLinear, Recipe};
use crate::measured::{Measured, MeasuredLinear};
use crate::mixture::LossTable;
use crate::observed::Observed;
use crate::plan::{HEAD_NUMBER, PlannedLinear, Role, half_key, is_groupable, name_of, plan_layer};
use crate::progress::Ticker;
use crate::states::States;
use crate::sums::{Known, Sums};
use crate::write::{Kept, OwnedTensor, write_part};

/// Rows at which divergence is measured: one as the model writes, one beyond.
const PROBE_ROWS: usize = 2;

/// Rows that losses are measured with at most.
const LOSS_ROWS_MAX: usize = 16;

/// What a rounded linear counts for at least: a share of what the worst one does, in nats per token, or
/// so much where none does anything.
const LEAST_SHARE: f64 = 1e-6;
const LEAST_DIVERGENCE: f64 = 1e-12;

/// Share of the pass that losses take, for progress.
const LOSSES_SHARE: f64 = 0.6;

/// The pass over one source.
pub(crate) struct Measuring<'a, B: Backend> {
    pub machine: &'a Machine<B>,
    pub rows: &'a Rows,
    pub recipe: &'a Recipe,
    pub job: &'a Job,
    pub low_memory: bool,
}

/// Hidden states of the probe rows of a model of which some linears are rounded.
struct Variant {
    /// The linears.
    linears: Vec<String>,
    states: Vec<Vec<f32>>,
}

impl<B: Backend + Clone> Measuring<'_, B> {
    /// Measures what was not measured yet.
    pub fn run(&self, ticker: &mut Ticker<'_, '_>) -> Result<Measured, QuantError> {
        let file = self.file("measured.json")?;
        if file.exists()
            && let Some(measured) = Measured::load(&file)?
        {
            return Ok(measured);
        }
        let layers = self.machine.spec().layers.len();
        let mut linears = Vec::new();
        let mut stream = self.stream()?;
        let share = LOSSES_SHARE / (layers + 1) as f64;
        for layer in 0..layers {
            ticker.tick(layer as f64 * share, &format!("layers.{layer}"))?;
            linears.extend(self.layer_losses(layer, &mut stream)?);
        }
        ticker.tick(layers as f64 * share, "head")?;
        linears.extend(self.head_losses(&mut stream)?);
        drop(stream);
        self.weigh(&mut linears, ticker)?;
        let measured = Measured { linears };
        measured.save(&file)?;
        Ok(Measured::load(&file)?.unwrap_or(measured))
    }

    fn file(&self, name: &str) -> Result<PathBuf, QuantError> {
        Ok(self.job.sub_dir("measure")?.join(name))
    }

    fn stream(&self) -> Result<States, QuantError> {
        let elements = self.rows.length() * self.machine.spec().hidden;
        let path = self.file("states")?;
        let mut stream =
            States::new(self.rows.count(), elements, self.low_memory.then_some(path.as_path()))?;
        let mut part = self.machine.walk.embedding()?;
        let mut states = Vec::new();
        for row in self.loss_rows() {
            part.run(&row_plan(self.rows, row, LogitUse::None)?, &mut states)?;
            stream.write(row, &states)?;
        }
        Ok(stream)
    }

    /// Losses of the linears of a layer, whose end the stream reaches.
    fn layer_losses(
        &self,
        index: usize,
        stream: &mut States,
    ) -> Result<Vec<MeasuredLinear>, QuantError> {
        let file = self.file(&format!("losses-{index:05}.json"))?;
        let spec = &self.machine.spec().layers[index];
        let plan = plan_layer(spec);
        let is_done = file.exists();
        let watched = |number: usize| !is_done && plan.iter().any(|linear| linear.number == number);
        let mut part =
            self.machine.layer(index, self.rows.length(), &Replaced::default(), &watched)?;
        let sums = self.observe(&mut part, stream, LogitUse::None)?;
        if is_done {
            return read_losses(&file);
        }
        drop(part);
        let name = |number: usize| {
            plan.iter().find(|l| l.number == number).map_or(String::new(), |l| l.name.clone())
        };
        let keys: Vec<Option<usize>> = plan.iter().map(|linear| sums.key(linear.number)).collect();
        let pooled = sums.pooled();
        let known = sums.finish(name)?;
        let (mut measured, mut probes) = (Vec::new(), Vec::new());
        let mut factor: Option<(Option<usize>, Factor)> = None;
        for (linear, key) in plan.iter().zip(keys) {
            let own = key.and_then(|key| known.get(&key));
            let own = own.filter(|known| !is_starved(linear, known));
            let key = key.filter(|_| own.is_some());
            if factor.as_ref().is_none_or(|(of, _)| *of != key || key.is_none()) {
                let hessian = match own {
                    Some(known) => &known.hessian,
                    None => &pooled.get(linear.inputs, &linear.name)?,
                };
                factor = Some((key, Factor::new(hessian, &FactorOptions::default())?));
            }
            let Some((_, factor)) = &factor else { continue };
            let linear_spec = spec.linear_specs()[linear.number].1;
            let half = Some(half_key(self.machine.spec(), index, linear.half()));
            let (table, probe) = self.losses(linear_spec, &linear.name, factor)?;
            probes.extend(tensors(&linear.name, &probe)?);
            probes.extend(self.bias(linear_spec, &linear.name)?);
            let (weights, inputs, role) = (linear.weights(), linear.inputs, linear.role);
            measured.push(MeasuredLinear { table, weights, inputs, sensitivity: 0.0, half, role });
        }
        write_part(&self.file(&format!("probes-{index:05}.safetensors"))?, &probes)?;
        write_losses(&file, &measured)?;
        // Numbers as the file has them, so that a measurement that goes on sees the same.
        read_losses(&file)
    }

    /// Losses of the head.
    fn head_losses(&self, stream: &mut States) -> Result<Option<MeasuredLinear>, QuantError> {
        let file = self.file("losses-head.json")?;
        let head = &self.machine.spec().head.linear;
        if !is_groupable(head) {
            return Ok(None);
        }
        if file.exists() {
            return Ok(read_losses(&file)?.pop());
        }
        let mut part = self.machine.head(&Replaced::default(), true)?;
        let sums = self.observe(&mut part, stream, LogitUse::Score { choice: false })?;
        drop(part);
        let name = name_of(head).unwrap_or_default();
        let known = sums.finish(|_| name.clone())?;
        let Some(Known { hessian, .. }) = known.get(&HEAD_NUMBER) else { return Ok(None) };
        let factor = Factor::new(hessian, &FactorOptions::default())?;
        let (table, probe) = self.losses(head, &name, &factor)?;
        let mut probe = tensors(&name, &probe)?;
        probe.extend(self.bias(head, &name)?);
        write_part(&self.file("probes-head.safetensors")?, &probe)?;
        let measured = MeasuredLinear {
            table,
            weights: 0,
            inputs: head.in_features,
            sensitivity: 0.0,
            half: None,
            role: Role::Output,
        };
        write_losses(&file, std::slice::from_ref(&measured))?;
        Ok(read_losses(&file)?.pop())
    }

    /// The rows that losses are measured with: all, or some that lie evenly.
    fn loss_rows(&self) -> impl Iterator<Item = usize> + use<B> {
        let count = self.rows.count();
        let n = count.min(LOSS_ROWS_MAX);
        (0..n).map(move |row| row * count / n)
    }

    fn observe(
        &self,
        part: &mut ModelPart<Observed<B>>,
        stream: &mut States,
        logits: LogitUse,
    ) -> Result<Sums, QuantError> {
        let mut sums = Sums::default();
        let mut states = Vec::new();
        for row in self.loss_rows() {
            stream.read(row, &mut states)?;
            for seen in self.machine.run(part, &row_plan(self.rows, row, logits)?, &mut states)? {
                sums.add(&seen, None);
            }
            stream.write(row, &states)?;
        }
        Ok(sums)
    }

    fn bias(
        &self,
        spec: &pagella_arch::LinearSpec,
        name: &str,
    ) -> Result<Option<OwnedTensor>, QuantError> {
        let kept = Kept::new(self.machine.walk.checkpoint(), self.machine.spec());
        Ok(self.machine.walk.linear(spec, |linear| kept.bias(name, linear))?)
    }

    fn losses(
        &self,
        spec: &pagella_arch::LinearSpec,
        name: &str,
        factor: &Factor,
    ) -> Result<(LossTable, QuantizedLinear), QuantError> {
        let (weights, bias) = self.machine.weights(spec, name)?;
        LossTable::measure(&weights, factor, bias.is_some(), self.recipe)
    }

    /// Finds the sensitivity of every linear.
    fn weigh(
        &self,
        linears: &mut [MeasuredLinear],
        ticker: &mut Ticker<'_, '_>,
    ) -> Result<(), QuantError> {
        let (base, mut variants) = self.spread(ticker)?;
        let mut divergences = self.divergences(&base, &variants, ticker)?;
        if let Some(head) = linears.iter().find(|linear| linear.half.is_none()) {
            divergences.push(self.divergence_by_head(&base)?);
            let linears = vec![head.table.linear.clone()];
            variants.push(Variant { linears, states: Vec::new() });
        }
        // Where the answers are so sure that nothing moves them, losses count all the same.
        let largest = divergences.iter().copied().fold(0.0, f64::max);
        let least = (LEAST_SHARE * largest).max(LEAST_DIVERGENCE);
        for (variant, divergence) in variants.iter().zip(divergences) {
            let divergence = divergence.max(least);
            let is_in =
                |linear: &&mut MeasuredLinear| variant.linears.contains(&linear.table.linear);
            let loss: f64 = linears
                .iter()
                .filter(|linear| variant.linears.contains(&linear.table.linear))
                .map(|linear| linear.table.reference_loss())
                .sum();
            let sensitivity = if loss > 0.0 { divergence / loss } else { 0.0 };
            linears.iter_mut().filter(is_in).for_each(|linear| linear.sensitivity = sensitivity);
        }
        Ok(())
    }

    /// Takes the probe rows through all layers, once as they are and once for every rounded linear.
    fn spread(&self, ticker: &mut Ticker<'_, '_>) -> Result<(Variant, Vec<Variant>), QuantError> {
        let layers = self.machine.spec().layers.len();
        let mut base = Variant { linears: Vec::new(), states: Vec::new() };
        let mut embedding = self.machine.walk.embedding()?;
        for row in 0..self.probe_rows() {
            let mut states = Vec::new();
            embedding.run(&row_plan(self.rows, row, LogitUse::None)?, &mut states)?;
            base.states.push(states);
        }
        let mut variants: Vec<Variant> = Vec::new();
        for index in 0..layers {
            let done = LOSSES_SHARE + (1.0 - LOSSES_SHARE) * (index as f64 / layers as f64).powi(2);
            let plan = plan_layer(&self.machine.spec().layers[index]);
            let probes =
                Replaced::from_file(&self.file(&format!("probes-{index:05}.safetensors"))?)?;
            let mut born = Vec::new();
            for group in probe_groups(&plan) {
                ticker.tick(done, &format!("layers.{index}"))?;
                let numbers: Vec<usize> = group.iter().map(|linear| linear.number).collect();
                let chosen = probes.only(&numbers);
                let mut part =
                    self.machine.layer(index, self.rows.length(), &chosen, &|_| false)?;
                let mut variant = Variant {
                    linears: group.iter().map(|linear| linear.name.clone()).collect(),
                    states: base.states.clone(),
                };
                self.advance(&mut part, &mut variant)?;
                born.push(variant);
            }
            let mut part =
                self.machine.layer(index, self.rows.length(), &Replaced::default(), &|_| false)?;
            self.advance(&mut part, &mut base)?;
            for variant in &mut variants {
                ticker.tick(done, &format!("layers.{index}"))?;
                self.advance(&mut part, variant)?;
            }
            variants.extend(born);
        }
        Ok((base, variants))
    }

    fn probe_rows(&self) -> usize {
        PROBE_ROWS.min(self.rows.count())
    }

    fn advance(
        &self,
        part: &mut ModelPart<Observed<B>>,
        variant: &mut Variant,
    ) -> Result<(), QuantError> {
        for (row, states) in variant.states.iter_mut().enumerate() {
            part.run(&row_plan(self.rows, row, LogitUse::None)?, states)?;
        }
        Ok(())
    }

    /// How far the answers of each variant are from those of the model, in nats per token.
    fn divergences(
        &self,
        base: &Variant,
        variants: &[Variant],
        ticker: &mut Ticker<'_, '_>,
    ) -> Result<Vec<f64>, QuantError> {
        let mut head = self.machine.head(&Replaced::default(), false)?;
        let mut sums = vec![0.0; variants.len()];
        let (mut expected, mut found) = (Vec::new(), Vec::new());
        let mut tokens = 0;
        for row in 0..base.states.len() {
            let plan = row_plan(self.rows, row, LogitUse::Score { choice: false })?;
            tokens += plan.logit_tokens().len();
            let mut states = base.states[row].clone();
            head.run(&plan, &mut states)?;
            head.read_logits(&mut expected)?;
            for (sum, variant) in sums.iter_mut().zip(variants) {
                ticker.tick(0.99, "head")?;
                states.clone_from(&variant.states[row]);
                head.run(&plan, &mut states)?;
                head.read_logits(&mut found)?;
                *sum += divergence(&expected, &found, self.machine.spec().vocab);
            }
        }
        Ok(sums.into_iter().map(|sum| sum / tokens.max(1) as f64).collect())
    }
}

impl<B: Backend + Clone> Measuring<'_, B> {
    /// How far the answers through a rounded head are from those of the model, in nats per token.
    fn divergence_by_head(&self, base: &Variant) -> Result<f64, QuantError> {
        let probe = Replaced::from_file(&self.file("probes-head.safetensors")?)?;
        let mut heads =
            [self.machine.head(&Replaced::default(), false)?, self.machine.head(&probe, false)?];
        let (mut sum, mut tokens) = (0.0, 0);
        for (row, states) in base.states.iter().enumerate() {
            let plan = row_plan(self.rows, row, LogitUse::Score { choice: false })?;
            tokens += plan.logit_tokens().len();
            let mut logits = [Vec::new(), Vec::new()];
            for (head, logits) in heads.iter_mut().zip(&mut logits) {
                head.run(&plan, &mut states.clone())?;
                head.read_logits(logits)?;
            }
            let [expected, found] = &logits;
            sum += divergence(expected, found, self.machine.spec().vocab);
        }
        Ok(sum / tokens.max(1) as f64)
    }
}

/// Linears that are probed together: experts by their role, all others one by one.
fn probe_groups(plan: &[PlannedLinear]) -> Vec<Vec<&PlannedLinear>> {
    let mut groups: Vec<Vec<&PlannedLinear>> = Vec::new();
    for linear in plan {
        let known = groups.iter_mut().find(|group| {
            linear.expert.is_some()
                && group.iter().all(|other| other.expert.is_some() && other.role == linear.role)
        });
        match known {
            Some(group) => group.push(linear),
            None => groups.push(vec![linear]),
        }
    }
    groups
}

/// Whether an expert saw too little for a Hessian of its own.
pub(crate) fn is_starved(linear: &PlannedLinear, known: &Known) -> bool {
    let needed = linear.inputs as f64 * crate::pass::TOKENS_PER_INPUT_MIN;
    linear.expert.is_some() && (known.tokens as f64) < needed
}

/// `Σ KL(expected ‖ found)` over rows of logits, in nats.
pub(crate) fn divergence(expected: &[f32], found: &[f32], vocab: usize) -> f64 {
    use rayon::prelude::*;
    let rows: Vec<f64> = expected
        .par_chunks_exact(vocab.max(1))
        .zip(found.par_chunks_exact(vocab.max(1)))
        .map(|(expected, found)| divergence_of_row(expected, found))
        .collect();
    rows.iter().sum()
}

fn divergence_of_row(expected: &[f32], found: &[f32]) -> f64 {
    let norm = |logits: &[f32]| {
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|logit| f64::from(logit - largest).exp()).sum();
        f64::from(largest) + sum.ln()
    };
    let (a, b) = (norm(expected), norm(found));
    let term = |(x, y): (&f32, &f32)| {
        let log = f64::from(*x) - a;
        log.exp() * (log - (f64::from(*y) - b))
    };
    expected.iter().zip(found).map(term).sum::<f64>().max(0.0)
}

fn tensors(name: &str, linear: &QuantizedLinear) -> Result<Vec<OwnedTensor>, QuantError> {
    let packed = linear.tensors()?;
    let owned = packed.named(name).into_iter().map(|tensor| OwnedTensor {
        name: tensor.name,
        dtype: tensor.dtype,
        shape: tensor.shape,
        data: tensor.data.to_vec(),
    });
    Ok(owned.collect())
}

fn write_losses(path: &std::path::Path, losses: &[MeasuredLinear]) -> Result<(), QuantError> {
    let text = serde_json::to_string(losses).map_err(|error| QuantError::Io {
        path: path.to_owned(),
        action: "cannot write",
        source: error.into(),
    })?;
    write_text(path, &text)
}

fn read_losses(path: &std::path::Path) -> Result<Vec<MeasuredLinear>, QuantError> {
    let text = std::fs::read_to_string(path).map_err(QuantError::io(path, "cannot read"))?;
    serde_json::from_str(&text).map_err(|error| QuantError::Measurement {
        path: path.to_owned(),
        place: "losses".to_owned(),
        fault: error.to_string(),
    })
}
