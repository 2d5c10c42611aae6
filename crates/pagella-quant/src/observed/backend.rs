//! The trait: every operation is the inner backend's; those with linears show their inputs first.

use pagella_arch::{Activation, RopeSpec};
use pagella_backend::{
    AttentionOp, Backend, BackendError, Guess, HeadWeights, KvSpec, MoeOp, NoSlots, NormWeights,
    Projection, StepPlan, TableSource,
};
use pagella_formats::Linear;

use super::{Inputs, Observed, ObservedExperts, ObservedLinear, ObservedVector, lock};

/// A step of the inner backend and how many tokens it has.
pub struct ObservedStep<S> {
    pub(super) inner: S,
    pub(super) tokens: usize,
    logit_tokens: Vec<u32>,
}

impl<B: Backend> Backend for Observed<B> {
    type Tensor = B::Tensor;
    type Linear = ObservedLinear<B::Linear>;
    type Experts = ObservedExperts<B>;
    type HeadLinear = B::HeadLinear;
    type Norm = B::Norm;
    type Table = B::Table;
    type Rope = B::Rope;
    type Vector = ObservedVector<B::Vector>;
    type Kv = B::Kv;
    type Step = ObservedStep<B::Step>;
    type Recordings = ();
    type Guesses = B::Guesses;
    type Slots = NoSlots;

    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn accept_attention(&self, op: &AttentionOp, has_sinks: bool) -> Result<(), BackendError> {
        self.inner.accept_attention(op, has_sinks)
    }

    fn accept_experts(&self, _op: &MoeOp, _weighed: bool) -> Result<(), BackendError> {
        Ok(())
    }

    fn tensor(&self, rows: usize, width: usize) -> Result<Self::Tensor, BackendError> {
        self.inner.tensor(rows, width)
    }

    fn linear(&self, source: &Linear<'_>) -> Result<Self::Linear, BackendError> {
        let (in_features, out_features) = (source.in_features(), source.out_features());
        let number = lock(&self.shared.next).take();
        Ok(ObservedLinear { inner: self.inner.linear(source)?, number, in_features, out_features })
    }

    fn head_linear(&self, source: &HeadWeights) -> Result<Self::HeadLinear, BackendError> {
        self.inner.head_linear(source)
    }

    fn experts(&self, op: &MoeOp, _rows: usize) -> Result<Self::Experts, BackendError> {
        Ok(ObservedExperts::new(*op))
    }

    fn add_expert(
        &self,
        experts: &mut Self::Experts,
        gate: Self::Linear,
        up: Self::Linear,
        down: Self::Linear,
    ) -> Result<(), BackendError> {
        experts.add([gate, up, down]);
        Ok(())
    }

    fn bias_selection(
        &self,
        experts: &mut Self::Experts,
        bias: Self::Vector,
    ) -> Result<(), BackendError> {
        experts.bias_selection(bias.values);
        Ok(())
    }

    fn vector(&self, values: &[f32]) -> Result<Self::Vector, BackendError> {
        Ok(ObservedVector { inner: self.inner.vector(values)?, values: values.to_vec() })
    }

    fn norm(&self, weights: NormWeights) -> Result<Self::Norm, BackendError> {
        self.inner.norm(weights)
    }

    fn table(&self, source: TableSource) -> Result<Self::Table, BackendError> {
        self.inner.table(source)
    }

    fn rope(&self, spec: &RopeSpec, context: usize) -> Result<Self::Rope, BackendError> {
        self.inner.rope(spec, context)
    }

    fn kv(&self, spec: &KvSpec) -> Result<Self::Kv, BackendError> {
        self.inner.kv(spec)
    }

    fn linear_bytes(&self, linear: &Self::Linear) -> usize {
        self.inner.linear_bytes(&linear.inner)
    }

    fn head_linear_bytes(&self, linear: &Self::HeadLinear) -> usize {
        self.inner.head_linear_bytes(linear)
    }

    fn begin(&self, plan: &StepPlan) -> Result<Self::Step, BackendError> {
        let logit_tokens = plan.logit_tokens().to_vec();
        Ok(ObservedStep { inner: self.inner.begin(plan)?, tokens: plan.tokens(), logit_tokens })
    }

    fn embed(
        &self,
        step: &Self::Step,
        table: &Self::Table,
        scale: f32,
        positions: Option<&Self::Table>,
        out: &mut Self::Tensor,
    ) -> Result<(), BackendError> {
        self.inner.embed(&step.inner, table, scale, positions, out)
    }

    fn project(
        &self,
        step: &Self::Step,
        x: &Self::Tensor,
        norm: Option<&Self::Norm>,
        projections: &mut [Projection<'_, Self>],
    ) -> Result<(), BackendError> {
        let width = projections.first().map_or(0, |first| first.linear.in_features);
        let numbers: Vec<usize> = projections.iter().filter_map(|p| p.linear.number).collect();
        self.show_tensor(&numbers, width, (&step.inner, step.tokens), x, norm)?;
        let inner = projections
            .iter_mut()
            .map(|p| Projection { linear: &p.linear.inner, out: &mut *p.out });
        self.inner.project(&step.inner, x, norm, &mut inner.collect::<Vec<_>>())
    }

    fn project_add(
        &self,
        step: &Self::Step,
        x: &Self::Tensor,
        linear: &Self::Linear,
        scale: f32,
        residual: &mut Self::Tensor,
    ) -> Result<(), BackendError> {
        let number = linear.number.as_slice();
        self.show_tensor(number, linear.in_features, (&step.inner, step.tokens), x, None)?;
        self.inner.project_add(&step.inner, x, &linear.inner, scale, residual)
    }

    fn norm_add(
        &self,
        step: &Self::Step,
        x: &Self::Tensor,
        norm: &Self::Norm,
        scale: f32,
        residual: &mut Self::Tensor,
    ) -> Result<(), BackendError> {
        self.inner.norm_add(&step.inner, x, norm, scale, residual)
    }

    fn append(
        &self,
        step: &Self::Step,
        op: &AttentionOp,
        qk_norm: Option<(&Self::Norm, &Self::Norm)>,
        rope: Option<&Self::Rope>,
        q: &mut Self::Tensor,
        k: &mut Self::Tensor,
        v: &mut Self::Tensor,
        kv: &mut Self::Kv,
    ) -> Result<(), BackendError> {
        self.inner.append(&step.inner, op, qk_norm, rope, q, k, v, kv)
    }

    fn append_latent(
        &self,
        step: &Self::Step,
        op: &AttentionOp,
        norm: &Self::Norm,
        rope: &Self::Rope,
        q: &mut Self::Tensor,
        entry: &mut Self::Tensor,
        kv: &mut Self::Kv,
    ) -> Result<(), BackendError> {
        self.inner.append_latent(&step.inner, op, norm, rope, q, entry, kv)
    }

    fn project_heads(
        &self,
        step: &Self::Step,
        x: &Self::Tensor,
        linear: &Self::HeadLinear,
        out: &mut Self::Tensor,
    ) -> Result<(), BackendError> {
        self.inner.project_heads(&step.inner, x, linear, out)
    }

    fn attend(
        &self,
        step: &Self::Step,
        op: &AttentionOp,
        sinks: Option<&Self::Vector>,
        q: &Self::Tensor,
        kv: &Self::Kv,
        out: &mut Self::Tensor,
    ) -> Result<(), BackendError> {
        let sinks = sinks.map(|sinks| &sinks.inner);
        self.inner.attend(&step.inner, op, sinks, q, kv, out)
    }

    fn gate(
        &self,
        step: &Self::Step,
        gate: &Self::Tensor,
        x: &mut Self::Tensor,
    ) -> Result<(), BackendError> {
        self.inner.gate(&step.inner, gate, x)
    }

    fn activate(
        &self,
        step: &Self::Step,
        act: Activation,
        gate: &mut Self::Tensor,
        up: Option<&Self::Tensor>,
    ) -> Result<(), BackendError> {
        self.inner.activate(&step.inner, act, gate, up)
    }

    fn mix_experts(
        &self,
        step: &Self::Step,
        norm: Option<&Self::Norm>,
        router: &Self::Linear,
        experts: &Self::Experts,
        residual: &mut Self::Tensor,
    ) -> Result<(), BackendError> {
        experts.mix(self, (&step.inner, step.tokens), norm, router, residual)
    }

    fn logits(
        &self,
        step: &Self::Step,
        x: &Self::Tensor,
        norm: &Self::Norm,
        head: &Self::Linear,
        scale: f32,
        softcap: Option<f32>,
        out: &mut Self::Tensor,
    ) -> Result<(), BackendError> {
        if let (Some(number), true) = (head.number, self.is_observed()) {
            let width = head.in_features;
            let all = self.normed(width, (&step.inner, step.tokens), x, Some(norm))?;
            let mut rows = Vec::with_capacity(step.logit_tokens.len() * width);
            for token in &step.logit_tokens {
                let first = *token as usize * width;
                rows.extend_from_slice(&all[first..first + width]);
            }
            self.show(&Inputs { linears: &[number], width, rows: &rows });
        }
        self.inner.logits(&step.inner, x, norm, &head.inner, scale, softcap, out)
    }

    fn guess(
        &self,
        step: &Self::Step,
        logits: &Self::Tensor,
        vocab: usize,
        guesses: &mut Self::Guesses,
    ) -> Result<(), BackendError> {
        self.inner.guess(&step.inner, logits, vocab, guesses)
    }

    fn feed(&self, step: &mut Self::Step, guesses: &Self::Guesses) -> Result<(), BackendError> {
        self.inner.feed(&mut step.inner, guesses)
    }

    fn read_guesses(
        &self,
        guesses: &mut Self::Guesses,
        out: &mut Vec<Guess>,
    ) -> Result<(), BackendError> {
        self.inner.read_guesses(guesses, out)
    }

    fn copy_pages(&self, kv: &mut Self::Kv, moves: &[(u32, u32)]) -> Result<(), BackendError> {
        self.inner.copy_pages(kv, moves)
    }

    fn copy_page_prefix(
        &self,
        kv: &mut Self::Kv,
        from: u32,
        to: u32,
        tokens: usize,
    ) -> Result<(), BackendError> {
        self.inner.copy_page_prefix(kv, from, to, tokens)
    }

    fn page_bytes(&self, kv: &Self::Kv) -> usize {
        self.inner.page_bytes(kv)
    }

    fn read_page(&self, kv: &Self::Kv, page: u32, out: &mut Vec<u8>) -> Result<(), BackendError> {
        self.inner.read_page(kv, page, out)
    }

    fn write_page(&self, kv: &mut Self::Kv, page: u32, bytes: &[u8]) -> Result<(), BackendError> {
        self.inner.write_page(kv, page, bytes)
    }

    fn write(
        &self,
        rows: usize,
        width: usize,
        values: &[f32],
    ) -> Result<Self::Tensor, BackendError> {
        self.inner.write(rows, width, values)
    }

    fn read(
        &self,
        tensor: &Self::Tensor,
        rows: usize,
        out: &mut Vec<f32>,
    ) -> Result<(), BackendError> {
        self.inner.read(tensor, rows, out)
    }
}
