//! A mixture of experts, expert by expert, so that what enters each can be shown.

use pagella_arch::Weigh;
use pagella_backend::{
    Backend, BackendError, LogitUse, MoeOp, PAGE_TOKENS, Projection, StepPlan, StepRow,
};

use super::route::route;
use super::{Inputs, Observed, ObservedLinear};

/// The experts of one layer: gate, up and down of each, in order of id.
pub struct ObservedExperts<B: Backend> {
    op: MoeOp,
    experts: Vec<[ObservedLinear<B::Linear>; 3]>,
    selection_bias: Option<Vec<f32>>,
}

/// The rows that take an expert, with its weights for them.
type Share = Vec<(usize, f32)>;

impl<B: Backend> ObservedExperts<B> {
    pub(super) fn new(op: MoeOp) -> Self {
        Self { op, experts: Vec::with_capacity(op.experts), selection_bias: None }
    }

    pub(super) fn add(&mut self, parts: [ObservedLinear<B::Linear>; 3]) {
        self.experts.push(parts);
    }

    pub(super) fn bias_selection(&mut self, bias: Vec<f32>) {
        self.selection_bias = Some(bias);
    }

    /// See [`Backend::mix_experts`].
    pub(super) fn mix(
        &self,
        machine: &Observed<B>,
        step: (&B::Step, usize),
        norm: Option<&B::Norm>,
        router: &ObservedLinear<B::Linear>,
        residual: &mut B::Tensor,
    ) -> Result<(), BackendError> {
        let (tokens, hidden, inner) = (step.1, self.op.hidden, &machine.inner);
        let rows = machine.normed(hidden, step, residual, norm)?;
        let shares = self.shares(machine, step, norm, router, residual)?;
        // All rows, whoever takes them: gates and ups of all experts share what they are shown.
        let inputs = self.experts.iter().flat_map(|parts| &parts[..2]);
        let linears: Vec<usize> = inputs.filter_map(|linear| linear.number).collect();
        machine.show(&Inputs { linears: &linears, width: hidden, rows: &rows });
        let mut sum = vec![0.0f32; tokens * hidden];
        for (parts, share) in self.experts.iter().zip(&shares) {
            if share.is_empty() {
                continue;
            }
            let out = self.expert(machine, parts, share, &rows)?;
            for ((row, weight), out) in share.iter().zip(out.chunks_exact(hidden)) {
                let weight = if self.op.routing.weigh == Weigh::Input { 1.0 } else { *weight };
                for (sum, out) in sum[row * hidden..(row + 1) * hidden].iter_mut().zip(out) {
                    *sum = weight.mul_add(*out, *sum);
                }
            }
        }
        let mut old = Vec::new();
        inner.read(residual, tokens, &mut old)?;
        for (old, sum) in old.iter_mut().zip(&sum) {
            *old = self.op.scale.mul_add(*sum, *old);
        }
        *residual = inner.write(tokens, hidden, &old)?;
        Ok(())
    }

    /// Who takes which expert, by expert.
    fn shares(
        &self,
        machine: &Observed<B>,
        (step, tokens): (&B::Step, usize),
        norm: Option<&B::Norm>,
        router: &ObservedLinear<B::Linear>,
        residual: &B::Tensor,
    ) -> Result<Vec<Share>, BackendError> {
        let mut logits = machine.inner.tensor(tokens, router.out_features)?;
        let projection = Projection { linear: &router.inner, out: &mut logits };
        machine.inner.project(step, residual, norm, &mut [projection])?;
        let mut values = Vec::new();
        machine.inner.read(&logits, tokens, &mut values)?;
        let mut shares = vec![Share::new(); self.experts.len()];
        for (row, logits) in values.chunks_exact(router.out_features.max(1)).enumerate() {
            for (expert, weight) in route(&self.op, self.selection_bias.as_deref(), logits) {
                shares[expert].push((row, weight));
            }
        }
        Ok(shares)
    }

    /// What an expert makes of its rows, `[share, hidden]`.
    fn expert(
        &self,
        machine: &Observed<B>,
        [gate, up, down]: &[ObservedLinear<B::Linear>; 3],
        share: &Share,
        rows: &[f32],
    ) -> Result<Vec<f32>, BackendError> {
        let MoeOp { hidden, inner: width, act, .. } = self.op;
        let backend = &machine.inner;
        let n = share.len();
        let step = step_of(backend, n)?;
        let mut own = Vec::with_capacity(n * hidden);
        for (row, weight) in share {
            let weight = if self.op.routing.weigh == Weigh::Input { *weight } else { 1.0 };
            own.extend(rows[row * hidden..(row + 1) * hidden].iter().map(|x| weight * x));
        }
        let x = backend.write(n, hidden, &own)?;
        let (mut gated, mut upped) = (backend.tensor(n, width)?, backend.tensor(n, width)?);
        let mut projections = [
            Projection { linear: &gate.inner, out: &mut gated },
            Projection { linear: &up.inner, out: &mut upped },
        ];
        backend.project(&step, &x, None, &mut projections)?;
        backend.activate(&step, act, &mut gated, Some(&upped))?;
        machine.show_tensor(down.number.as_slice(), width, (&step, n), &gated, None)?;
        let mut out = backend.tensor(n, hidden)?;
        let projection = Projection { linear: &down.inner, out: &mut out };
        backend.project(&step, &gated, None, &mut [projection])?;
        let mut values = Vec::new();
        backend.read(&out, n, &mut values)?;
        Ok(values)
    }
}

/// A step of so many tokens, which nothing but their number matters of.
fn step_of<B: Backend>(backend: &B, tokens: usize) -> Result<B::Step, BackendError> {
    let ids = vec![0; tokens];
    let pages: Vec<u32> = (0..tokens.div_ceil(PAGE_TOKENS) as u32).collect();
    let plan = StepPlan::new(&[StepRow::new(&ids, 0, &pages, LogitUse::None)]);
    let expected = tokens.max(1);
    let size = |_| BackendError::Size { what: "rows of an expert", expected, found: tokens };
    backend.begin(&plan.map_err(size)?)
}
