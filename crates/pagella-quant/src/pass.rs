//! The second pass: layer by layer, each linear is quantised for what the quantised layers before it
//! give it, and corrected for what they have lost.
//!
//! Two streams of hidden states run through the rows of calibration: through the unquantised model and
//! through the one in the making. Every part is written when it is done; a pass that goes on runs the
//! streams through the parts that are there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pagella_backend::{Backend, LogitUse};
use pagella_formats::LinearKind;
use pagella_model::ModelPart;

use crate::calibration::Rows;
use crate::error::QuantError;
use crate::factor::{Factor, FactorOptions};
use crate::hessian::Hessian;
use crate::layer::{Machine, Replaced, Seen, row_plan};
use crate::layout::GroupLayout;
use crate::linear::{QuantizedLinear, Recipe, quantize_linear};
use crate::observed::Observed;

use crate::plan::{HEAD_NUMBER, PlannedLinear, name_of, plan_layer};
use crate::progress::Ticker;
use crate::refine::refine_linear;
use crate::states::States;
use crate::sums::Sums;
use crate::target::{Shift, shifted_target};
use crate::weights::WeightMatrix;
use crate::write::{Kept, OwnedTensor, write_part};

/// Tokens below which an expert's own Hessian says too little, per input.
pub(crate) const TOKENS_PER_INPUT_MIN: f64 = 0.25;

/// How often the codes of a linear are gone through again after it was rounded.
const REFINE_PASSES: usize = 2;

/// An expert that saw too little and was quantised with what its neighbours saw.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct StarvedExpert {
    /// The linear.
    pub linear: String,
    /// Tokens that it saw.
    pub tokens: u64,
}

/// One quantised model in the making.
pub(crate) struct Pass<'a, B: Backend> {
    pub machine: &'a Machine<B>,
    pub rows: &'a Rows,
    /// Groups of every linear by name.
    pub layouts: &'a BTreeMap<String, GroupLayout>,
    pub recipe: &'a Recipe,
    /// Where parts are written.
    pub dir: &'a Path,
    /// Keep states in files and little else.
    pub low_memory: bool,
}

/// A quantised linear and its bias.
type Made = (QuantizedLinear, Option<Vec<f32>>);

/// Hidden states of all rows through both models.
struct Streams {
    full: States,
    quantized: States,
}

impl<B: Backend + Clone> Pass<'_, B> {
    /// Makes all parts that are not there yet; gives the experts that saw too little.
    pub fn run(&self, ticker: &mut Ticker<'_, '_>) -> Result<Vec<StarvedExpert>, QuantError> {
        let layers = self.machine.spec().layers.len();
        let total = (layers + 1) as f64;
        ticker.tick(0.0, "embedding")?;
        if !self.embedding_file().exists() {
            let senses = self.machine.walk.survey().unused.iter().filter(|u| u.kind.is_sense());
            let names: Vec<String> = senses.flat_map(|unused| unused.names.clone()).collect();
            if !names.is_empty() {
                write_part(&self.senses_file(), &self.kept().verbatim(&names)?)?;
            }
            write_part(&self.embedding_file(), &self.kept().embedding()?)?;
        }
        if self.head_file().exists() {
            return self.all_starved();
        }
        let mut streams = self.embed()?;
        for layer in 0..layers {
            ticker.tick(layer as f64 / total, &format!("layers.{layer}"))?;
            self.layer(layer, &mut streams, ticker)?;
        }
        ticker.tick(layers as f64 / total, "head")?;
        self.head(&mut streams)?;
        self.all_starved()
    }

    /// What was written down of experts that saw too little.
    fn all_starved(&self) -> Result<Vec<StarvedExpert>, QuantError> {
        let mut all = Vec::new();
        for layer in 0..self.machine.spec().layers.len() {
            if let Ok(text) = std::fs::read_to_string(self.starved_file(layer)) {
                let found: Vec<StarvedExpert> = serde_json::from_str(&text).unwrap_or_default();
                all.extend(found);
            }
        }
        Ok(all)
    }

    fn starved_file(&self, layer: usize) -> PathBuf {
        self.dir.join(format!("starved-{layer:05}.json"))
    }

    /// Files of parts, in order; those of senses last.
    pub fn files(&self) -> Vec<PathBuf> {
        let layers = 0..self.machine.spec().layers.len();
        let mut files = vec![self.embedding_file()];
        files.extend(layers.map(|layer| self.layer_file(layer)));
        files.push(self.head_file());
        files
    }

    /// What models see and hear with, if the source has it.
    pub fn senses_file(&self) -> PathBuf {
        self.dir.join("senses.safetensors")
    }

    fn embedding_file(&self) -> PathBuf {
        self.dir.join("embedding.safetensors")
    }

    fn layer_file(&self, layer: usize) -> PathBuf {
        self.dir.join(format!("layer-{layer:05}.safetensors"))
    }

    fn head_file(&self) -> PathBuf {
        self.dir.join("head.safetensors")
    }

    fn kept(&self) -> Kept<'_> {
        Kept::new(self.machine.walk.checkpoint(), self.machine.spec())
    }

    fn states(&self, name: &str) -> Result<States, QuantError> {
        let elements = self.rows.length() * self.machine.spec().hidden;
        let path = self.dir.join(name);
        States::new(self.rows.count(), elements, self.low_memory.then_some(path.as_path()))
    }

    fn embed(&self) -> Result<Streams, QuantError> {
        let mut streams =
            Streams { full: self.states("full")?, quantized: self.states("quantized")? };
        let mut part = self.machine.walk.embedding()?;
        let mut states = Vec::new();
        for row in 0..self.rows.count() {
            part.run(&row_plan(self.rows, row, LogitUse::None)?, &mut states)?;
            streams.full.write(row, &states)?;
            streams.quantized.write(row, &states)?;
        }
        Ok(streams)
    }

    /// Quantises a layer unless that was done, and takes both streams to its end.
    fn layer(
        &self,
        index: usize,
        streams: &mut Streams,
        ticker: &mut Ticker<'_, '_>,
    ) -> Result<(), QuantError> {
        let file = self.layer_file(index);
        let is_done = file.exists();
        let plan = plan_layer(&self.machine.spec().layers[index]);
        let watched = |number: usize| !is_done && plan.iter().any(|linear| linear.number == number);
        let source =
            self.machine.layer(index, self.rows.length(), &Replaced::default(), &watched)?;
        let mut source = Source { part: source, seen: Vec::new() };
        if !is_done {
            if !self.low_memory {
                source.seen = self.advance(&mut source.part, &mut streams.full)?;
            }
            let mut starved = Vec::new();
            let made =
                self.quantize_layer(index, &plan, &mut source, streams, &mut starved, ticker)?;
            if !starved.is_empty() {
                let text = serde_json::json!(starved).to_string();
                crate::job::write_text(&self.starved_file(index), &text)?;
            }
            write_part(&file, &made)?;
        }
        if is_done || self.low_memory {
            self.advance(&mut source.part, &mut streams.full)?;
        }
        drop(source);
        // What the file says is what readers get.
        let written = Replaced::from_file(&file)?;
        let mut part = self.machine.layer(index, self.rows.length(), &written, &|_| false)?;
        self.advance(&mut part, &mut streams.quantized)?;
        Ok(())
    }

    /// Runs a stream through a part; gives what its watched linears saw, row by row.
    fn advance(
        &self,
        part: &mut ModelPart<Observed<B>>,
        stream: &mut States,
    ) -> Result<Vec<Vec<Seen>>, QuantError> {
        let mut states = Vec::new();
        let mut all = Vec::with_capacity(self.rows.count());
        for row in 0..self.rows.count() {
            stream.read(row, &mut states)?;
            let plan = row_plan(self.rows, row, LogitUse::None)?;
            all.push(self.machine.run(part, &plan, &mut states)?);
            stream.write(row, &states)?;
        }
        Ok(all)
    }

    /// The tensors of a quantised layer.
    fn quantize_layer(
        &self,
        index: usize,
        plan: &[PlannedLinear],
        source: &mut Source<B>,
        streams: &mut Streams,
        starved: &mut Vec<StarvedExpert>,
        ticker: &mut Ticker<'_, '_>,
    ) -> Result<Vec<OwnedTensor>, QuantError> {
        let layer = &self.machine.spec().layers[index];
        let is_planned = |number: usize| plan.iter().any(|linear| linear.number == number);
        let mut tensors = self.kept().layer(layer, &is_planned)?;
        let mut replaced = Replaced::default();
        let mut waves: Vec<usize> = plan.iter().map(|linear| linear.wave).collect();
        waves.sort_unstable();
        waves.dedup();
        let total = (self.machine.spec().layers.len() + 1) as f64;
        for (at, wave) in waves.iter().enumerate() {
            let done = (index as f64 + at as f64 / waves.len() as f64) / total;
            ticker.tick(done, &format!("layers.{index}"))?;
            let wave: Vec<&PlannedLinear> = plan.iter().filter(|l| l.wave == *wave).collect();
            let sums = self.observe(index, &wave, &replaced, source, streams)?;
            let quantized = self.quantize_wave(index, &wave, sums, starved)?;
            for (linear, (made, bias)) in wave.iter().zip(quantized) {
                tensors.extend(self.named(&linear.name, &made)?);
                let spec = layer.linear_specs()[linear.number].1;
                let bias_tensor = self
                    .machine
                    .walk
                    .linear(spec, |stored| self.kept().bias(&linear.name, stored))?;
                tensors.extend(bias_tensor);
                replaced.put(linear.number, &made, bias);
            }
        }
        Ok(tensors)
    }

    /// Runs the quantised stream up to what these linears read, and sums it up.
    fn observe(
        &self,
        index: usize,
        wave: &[&PlannedLinear],
        replaced: &Replaced,
        source: &mut Source<B>,
        streams: &mut Streams,
    ) -> Result<Sums, QuantError> {
        let watched = |number: usize| wave.iter().any(|linear| linear.number == number);
        let mut part = self.machine.layer(index, self.rows.length(), replaced, &watched)?;
        let mut sums = Sums::default();
        let mut states = Vec::new();
        for row in 0..self.rows.count() {
            let plan = row_plan(self.rows, row, LogitUse::None)?;
            let again;
            let full = match source.seen.get(row) {
                Some(seen) => seen,
                None => {
                    streams.full.read(row, &mut states)?;
                    again = self.machine.run(&mut source.part, &plan, &mut states)?;
                    &again
                }
            };
            streams.quantized.read(row, &mut states)?;
            for seen in self.machine.run(&mut part, &plan, &mut states)? {
                let same = |full: &&Seen| full.linears.first() == seen.linears.first();
                let expert = wave.iter().find(|l| Some(&l.number) == seen.linears.first());
                // Behind a router the two streams do not show the same tokens.
                let is_routed = expert.is_some_and(|l| l.expert.is_some() && l.wave == 4);
                sums.add(&seen, full.iter().find(same).filter(|_| !is_routed));
            }
        }
        Ok(sums)
    }

    /// Quantises linears that are known to read these inputs.
    fn quantize_wave(
        &self,
        index: usize,
        wave: &[&PlannedLinear],
        sums: Sums,
        starved: &mut Vec<StarvedExpert>,
    ) -> Result<Vec<Made>, QuantError> {
        let layer = &self.machine.spec().layers[index];
        let specs = layer.linear_specs();
        let keys: BTreeMap<usize, usize> =
            wave.iter().filter_map(|l| Some((l.number, sums.key(l.number)?))).collect();
        let name = |number: usize| {
            wave.iter().find(|l| l.number == number).map_or(String::new(), |l| l.name.clone())
        };
        let pooled = sums.pooled();
        let known = sums.finish(name)?;
        // With the Hessian, where it is not that of a known input.
        let mut factors: BTreeMap<Option<usize>, (Factor, Option<Hessian>)> = BTreeMap::new();
        let mut made = Vec::with_capacity(wave.len());
        for linear in wave {
            let key = keys.get(&linear.number).copied();
            let own = key.and_then(|key| known.get(&key));
            let tokens = own.map_or(0, |known| known.tokens);
            let is_starved = linear.expert.is_some()
                && own.is_none_or(|known| crate::measure::is_starved(linear, known));
            let key = key.filter(|_| !is_starved);
            if is_starved {
                starved.push(StarvedExpert { linear: linear.name.clone(), tokens });
            }
            let own = own.filter(|_| !is_starved);
            if let std::collections::btree_map::Entry::Vacant(entry) = factors.entry(key) {
                let pooled = match own {
                    Some(_) => None,
                    None => Some(pooled.get(linear.inputs, &linear.name)?),
                };
                let hessian = own.map(|known| &known.hessian).or(pooled.as_ref());
                let Some(hessian) = hessian else { continue };
                let factor = Factor::new(hessian, &FactorOptions::default())?;
                entry.insert((factor, pooled));
            }
            let Some((factor, pooled)) = factors.get(&key) else { continue };
            let hessian = own.map(|known| &known.hessian).or(pooled.as_ref());
            let Some(hessian) = hessian else { continue };
            let inputs = Fed { factor, hessian, cross: own.and_then(|o| o.cross.as_deref()) };
            let spec = specs[linear.number].1;
            made.push(self.quantize(spec, &linear.name, &inputs)?);
        }
        Ok(made)
    }

    /// Quantises one linear, corrected for what its inputs have lost.
    fn quantize(
        &self,
        spec: &pagella_arch::LinearSpec,
        name: &str,
        inputs: &Fed<'_>,
    ) -> Result<Made, QuantError> {
        let Fed { factor, hessian, cross } = *inputs;
        let (weights, bias) = self.machine.weights(spec, name)?;
        let target = match cross {
            Some(cross) => shifted_target(&weights, factor, &Shift { cross, residual: None })?,
            None => weights,
        };
        let layout = self
            .layouts
            .get(name)
            .ok_or_else(|| QuantError::Unmeasured { linear: name.to_owned() })?;
        let mut made = quantize_linear(&target, factor, layout, self.recipe)?;
        refine_linear(&mut made, &target, factor, hessian, REFINE_PASSES)?;
        Ok((made, bias))
    }

    fn named(&self, base: &str, linear: &QuantizedLinear) -> Result<Vec<OwnedTensor>, QuantError> {
        let tensors = linear.tensors()?;
        let owned = tensors.named(base).into_iter().map(|tensor| OwnedTensor {
            name: tensor.name,
            dtype: tensor.dtype,
            shape: tensor.shape,
            data: tensor.data.to_vec(),
        });
        Ok(owned.collect())
    }

    /// Quantises the head and writes it with the final norm.
    fn head(&self, streams: &mut Streams) -> Result<(), QuantError> {
        let spec = self.machine.spec();
        let mut part = self.machine.head(&Replaced::default(), true)?;
        let mut sums = Sums::default();
        let mut states = Vec::new();
        for row in 0..self.rows.count() {
            let plan = row_plan(self.rows, row, LogitUse::Score { choice: false })?;
            streams.full.read(row, &mut states)?;
            let full = self.machine.run(&mut part, &plan, &mut states)?;
            streams.quantized.read(row, &mut states)?;
            for seen in self.machine.run(&mut part, &plan, &mut states)? {
                sums.add(&seen, full.first());
            }
        }
        drop(part);
        let head = &spec.head.linear;
        let name = name_of(head).unwrap_or_default();
        let known = sums.finish(|_| name.clone())?;
        let mut tensors = self.kept().final_norm()?;
        if let Some(known) = known.get(&HEAD_NUMBER).filter(|_| crate::plan::is_groupable(head)) {
            let factor = Factor::new(&known.hessian, &FactorOptions::default())?;
            let (hessian, cross) = (&known.hessian, known.cross.as_deref());
            let inputs = Fed { factor: &factor, hessian, cross };
            let (made, _) = self.quantize(head, &name, &inputs)?;
            tensors.extend(self.named(&name, &made)?);
            let bias = self.machine.walk.linear(head, |stored| self.kept().bias(&name, stored))?;
            tensors.extend(bias);
        } else {
            tensors.extend(self.kept().linear(head)?);
        }
        write_part(&self.head_file(), &tensors)
    }
}

/// What is known of the inputs of a linear.
struct Fed<'a> {
    factor: &'a Factor,
    hessian: &'a Hessian,
    /// How far they are from those of the unquantised model.
    cross: Option<&'a [f32]>,
}

/// A layer as it is in the source, and what its linears saw.
struct Source<B: Backend> {
    part: ModelPart<Observed<B>>,
    /// Row by row; nothing where it is run again instead.
    seen: Vec<Vec<Seen>>,
}

impl<B: Backend + Clone> Machine<B> {
    /// The weights of a linear, and its bias.
    pub(crate) fn weights(
        &self,
        spec: &pagella_arch::LinearSpec,
        name: &str,
    ) -> Result<(WeightMatrix, Option<Vec<f32>>), QuantError> {
        let is_normalized =
            self.spec().head.normalize_rows && std::ptr::eq(spec, &self.spec().head.linear);
        self.walk.linear(spec, |linear| {
            if !linear.kind().is_source() {
                return Err(QuantError::AlreadyQuantized {
                    dir: self.walk.checkpoint().source().to_owned(),
                    linear: name.to_owned(),
                });
            }
            let mut values = linear.values();
            // As at run time: a quantised head was normalised before it was quantised.
            if is_normalized && linear.kind() == LinearKind::Plain {
                normalize(&mut values, linear.out_features());
            }
            let (inputs, outputs) = (linear.in_features(), linear.out_features());
            let matrix = WeightMatrix::new(name, inputs, outputs, &values)?;
            Ok((matrix, linear.bias().map(<[f32]>::to_vec)))
        })?
    }
}

/// Divides the rows of a head, `[inputs, outputs]`, by their norms, as it is read.
fn normalize(values: &mut [f32], outputs: usize) {
    let inputs = values.len() / outputs.max(1);
    for out in 0..outputs {
        let column = || (0..inputs).map(|input| input * outputs + out);
        let square: f64 = column().map(|at| f64::from(values[at]).powi(2)).sum();
        let inverse = if square > 0.0 { square.sqrt().recip() } else { 0.0 };
        let places: Vec<usize> = column().collect();
        for at in places {
            let value = (f64::from(values[at]) * inverse) as f32;
            values[at] = half::f16::from_f32(value).to_f32();
        }
    }
}
