//! Mixtures of experts: every row chooses its experts, every chosen expert runs once on its rows,
//! every row adds up what it got.
//!
//! `route` turns logits into choices, `shares` turns choices into one list of rows per expert,
//! `combine` adds up. A *pair* is a row with one of its experts; pairs are ordered by expert, then
//! by row, so that an expert's pairs are neighbours. Experts that nobody chose cost nothing.
//!
//! Same row, same bits: linears do not notice other rows, weights come from the row's own logits, and
//! a row's sum has the order of its experts' ids.

mod combine;
mod route;
mod shares;

use std::sync::Arc;

use pagella_arch::Weigh;
use pagella_backend::{BackendError, MoeOp};

use super::activate::activate_rows;
use super::adapt::{AdaptRow, AdaptTarget, CpuSlots, StepAdapters, adapt_all};
use super::norm::{CpuNorm, norm_row};
use crate::Tensor;
use crate::account::{Account, Claim};
use crate::linear::{CpuLinear, Machine, RowSource, Rows, Target, run_all};
use crate::memory::Aligned;
use crate::threads::Shares;
use combine::combine;
use route::{Choices, route};
use shares::{ExpertShares, Share};

/// What the memory is for, in errors.
const WHAT: &str = "expert activations";

/// The experts of one layer.
pub struct CpuExperts {
    op: MoeOp,
    /// In order of id; the layer is ready when there are `op.experts`.
    experts: Vec<Expert>,
    /// Added to scores for the choice, `[experts]`.
    selection_bias: Option<Vec<f32>>,
}

struct Expert {
    gate: CpuLinear,
    up: CpuLinear,
    down: CpuLinear,
}

/// Room for what happens between router and sum. All layers share it: it has the size of the
/// largest.
#[derive(Default)]
pub(crate) struct ExpertBuffers {
    /// Rows the buffers were made for.
    rows: usize,
    /// Normed rows, `[rows, hidden]`.
    normed: Aligned<f32>,
    /// Logits, then scores, `[rows, experts]`.
    scores: Aligned<f32>,
    /// Gates, then activated gates, `[pairs, inner]`.
    gate: Aligned<f32>,
    /// `[pairs, inner]`.
    up: Aligned<f32>,
    /// Outputs, `[pairs, hidden]`.
    out: Aligned<f32>,
    choices: Choices,
    shares: ExpertShares,
    claim: Claim,
}

impl ExpertBuffers {
    /// Without memory yet; what they grow to is claimed there.
    pub(crate) fn of(account: &Arc<Account>) -> Self {
        ExpertBuffers { claim: Claim::empty(account), ..ExpertBuffers::default() }
    }

    /// Makes room for `rows` rows of a layer; never shrinks.
    pub(crate) fn reserve(&mut self, op: &MoeOp, rows: usize) -> Result<(), BackendError> {
        let rows = rows.max(self.rows);
        let pairs = rows * op.experts_per_token;
        let mut buffers = [
            (&mut self.normed, rows * op.hidden),
            (&mut self.scores, rows * op.experts),
            (&mut self.gate, pairs * op.inner),
            (&mut self.up, pairs * op.inner),
            (&mut self.out, pairs * op.hidden),
        ];
        let elements = buffers.iter().map(|(buffer, len)| buffer.len().max(*len));
        self.claim.grow_to(4 * elements.sum::<usize>(), WHAT)?;
        for (buffer, len) in &mut buffers {
            buffer.resize(buffer.len().max(*len), WHAT)?;
        }
        self.rows = rows;
        Ok(())
    }
}

impl CpuExperts {
    /// A layer without experts yet.
    pub(crate) fn new(op: MoeOp) -> Result<Self, BackendError> {
        if !(1..=op.experts).contains(&op.experts_per_token) {
            let (expected, found) = (op.experts, op.experts_per_token);
            return Err(BackendError::Size { what: "experts per token", expected, found });
        }
        if let Some(groups) = &op.routing.groups {
            let reachable = op.experts / groups.count.max(1) * groups.taken;
            let fits = groups.count > 0
                && groups.taken <= groups.count
                && op.experts.is_multiple_of(groups.count)
                && op.experts_per_token <= reachable;
            expect("experts in groups", op.experts, if fits { op.experts } else { reachable })?;
        }
        let experts = Vec::with_capacity(op.experts);
        Ok(CpuExperts { op, experts, selection_bias: None })
    }

    /// Adds the next expert.
    pub(crate) fn add(
        &mut self,
        gate: CpuLinear,
        up: CpuLinear,
        down: CpuLinear,
    ) -> Result<(), BackendError> {
        let (hidden, inner) = (self.op.hidden, self.op.inner);
        expect_shape("expert gate", &gate, hidden, inner)?;
        expect_shape("expert up", &up, hidden, inner)?;
        expect_shape("expert down", &down, inner, hidden)?;
        expect("experts", self.op.experts, self.op.experts.max(self.experts.len() + 1))?;
        // `w · (W x)` is `W (w · x)`, but a bias would be weighed with it.
        if self.op.routing.weigh == Weigh::Input && (gate.bias.is_some() || up.bias.is_some()) {
            return Err(BackendError::unsupported(
                "cpu",
                "experts with weighed inputs and biases",
                "no known model has them",
            ));
        }
        self.experts.push(Expert { gate, up, down });
        Ok(())
    }

    /// Takes what is added to scores for the choice.
    pub(crate) fn bias_selection(&mut self, bias: Vec<f32>) -> Result<(), BackendError> {
        expect("selection bias", self.op.experts, bias.len())?;
        self.selection_bias = Some(bias);
        Ok(())
    }

    /// Checks everything that a step brings.
    fn expect_step(
        &self,
        tokens: usize,
        norm: Option<&CpuNorm>,
        router: &CpuLinear,
        buffers: &ExpertBuffers,
        residual: &Tensor,
    ) -> Result<(), BackendError> {
        let op = &self.op;
        residual.expect("residual", tokens, op.hidden)?;
        if let Some(norm) = norm {
            norm.expect(op.hidden)?;
        }
        expect_shape("router", router, op.hidden, op.experts)?;
        expect("experts", op.experts, self.experts.len())?;
        let biases = self.selection_bias.as_ref().map_or(0, Vec::len);
        expect("selection bias", if op.routing.selection_bias { op.experts } else { 0 }, biases)?;
        expect("rows of experts", tokens.max(buffers.rows), buffers.rows)
    }

    fn expert(&self, share: &Share) -> &Expert {
        &self.experts[share.expert as usize]
    }
}

fn expect(what: &'static str, expected: usize, found: usize) -> Result<(), BackendError> {
    if expected == found { Ok(()) } else { Err(BackendError::Size { what, expected, found }) }
}

fn expect_shape(
    what: &'static str,
    linear: &CpuLinear,
    inputs: usize,
    outputs: usize,
) -> Result<(), BackendError> {
    expect(what, inputs, linear.in_features)?;
    expect(what, outputs, linear.out_features)
}

/// What adapters add inside a layer of experts.
pub(crate) struct MixAdapters<'a> {
    pub(crate) step: StepAdapters<'a>,
    pub(crate) router: Option<&'a CpuSlots>,
    /// Gate, up and down of every expert.
    pub(crate) experts: &'a [[Option<CpuSlots>; 3]],
    pub(crate) buffer: &'a mut Aligned<f32>,
}

impl MixAdapters<'_> {
    /// Adds to the router's logits.
    fn route(
        &mut self,
        machine: &Machine<'_>,
        source: &RowSource<'_>,
        out: &mut [f32],
    ) -> Result<(), BackendError> {
        let Some(slots) = self.router else { return Ok(()) };
        let target = AdaptTarget { slots, rows: self.step.tokens(), out, scale: 1.0 };
        adapt_all(machine, self.step, source, &mut [target], self.buffer)
    }

    /// Adds to one part of every expert: 0 is the gate, 1 up, 2 down. The inputs are rows of the
    /// step, or pairs for down; the outputs are pairs.
    fn add(
        &mut self,
        machine: &Machine<'_>,
        shares: &ExpertShares,
        part: usize,
        source: &RowSource<'_>,
        out: &mut [f32],
    ) -> Result<(), BackendError> {
        let groups = self.step.groups;
        for share in shares.all() {
            let slots =
                self.experts.get(share.expert as usize).and_then(|parts| parts[part].as_ref());
            let Some(slots) = slots else { continue };
            let pairs = shares.pairs(share).iter().zip(shares.rows(share));
            let rows = pairs.map(|(&pair, &token)| AdaptRow {
                token,
                input: if part == 2 { pair } else { token },
                out: pair,
            });
            let rows = rows.filter(|row| groups.of_token(row.token).is_some()).collect();
            let target = AdaptTarget { slots, rows, out: &mut *out, scale: 1.0 };
            adapt_all(machine, self.step, source, &mut [target], self.buffer)?;
        }
        Ok(())
    }
}

/// Adds the experts of the first `tokens` rows to `residual`, from which they also read.
#[allow(clippy::too_many_arguments)]
pub(crate) fn mix(
    machine: &Machine<'_>,
    tokens: usize,
    norm: Option<&CpuNorm>,
    router: &CpuLinear,
    layer: &CpuExperts,
    mut adapters: Option<&mut MixAdapters<'_>>,
    buffers: &mut ExpertBuffers,
    residual: &mut Tensor,
) -> Result<(), BackendError> {
    let op = &layer.op;
    layer.expect_step(tokens, norm, router, buffers, residual)?;
    let ExpertBuffers { normed, scores, gate, up, out, choices, shares, .. } = buffers;

    norm_rows(machine, tokens, norm, residual, normed)?;
    let copy = |from: &[f32], width: usize, row: usize, to: &mut [f32]| {
        to.copy_from_slice(&from[row * width..(row + 1) * width]);
    };
    let input = |row: usize, to: &mut [f32]| copy(normed, op.hidden, row, to);
    let logits = &mut scores[..tokens * op.experts];
    let target = Target { linear: router, rows: Rows::First(tokens), out: logits, add: None };
    run_all(machine, &input, &mut [target])?;
    if let Some(adapters) = &mut adapters {
        adapters.route(machine, &input, scores)?;
    }
    route(machine, op, layer.selection_bias.as_deref(), tokens, scores, choices)?;
    shares.deal(op, tokens, choices);

    let mut targets = Vec::with_capacity(2 * shares.all().len());
    let (mut gate_rest, mut up_rest) = (&mut gate[..], &mut up[..]);
    for share in shares.all() {
        let expert = layer.expert(share);
        let len = share.pairs.len() * op.inner;
        for (linear, rest) in [(&expert.gate, &mut gate_rest), (&expert.up, &mut up_rest)] {
            let (out, after) = std::mem::take(rest).split_at_mut(len);
            *rest = after;
            targets.push(Target { linear, rows: Rows::Listed(shares.rows(share)), out, add: None });
        }
    }
    run_all(machine, &input, &mut targets)?;
    if let Some(adapters) = &mut adapters {
        adapters.add(machine, shares, 0, &input, gate)?;
        adapters.add(machine, shares, 1, &input, up)?;
    }

    if op.routing.weigh == Weigh::Input {
        weigh_inputs(machine, op, tokens, choices, shares, [&mut *gate, &mut *up])?;
    }
    let pairs = tokens * op.experts_per_token;
    activate_rows(machine.isa, machine.pool, pairs, op.inner, op.act, gate, Some(up))?;
    let input = |pair: usize, to: &mut [f32]| copy(gate, op.inner, pair, to);
    let mut targets = Vec::with_capacity(shares.all().len());
    let mut rest = &mut out[..];
    for share in shares.all() {
        let (out, after) = rest.split_at_mut(share.pairs.len() * op.hidden);
        rest = after;
        let linear = &layer.expert(share).down;
        targets.push(Target { linear, rows: Rows::Listed(shares.pairs(share)), out, add: None });
    }
    run_all(machine, &input, &mut targets)?;
    if let Some(adapters) = &mut adapters {
        adapters.add(machine, shares, 2, &input, out)?;
    }
    combine(machine, op, tokens, choices, shares, out, residual)
}

/// Multiplies gates and ups by their weights, which are spent with that: they become 1.
fn weigh_inputs(
    machine: &Machine<'_>,
    op: &MoeOp,
    tokens: usize,
    choices: &mut Choices,
    shares: &ExpertShares,
    parts: [&mut [f32]; 2],
) -> Result<(), BackendError> {
    let (k, weights) = (op.experts_per_token, &choices.weights);
    for part in parts {
        let part = Shares::new(part);
        machine.pool.run(tokens, &|row| {
            for (pair, weight) in shares.of_row(op, row).iter().zip(&weights[row * k..]) {
                let first = *pair as usize * op.inner;
                // SAFETY: every pair belongs to one row.
                let values = unsafe { part.part(first..first + op.inner) };
                values.iter_mut().for_each(|value| *value *= weight);
            }
        })?;
    }
    choices.weights.fill(1.0);
    Ok(())
}

fn norm_rows(
    machine: &Machine<'_>,
    tokens: usize,
    norm: Option<&CpuNorm>,
    x: &Tensor,
    normed: &mut [f32],
) -> Result<(), BackendError> {
    let parts = Shares::new(normed);
    machine.pool.run(tokens, &|row| {
        // SAFETY: every task has its own row.
        let out = unsafe { parts.part(row * x.width..(row + 1) * x.width) };
        match norm {
            Some(norm) => norm_row(machine.isa, norm, x.row(row), out),
            None => out.copy_from_slice(x.row(row)),
        }
    })
}
