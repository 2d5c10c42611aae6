//! What a linear keeps for adapters, and the ops of the backend on it.

use std::sync::Arc;

use pagella_backend::{
    ADAPTER_SLOTS_MAX, Adapted, AdapterSlots, BackendError, ExpertSlots, HeadWeights, LowRank,
};

use super::{AdaptRow, AdaptTarget, adapt_all};
use crate::account::{Account, Claim};
use crate::backend::{CpuBackend, CpuStep};
use crate::linear::{CpuLinear, Rows, Target};
use crate::memory::Tensor;
use crate::ops::activate::finish_logits;
use crate::ops::embed::{CpuTable, embed_rows};
use crate::ops::experts::{CpuExperts, MixAdapters, mix};
use crate::ops::heads::CpuHeadLinear;
use crate::ops::norm::CpuNorm;

/// What adapters add to one linear.
pub struct CpuSlots {
    pub(super) in_features: usize,
    pub(super) out_features: usize,
    /// By number; as many as were ever filled.
    slots: Vec<Slot>,
}

/// What one adapter adds.
#[derive(Default)]
struct Slot {
    pair: Option<Pair>,
    /// In the place of the model's own.
    linear: Option<CpuLinear>,
}

/// Both halves of a pair.
pub(super) struct Pair {
    pub(super) a: CpuHeadLinear,
    pub(super) b: CpuHeadLinear,
    pub(super) rank: usize,
    pub(super) scale: f32,
    _claim: Claim,
}

impl Pair {
    fn new(source: &LowRank, account: &Arc<Account>) -> Result<Self, BackendError> {
        let LowRank { in_features, out_features, rank, ref a, ref b, dtype, scale } = *source;
        let half = |in_features, out_features, values: &Vec<f32>| {
            let values = values.clone();
            CpuHeadLinear::new(&HeadWeights { heads: 1, in_features, out_features, values, dtype })
        };
        let (a, b) = (half(in_features, rank, a)?, half(rank, out_features, b)?);
        let claim = account.claim(a.bytes() + b.bytes(), "adapters")?;
        Ok(Pair { a, b, rank, scale, _claim: claim })
    }
}

impl CpuSlots {
    /// The pair in a slot.
    pub(super) fn pair(&self, slot: u32) -> Option<&Pair> {
        self.slots.get(slot as usize)?.pair.as_ref()
    }

    fn linear(&self, slot: u32) -> Option<&CpuLinear> {
        self.slots.get(slot as usize)?.linear.as_ref()
    }

    fn slot_mut(&mut self, slot: u32) -> Result<&mut Slot, BackendError> {
        let index = slot as usize;
        if index >= ADAPTER_SLOTS_MAX {
            let (expected, found) = (ADAPTER_SLOTS_MAX, index + 1);
            return Err(BackendError::Size { what: "slots for adapters", expected, found });
        }
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, Slot::default);
        }
        Ok(&mut self.slots[index])
    }
}

impl AdapterSlots<CpuBackend> for CpuSlots {
    const SUPPORTED: bool = true;
    const IN_EXPERTS: bool = true;
    const REPLACES_TABLES: bool = true;

    fn new(_: &CpuBackend, in_features: usize, out_features: usize) -> Result<Self, BackendError> {
        Ok(CpuSlots { in_features, out_features, slots: Vec::new() })
    }

    fn fill(
        &mut self,
        backend: &CpuBackend,
        slot: u32,
        pair: &LowRank,
    ) -> Result<(), BackendError> {
        pair.expect(self.in_features, self.out_features)?;
        let pair = Pair::new(pair, backend.account())?;
        self.slot_mut(slot)?.pair = Some(pair);
        Ok(())
    }

    fn replace(
        &mut self,
        _: &CpuBackend,
        slot: u32,
        linear: CpuLinear,
    ) -> Result<(), BackendError> {
        for (what, expected, found) in [
            ("inputs of a replaced linear", self.in_features, linear.in_features),
            ("outputs of a replaced linear", self.out_features, linear.out_features),
        ] {
            if expected != found {
                return Err(BackendError::Size { what, expected, found });
            }
        }
        self.slot_mut(slot)?.linear = Some(linear);
        Ok(())
    }

    fn clear(&mut self, _: &CpuBackend, slot: u32) -> Result<(), BackendError> {
        *self.slot_mut(slot)? = Slot::default();
        Ok(())
    }

    fn bytes(&self) -> usize {
        let of_slot = |slot: &Slot| {
            let pair = slot.pair.as_ref().map_or(0, |pair| pair.a.bytes() + pair.b.bytes());
            pair + slot.linear.as_ref().map_or(0, CpuLinear::bytes)
        };
        self.slots.iter().map(of_slot).sum()
    }

    fn adapt(
        backend: &CpuBackend,
        step: &CpuStep,
        x: &Tensor,
        norm: Option<&CpuNorm>,
        adapted: &mut [Adapted<'_, CpuBackend>],
        scale: f32,
    ) -> Result<(), BackendError> {
        let tokens = step.plan.tokens();
        if let Some(norm) = norm {
            norm.expect(x.width)?;
        }
        let rows = step.adapters().tokens();
        let mut targets = Vec::with_capacity(adapted.len());
        for Adapted { slots, out } in adapted {
            x.expect("adapted input", tokens, slots.in_features)?;
            out.expect("adapted output", tokens, slots.out_features)?;
            targets.push(AdaptTarget { slots, rows: rows.clone(), out: &mut out.data, scale });
        }
        let source = backend.row_source(x, norm);
        let buffer = &mut *backend.adapter_buffer();
        adapt_all(&backend.machine(), step.adapters(), &source, &mut targets, buffer)
    }

    fn logits(
        &self,
        backend: &CpuBackend,
        step: &CpuStep,
        x: &Tensor,
        norm: &CpuNorm,
        head: &CpuLinear,
        scale: f32,
        softcap: Option<f32>,
        out: &mut Tensor,
    ) -> Result<(), BackendError> {
        let wanted = step.plan.logit_tokens();
        if wanted.is_empty() {
            return Ok(());
        }
        backend.head(step, x, norm, head, out)?;
        x.expect("adapted input", step.plan.tokens(), self.in_features)?;
        out.expect("adapted output", wanted.len(), self.out_features)?;
        self.replace_rows(backend, step, x, norm, out)?;
        let rows =
            wanted.iter().zip(0..).map(|(&token, out)| AdaptRow { token, input: token, out });
        let step_adapters = step.adapters();
        let rows = rows.filter(|row| step_adapters.groups.of_token(row.token).is_some()).collect();
        let source = backend.row_source(x, Some(norm));
        let target = AdaptTarget { slots: self, rows, out: &mut out.data, scale: 1.0 };
        let buffer = &mut *backend.adapter_buffer();
        adapt_all(&backend.machine(), step_adapters, &source, &mut [target], buffer)?;
        let machine = backend.machine();
        finish_logits(machine.isa, machine.pool, wanted.len(), scale, softcap, out)
    }

    fn embed(
        backend: &CpuBackend,
        step: &CpuStep,
        slot: u32,
        table: &CpuTable,
        scale: f32,
        positions: Option<&CpuTable>,
        out: &mut Tensor,
    ) -> Result<(), BackendError> {
        let machine = backend.machine();
        let has = |row: usize| step.plan.adapters(row).iter().any(|used| used.slot == slot);
        let rows: Vec<usize> = (0..step.plan.rows()).filter(|row| has(*row)).collect();
        embed_rows(machine.isa, machine.pool, &step.plan, &rows, table, scale, positions, out)
    }

    fn mix_experts(
        backend: &CpuBackend,
        step: &CpuStep,
        norm: Option<&CpuNorm>,
        router: &CpuLinear,
        experts: &CpuExperts,
        adapted: &ExpertSlots<'_, CpuBackend>,
        residual: &mut Tensor,
    ) -> Result<(), BackendError> {
        let (machine, tokens) = (backend.machine(), step.plan.tokens());
        let mut adapters = MixAdapters {
            step: step.adapters(),
            router: adapted.router,
            experts: adapted.experts,
            buffer: &mut backend.adapter_buffer(),
        };
        let buffers = &mut *backend.expert_buffers();
        mix(&machine, tokens, norm, router, experts, Some(&mut adapters), buffers, residual)
    }
}

impl CpuSlots {
    /// Computes the logits of rows whose adapters bring a head of their own.
    fn replace_rows(
        &self,
        backend: &CpuBackend,
        step: &CpuStep,
        x: &Tensor,
        norm: &CpuNorm,
        out: &mut Tensor,
    ) -> Result<(), BackendError> {
        let groups = step.adapters().groups;
        // The last of a token's adapters that has one.
        let of_token = |token: u32| {
            let slots = groups.slots(groups.of_token(token)?);
            slots.iter().rev().find(|slot| self.linear(**slot).is_some()).copied()
        };
        for (slot, linear) in
            self.slots.iter().zip(0..).filter_map(|(s, i)| Some((i, s.linear.as_ref()?)))
        {
            let wanted = step.plan.logit_tokens().iter().zip(0usize..);
            let (tokens, rows): (Vec<u32>, Vec<usize>) =
                wanted.filter(|(token, _)| of_token(**token) == Some(slot)).unzip();
            if rows.is_empty() {
                continue;
            }
            let width = self.out_features;
            let mut values = vec![0.0; rows.len() * width];
            let target =
                Target { linear, rows: Rows::Listed(&tokens), out: &mut values, add: None };
            backend.run_linears(x, Some(norm), &mut [target])?;
            for (row, values) in rows.into_iter().zip(values.chunks_exact(width)) {
                out.data[row * width..(row + 1) * width].copy_from_slice(values);
            }
        }
        Ok(())
    }
}
