//! How many bits every linear gets: what it would cost in which groups, and the choice within the budget.

use std::collections::BTreeMap;
use std::path::Path;

use pagella_arch::LinearSpec;
use pagella_backend::Backend;

use crate::allocate::{Budget, Slot, SlotOption, allocate};
use crate::candidates::head_params;
use crate::error::QuantError;
use crate::layer::Machine;
use crate::layout::GroupLayout;
use crate::measured::{Measured, extreme_bits, short_name};
use crate::measurement::{MeasuredCandidate, Measurement, ModuleMeasurement};
use crate::mixture::BLOCK_ROWS;
use crate::plan::{Half, Role, half_key, is_groupable, name_of, plan_layer};
use crate::write::Kept;

/// The head's preset unless its bits are chosen with all others; what it takes is added to the budget
/// in any case, as in other programs.
const HEAD_BITS: u32 = 6;

/// Outputs are padded to a multiple of this.
const COLUMNS_MULTIPLE: usize = 32;

/// Measurements of a model count its bits as they are here but for a part of this size: biases and
/// padding may be left out.
const COST_TOLERANCE: u64 = 100;

/// A linear as far as sizes go.
pub(crate) struct Sized {
    name: String,
    half: Option<String>,
    role: Role,
    is_expert: bool,
    inputs: usize,
    columns: usize,
    weights: u64,
    has_bias: bool,
}

/// What an allocation has chosen.
pub(crate) struct Chosen {
    /// Groups of every linear by name.
    pub layouts: BTreeMap<String, GroupLayout>,
    /// What the choice is expected to lose.
    pub expected: f64,
    /// What any choice of its size is expected to lose at least.
    pub bound: f64,
}

/// What a choice takes, in bits.
pub(crate) struct Cost {
    pub layers: u64,
    pub head: u64,
    /// Weights of the layers.
    weights: u64,
}

impl Chosen {
    /// What it takes.
    pub fn cost(&self, sizes: &[Sized]) -> Cost {
        let mut cost = Cost { layers: 0, head: 0, weights: 0 };
        for linear in sizes {
            let layout = self.layouts.get(&linear.name);
            let bits = layout.map_or(0, |l| l.cost_bits(linear.columns, linear.has_bias));
            match &linear.half {
                Some(_) => cost.layers += bits,
                None => cost.head += bits,
            }
            cost.weights += linear.weights;
        }
        cost
    }
}

impl Cost {
    /// Bits per weight of the layers.
    pub fn layer_bits(&self) -> f64 {
        self.layers as f64 / self.weights.max(1) as f64
    }

    /// Bits per weight of the head; `None`: it is not quantised.
    pub fn head_bits(&self, head: &LinearSpec) -> Option<f64> {
        let weights = head.in_features as f64 * head.out_features as f64;
        (self.head > 0).then_some(self.head as f64 / weights)
    }
}

/// A measurement, by who has made it.
pub(crate) enum Found {
    Own(Measured),
    Foreign(Measurement),
}

impl Found {
    /// Reads a measurement.
    pub fn read(path: &Path) -> Result<Self, QuantError> {
        match Measured::load(path)? {
            Some(own) => Ok(Self::Own(own)),
            None => Ok(Self::Foreign(Measurement::load(path)?)),
        }
    }
}

/// All linears that will be quantised, the head last.
pub(crate) fn sizes<B: Backend + Clone>(machine: &Machine<B>) -> Result<Vec<Sized>, QuantError> {
    let spec = machine.spec();
    let mut sizes = Vec::new();
    for (index, layer) in spec.layers.iter().enumerate() {
        let specs = layer.linear_specs();
        for linear in plan_layer(layer) {
            let has_bias = has_bias(machine, specs[linear.number].1)?;
            sizes.push(Sized {
                half: Some(half_key(spec, index, linear.half())),
                role: linear.role,
                is_expert: half_key(spec, index, Half::Mlp).ends_with("block_sparse_moe"),
                inputs: linear.inputs,
                columns: linear.outputs.next_multiple_of(COLUMNS_MULTIPLE),
                weights: linear.weights(),
                has_bias,
                name: linear.name,
            });
        }
    }
    let head = &spec.head.linear;
    if let Some(name) = name_of(head).filter(|_| is_groupable(head)) {
        let has_bias = has_bias(machine, head)?;
        sizes.push(Sized {
            name,
            half: None,
            role: Role::Output,
            is_expert: false,
            inputs: head.in_features,
            columns: head.out_features.next_multiple_of(COLUMNS_MULTIPLE),
            weights: 0,
            has_bias,
        });
    }
    Ok(sizes)
}

/// Whether a linear has a bias; refuses one that is quantised already.
fn has_bias<B: Backend + Clone>(
    machine: &Machine<B>,
    linear: &LinearSpec,
) -> Result<bool, QuantError> {
    machine.walk.linear(linear, |stored| match stored.kind().is_source() {
        true => Ok(stored.bias().is_some()),
        false => Err(Kept::new(machine.walk.checkpoint(), machine.spec()).quantized(stored)),
    })?
}

/// What the head takes in the preset that the budget counts.
fn head_cost(sizes: &[Sized], head_bits: Option<u32>) -> Result<u64, QuantError> {
    let params = head_params(head_bits.unwrap_or(HEAD_BITS))?;
    let heads = sizes.iter().filter(|linear| linear.half.is_none());
    Ok(heads.map(|l| params.layout(l.inputs).cost_bits(l.columns, l.has_bias)).sum())
}

/// Refuses rates that the layers alone cannot have, before any work. The head, which counts with its
/// preset, may give them bits or take some; no rate is there to be found that way.
pub(crate) fn check_rates(sizes: &[Sized], rates: &[f64]) -> Result<(), QuantError> {
    let (mut low, mut high, mut weights) = (0, 0, 0);
    for linear in sizes.iter().filter(|linear| linear.half.is_some()) {
        let extremes = extreme_bits(linear.inputs, linear.columns, linear.has_bias);
        let Some((cheapest, finest)) = extremes else { continue };
        low += cheapest;
        high += finest;
        weights += linear.weights;
    }
    if weights == 0 {
        return Err(QuantError::Nothing);
    }
    let average = |bits: u64| bits as f64 / weights as f64;
    let (smallest, largest) = (average(low), average(high));
    match rates.iter().find(|bits| !(smallest..=largest).contains(*bits)) {
        Some(bits) => Err(QuantError::Unreachable { bits: *bits, smallest, largest }),
        None => Ok(()),
    }
}

/// Chooses the groups of every linear.
pub(crate) fn choose(
    sizes: &[Sized],
    found: &Found,
    bits: f64,
    head_bits: Option<u32>,
) -> Result<Chosen, QuantError> {
    match found {
        Found::Own(measured) => choose_by_losses(sizes, measured, bits, head_bits),
        Found::Foreign(measurement) => choose_candidates(sizes, measurement, bits, head_bits),
    }
}

fn choose_by_losses(
    sizes: &[Sized],
    measured: &Measured,
    bits: f64,
    head_bits: Option<u32>,
) -> Result<Chosen, QuantError> {
    let mut layouts = BTreeMap::new();
    let (mut slots, mut options) = (Vec::new(), Vec::new());
    for linear in sizes {
        if let (None, Some(head_bits)) = (&linear.half, head_bits) {
            let params = head_params(head_bits)?;
            layouts.insert(linear.name.clone(), params.layout(linear.inputs));
            continue;
        }
        let known = measured
            .linear(&linear.name)
            .filter(|known| (known.inputs, known.table.columns) == (linear.inputs, linear.columns));
        let unmeasured = || QuantError::Unmeasured { linear: linear.name.clone() };
        let known = known.ok_or_else(unmeasured)?;
        if known.table.blocks() * BLOCK_ROWS != linear.inputs {
            let fault = "its losses are of another number of inputs".to_owned();
            return Err(QuantError::Slot { slot: linear.name.clone(), fault });
        }
        let mixtures = known.table.mixtures()?;
        let option =
            |cost_bits, loss: f64| SlotOption { cost_bits, error: known.sensitivity * loss };
        slots.push(Slot {
            name: linear.name.clone(),
            weights: linear.weights,
            options: mixtures.iter().map(|m| option(m.cost_bits, m.loss)).collect(),
        });
        options.push(mixtures);
    }
    let extra_bits = if head_bits.is_none() { head_cost(sizes, None)? } else { 0 };
    let budget = |bits_per_weight| Budget { bits_per_weight, extra_bits };
    let allocation = match allocate(&slots, &budget(bits)) {
        // More bits than would save anything: weights of zero lose nothing at any width.
        Err(QuantError::Unreachable { largest, .. }) if bits > largest => {
            allocate(&slots, &budget(largest))?
        }
        allocation => allocation?,
    };
    for ((slot, mixtures), choice) in slots.into_iter().zip(options).zip(&allocation.choices) {
        if let Some(mixture) = mixtures.into_iter().nth(*choice) {
            layouts.insert(slot.name, mixture.layout);
        }
    }
    Ok(Chosen { layouts, expected: allocation.error, bound: allocation.error_bound })
}

/// Chooses among the candidates that another program has measured: half a layer at a time.
fn choose_candidates(
    sizes: &[Sized],
    measurement: &Measurement,
    bits: f64,
    head_bits: Option<u32>,
) -> Result<Chosen, QuantError> {
    let mut halves: Vec<(&String, Vec<&Sized>)> = Vec::new();
    for linear in sizes {
        let Some(half) = &linear.half else { continue };
        match halves.last_mut() {
            Some((last, linears)) if *last == half => linears.push(linear),
            _ => halves.push((half, vec![linear])),
        }
    }
    let mut slots = Vec::new();
    let mut options = Vec::new();
    for (half, linears) in &halves {
        let candidates = candidates_of(measurement, half)
            .ok_or_else(|| QuantError::Unmeasured { linear: (*half).clone() })?;
        let mut slot = Slot {
            name: (*half).clone(),
            weights: linears.iter().map(|linear| linear.weights).sum(),
            options: Vec::new(),
        };
        for candidate in candidates {
            let layouts = layouts_of(linears, candidate)?;
            let costs = linears.iter().zip(&layouts);
            let cost_bits: u64 =
                costs.map(|(l, layout)| layout.cost_bits(l.columns, l.has_bias)).sum();
            if candidate.total_bits.abs_diff(cost_bits) > cost_bits / COST_TOLERANCE {
                return Err(QuantError::OtherMeasured {
                    half: (*half).clone(),
                    measured: candidate.total_bits,
                    expected: cost_bits,
                });
            }
            let error = candidate.divergence.unwrap_or((1.0 - candidate.accuracy).powi(2));
            slot.options.push(SlotOption { cost_bits, error });
        }
        slots.push(slot);
        options.push(candidates);
    }
    let allocation = allocate(&slots, &Budget { bits_per_weight: bits, extra_bits: 0 })?;
    let mut chosen = BTreeMap::new();
    for (((_, linears), candidates), choice) in halves.iter().zip(options).zip(&allocation.choices)
    {
        if let Some(candidate) = candidates.get(*choice) {
            let layouts = layouts_of(linears, candidate)?;
            chosen.extend(linears.iter().map(|linear| linear.name.clone()).zip(layouts));
        }
    }
    let head = head_params(head_bits.unwrap_or(HEAD_BITS))?;
    for linear in sizes.iter().filter(|linear| linear.half.is_none()) {
        chosen.insert(linear.name.clone(), head.layout(linear.inputs));
    }
    Ok(Chosen { layouts: chosen, expected: allocation.error, bound: allocation.error_bound })
}

/// What was measured of a half, however the layer is written.
fn candidates_of<'a>(measurement: &'a Measurement, half: &str) -> Option<&'a [MeasuredCandidate]> {
    if let Some(ModuleMeasurement::Candidates(candidates)) = measurement.module(half) {
        return Some(candidates);
    }
    let (layer, kind) = half.rsplit_once('.')?;
    match measurement.module(&format!("{layer}.parallel_decoder"))? {
        ModuleMeasurement::Parallel { attn, .. } if kind == "self_attn" => Some(attn),
        ModuleMeasurement::Parallel { mlp, .. } => Some(mlp),
        _ => None,
    }
}

fn layouts_of(
    linears: &[&Sized],
    candidate: &MeasuredCandidate,
) -> Result<Vec<GroupLayout>, QuantError> {
    let layout = |linear: &&Sized| {
        let params = candidate.params(short_name(linear.role, linear.is_expert));
        let unmeasured = || QuantError::Unmeasured { linear: linear.name.clone() };
        Ok(params.ok_or_else(unmeasured)?.layout(linear.inputs))
    };
    linears.iter().map(layout).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_of_which_nothing_can_be_stored_is_not_refused_for_its_rate() {
        for rates in [&[][..], &[4.0]] {
            assert!(matches!(check_rates(&[], rates), Err(QuantError::Nothing)));
        }
    }
}
