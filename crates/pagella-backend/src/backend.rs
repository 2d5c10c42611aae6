//! The trait every machine implements: the ops of a decoder, with shapes.
//!
//! Activations are opaque tensors `[tokens, width]` in whatever element type the backend prefers;
//! the model allocates them once and reuses them for every step. `t` is the number of new tokens of
//! the step, known from the plan.

use pagella_arch::{Activation, RopeSpec};
use pagella_formats::{Linear, LinearKind};

use crate::op::{AttentionOp, HeadWeights, MoeOp, NormWeights};
use crate::{
    AdapterSlots, BackendError, Guess, KvSpec, NarrowAsk, NarrowRow, StepPlan, TableSource,
};

/// One output of [`Backend::project`].
pub struct Projection<'a, B: Backend + ?Sized> {
    /// The linear.
    pub linear: &'a B::Linear,
    /// Receives `[t, out_features]`.
    pub out: &'a mut B::Tensor,
}

/// A machine that can run decoder steps.
///
/// Methods that take a `Step` enqueue work; results are visible to later calls and to the
/// `read_*` methods. Sizes are the caller's duty: a wrong one is a [`BackendError::Size`].
pub trait Backend: Send + Sync + 'static {
    /// Activations `[rows, width]`.
    type Tensor: Send;
    /// A linear in the backend's own layout.
    type Linear: Send + Sync;
    /// The experts of one layer; `()` where they are not supported.
    type Experts: Send + Sync;
    /// Linears of one shape, one per head; `Infallible` where they are not supported.
    type HeadLinear: Send + Sync;
    /// A norm's weights.
    type Norm: Send + Sync;
    /// An embedding or position table.
    type Table: Send + Sync;
    /// A rotary table.
    type Rope: Send + Sync;
    /// A few numbers that stay: attention sinks, selection biases. `Infallible` where nothing
    /// needs them.
    type Vector: Send + Sync;
    /// The paged cache of all layers.
    type Kv: Send;
    /// A plan, made ready for the device.
    type Step: Send;
    /// Steps of a model that can be run again without naming their operations; `()` where naming
    /// them costs nothing. Dropped whenever a buffer that they use is replaced.
    type Recordings: Default + Send;
    /// What steps have guessed and nobody has read yet: for every level one [`Guess`] per row.
    type Guesses: Default + Send;
    /// What adapters add to one linear; [`NoSlots`](crate::NoSlots) where they are not supported.
    type Slots: AdapterSlots<Self>;

    /// `cpu`, `cuda`.
    fn name(&self) -> &'static str;

    /// One line for people: device, instruction set, threads, arithmetic.
    fn describe(&self) -> String;

    /// Refuses attention that this machine does not do; asked before anything is laid out.
    fn accept_attention(&self, op: &AttentionOp, has_sinks: bool) -> Result<(), BackendError> {
        match op.special().or(has_sinks.then_some("attention sinks")) {
            Some(what) => Err(no_special(self.name(), what)),
            None => Ok(()),
        }
    }
    /// Refuses a weight format, with codes of so many bits, that this machine does not multiply with;
    /// asked before anything is laid out.
    fn accept_linear(&self, kind: LinearKind, widths: &[(u8, u64)]) -> Result<(), BackendError> {
        let _ = (kind, widths);
        Ok(())
    }
    /// Refuses experts that this machine does not do; asked before anything is laid out.
    /// `weighed` says whether there is a shared expert that [`Backend::gate`] weighs.
    fn accept_experts(&self, op: &MoeOp, weighed: bool) -> Result<(), BackendError> {
        match op.special().or(weighed.then_some("a weighed shared expert")) {
            Some(what) => Err(no_special(self.name(), what)),
            None => Ok(()),
        }
    }

    /// Activations of up to `rows` tokens.
    fn tensor(&self, rows: usize, width: usize) -> Result<Self::Tensor, BackendError>;
    /// Lays out a linear for this machine. `source` is not needed afterwards.
    fn linear(&self, source: &Linear<'_>) -> Result<Self::Linear, BackendError>;
    /// Lays out linears of heads.
    fn head_linear(&self, source: &HeadWeights) -> Result<Self::HeadLinear, BackendError> {
        let _ = source;
        Err(no_special(self.name(), "linears of heads"))
    }
    /// Begins the experts of a layer, with none in it yet. Steps bring at most `rows` tokens, so
    /// that room for what happens between router and sum can be had now; layers may share it.
    fn experts(&self, op: &MoeOp, rows: usize) -> Result<Self::Experts, BackendError> {
        let _ = (op, rows);
        Err(no_experts(self.name()))
    }
    /// Adds the next expert, in order of id; the last one makes the layer ready.
    /// `gate`, `up`: `[hidden] → [inner]`, `down`: `[inner] → [hidden]`.
    fn add_expert(
        &self,
        experts: &mut Self::Experts,
        gate: Self::Linear,
        up: Self::Linear,
        down: Self::Linear,
    ) -> Result<(), BackendError> {
        let _ = (experts, gate, up, down);
        Err(no_experts(self.name()))
    }
    /// Gives the values, `[experts]`, that are added to scores for the choice of experts; before
    /// the layer is used, if [`Routing::selection_bias`](crate::Routing::selection_bias) says so.
    fn bias_selection(
        &self,
        experts: &mut Self::Experts,
        bias: Self::Vector,
    ) -> Result<(), BackendError> {
        let _ = (experts, bias);
        Err(no_special(self.name(), "a bias for the selection of experts"))
    }
    /// Takes a few numbers.
    fn vector(&self, values: &[f32]) -> Result<Self::Vector, BackendError> {
        let _ = values;
        Err(no_special(self.name(), "vectors that stay"))
    }
    /// Takes a norm's weights.
    fn norm(&self, weights: NormWeights) -> Result<Self::Norm, BackendError>;
    /// Takes an embedding or position table.
    fn table(&self, source: TableSource) -> Result<Self::Table, BackendError>;
    /// Prepares a rotary table for positions below `context`.
    fn rope(&self, spec: &RopeSpec, context: usize) -> Result<Self::Rope, BackendError>;
    /// Allocates a paged cache; contents are undefined until appended to.
    fn kv(&self, spec: &KvSpec) -> Result<Self::Kv, BackendError>;

    /// Bytes of device memory a linear holds.
    fn linear_bytes(&self, linear: &Self::Linear) -> usize;
    /// Bytes of device memory that linears of heads hold.
    fn head_linear_bytes(&self, linear: &Self::HeadLinear) -> usize {
        let _ = linear;
        0
    }

    /// Refuses plans that this machine does not run; asked before [`Backend::begin`].
    fn accept_plan(&self, plan: &StepPlan) -> Result<(), BackendError> {
        let adapters = plan.has_adapters() && !Self::Slots::SUPPORTED;
        match plan.special().or(adapters.then_some("adapters")) {
            Some(what) => Err(BackendError::unsupported(self.name(), what, "leave them out")),
            None => Ok(()),
        }
    }

    /// Makes a plan ready. Every id is below the rows of the embedding table used later. A plan that
    /// [awaits its ids](StepPlan::awaits_ids) needs [`Backend::feed`] before anything that looks at
    /// them: [`Backend::embed`] and [`Backend::replay`] refuse it until then.
    fn begin(&self, plan: &StepPlan) -> Result<Self::Step, BackendError>;

    /// Numbers of tokens, increasing, for which steps are recorded whose tokens all have logits; steps
    /// of other numbers use the next one. Empty if nothing is recorded.
    fn recorded_tokens(&self) -> &'static [usize] {
        &[]
    }

    /// Runs the step from a recording of one of the same shape. `false`: there is none, and the
    /// caller names the operations, which may then be recorded until [`Backend::finish`].
    fn replay(
        &self,
        _recordings: &mut Self::Recordings,
        _step: &mut Self::Step,
        _kv: &Self::Kv,
    ) -> Result<bool, BackendError> {
        Ok(false)
    }

    /// Ends a step whose operations were all named. A step that is dropped before, after an error,
    /// records nothing.
    fn finish(
        &self,
        _recordings: &mut Self::Recordings,
        _step: &mut Self::Step,
        _kv: &Self::Kv,
    ) -> Result<(), BackendError> {
        Ok(())
    }

    /// Forgets recorded steps of rows with adapters, because a linear has slots that it had not when they
    /// were recorded.
    fn forget_adapted(recordings: &mut Self::Recordings) {
        *recordings = Self::Recordings::default();
    }

    /// `out[i] = scale · table[ids[i]]`, plus `positions[position(i)]` when given. `[t, width]`.
    fn embed(
        &self,
        step: &Self::Step,
        table: &Self::Table,
        scale: f32,
        positions: Option<&Self::Table>,
        out: &mut Self::Tensor,
    ) -> Result<(), BackendError>;

    /// `out_j = W_j · norm(x) + b_j` for linears that share their input. `x`: `[t, in_features]`.
    fn project(
        &self,
        step: &Self::Step,
        x: &Self::Tensor,
        norm: Option<&Self::Norm>,
        projections: &mut [Projection<'_, Self>],
    ) -> Result<(), BackendError>;

    /// `residual += scale · (W · x + b)`. `x`: `[t, in_features]`, `residual`: `[t, out_features]`.
    fn project_add(
        &self,
        step: &Self::Step,
        x: &Self::Tensor,
        linear: &Self::Linear,
        scale: f32,
        residual: &mut Self::Tensor,
    ) -> Result<(), BackendError>;

    /// `residual += scale · norm(x)`. Both `[t, width]`.
    fn norm_add(
        &self,
        step: &Self::Step,
        x: &Self::Tensor,
        norm: &Self::Norm,
        scale: f32,
        residual: &mut Self::Tensor,
    ) -> Result<(), BackendError>;

    /// Clips, norms and rotates `q` and `k` (or rotates and norms them, as the op says), lets `q`
    /// grow, then appends `k` and `v` to the pages of every row. `q`: `[t, heads · head_dim]`, changed
    /// in place; `k`, `v`: `[t, kv_heads · head_dim]`.
    ///
    /// The weights of a norm are `[head_dim]` or `[heads · head_dim]`; of one that spans all heads
    /// `[heads · head_dim]`.
    #[allow(clippy::too_many_arguments)]
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
    ) -> Result<(), BackendError>;

    /// [`Backend::append`] where values are in the keys: norms the first `value_dim` elements of
    /// every entry, rotates its others and the last ones of every query head, then appends the
    /// entries to the pages of every row. `q`: `[t, heads · head_dim]`, changed in place; `entry`:
    /// `[t, head_dim]`, of no use afterwards. The weights of the norm are `[value_dim]`, and the
    /// rotary table is as wide as the elements that are rotated.
    #[allow(clippy::too_many_arguments)]
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
        let _ = (step, op, norm, rope, q, entry, kv);
        Err(no_special(self.name(), "latent attention"))
    }

    /// Every head of `x` through its own linear: `out[h] = W_h · x[h]`. Heads of `x` may be wider
    /// than their linears take; the rest of each follows what its linear gives, unchanged.
    /// `x`: `[t, heads · (in_features + rest)]`, `out`: `[t, heads · (out_features + rest)]`.
    fn project_heads(
        &self,
        step: &Self::Step,
        x: &Self::Tensor,
        linear: &Self::HeadLinear,
        out: &mut Self::Tensor,
    ) -> Result<(), BackendError> {
        let _ = (step, x, linear, out);
        Err(no_special(self.name(), "linears of heads"))
    }

    /// Causal attention of every new token over its row's pages. `q`: `[t, heads · head_dim]`,
    /// `out`: `[t, heads · value_dim]`.
    ///
    /// With `sinks`, `[heads]`, the softmax of head `h` has one more term, `exp(sinks[h])`, that
    /// counts in its sum and brings no value: neither scale nor soft-cap concern it.
    #[allow(clippy::too_many_arguments)]
    fn attend(
        &self,
        step: &Self::Step,
        op: &AttentionOp,
        sinks: Option<&Self::Vector>,
        q: &Self::Tensor,
        kv: &Self::Kv,
        out: &mut Self::Tensor,
    ) -> Result<(), BackendError>;

    /// `x[i, j] ·= σ(gate[i, ⌊j · n / width⌋])` with `σ(g) = 1 / (1 + e⁻ᵍ)`: one gate for a whole row
    /// (`n` = 1), one per head, or one per element. `gate`: `[t, n]`, `x`: `[t, width]`, `n` divides
    /// `width`.
    fn gate(
        &self,
        step: &Self::Step,
        gate: &Self::Tensor,
        x: &mut Self::Tensor,
    ) -> Result<(), BackendError> {
        let _ = (step, gate, x);
        Err(no_special(self.name(), "gates"))
    }

    /// `gate = act(gate) · up`, elementwise on `[t, width]`; `up = None`: `gate = act(gate)`.
    /// [`Activation::ClampedSwiglu`] is a function of both; without `up` it takes `up = 0`.
    fn activate(
        &self,
        step: &Self::Step,
        act: Activation,
        gate: &mut Self::Tensor,
        up: Option<&Self::Tensor>,
    ) -> Result<(), BackendError>;

    /// `residual += scale · Σ w_e · down_e(act(gate_e n) · up_e n)` with `n = norm(residual)`, over
    /// the experts `e` that a row takes. `residual`: `[t, hidden]`.
    ///
    /// A row takes the experts with the largest logits, `[experts]`, of `router` on `n`; of equal
    /// ones the lower id. [`Routing`](crate::Routing) says where this differs. Logits, scores and
    /// weights are f32. The sum has one order, that of the ids: `s = fma(w_e, y_e, s)` from 0, then `residual = fma(scale, s, residual)`.
    fn mix_experts(
        &self,
        step: &Self::Step,
        norm: Option<&Self::Norm>,
        router: &Self::Linear,
        experts: &Self::Experts,
        residual: &mut Self::Tensor,
    ) -> Result<(), BackendError> {
        let _ = (step, norm, router, experts, residual);
        Err(no_experts(self.name()))
    }

    /// Logits of the plan's `logit_tokens`: gather, norm, head, `scale`, soft-cap.
    /// `x`: `[t, hidden]`; `out`: `[logit_tokens, out_features]`.
    #[allow(clippy::too_many_arguments)]
    fn logits(
        &self,
        step: &Self::Step,
        x: &Self::Tensor,
        norm: &Self::Norm,
        head: &Self::Linear,
        scale: f32,
        softcap: Option<f32>,
        out: &mut Self::Tensor,
    ) -> Result<(), BackendError>;

    /// Appends one level: for every row of the plan the likeliest of the first `vocab` ids after its
    /// last token, by `logits`, `[logit_tokens, width]`; [`guess_plain`](crate::guess_plain) says what
    /// a guess is. Every row asks for logits, and levels have equally many rows, at most
    /// [`GUESS_LEVELS_MAX`](crate::GUESS_LEVELS_MAX) of them. Not before [`Backend::finish`], or after
    /// a [`Backend::replay`] that ran the step.
    fn guess(
        &self,
        step: &Self::Step,
        logits: &Self::Tensor,
        vocab: usize,
        guesses: &mut Self::Guesses,
    ) -> Result<(), BackendError>;

    /// Gives a step that awaits its ids those of the newest level, one to each row. Neither this nor
    /// [`Backend::guess`] waits for earlier work.
    fn feed(&self, step: &mut Self::Step, guesses: &Self::Guesses) -> Result<(), BackendError>;

    /// Replaces `out` by all guesses, `[levels, rows]`, waiting for pending work; none are left.
    fn read_guesses(
        &self,
        guesses: &mut Self::Guesses,
        out: &mut Vec<Guess>,
    ) -> Result<(), BackendError>;

    /// Copies whole pages, `(from, to)`, in all layers.
    fn copy_pages(&self, kv: &mut Self::Kv, moves: &[(u32, u32)]) -> Result<(), BackendError>;

    /// Copies the first `tokens` tokens of one page to another, in all layers.
    fn copy_page_prefix(
        &self,
        kv: &mut Self::Kv,
        from: u32,
        to: u32,
        tokens: usize,
    ) -> Result<(), BackendError>;

    /// Bytes of one page over all layers: the length of what [`Backend::read_page`] gives.
    fn page_bytes(&self, kv: &Self::Kv) -> usize;

    /// Replaces `out` by the raw bytes of one page, waiting for pending work. Layer by layer:
    /// keys, their scales, values, their scales (scales in quantised formats only). Inside these
    /// the layout is the backend's own, so the bytes mean something only to a cache of the same
    /// backend, format and layers.
    fn read_page(&self, kv: &Self::Kv, page: u32, out: &mut Vec<u8>) -> Result<(), BackendError>;

    /// Overwrites one page by what [`Backend::read_page`] gave.
    fn write_page(&self, kv: &mut Self::Kv, page: u32, bytes: &[u8]) -> Result<(), BackendError>;

    /// Uploads rows, `[rows, width]`; for tests and embeddings from elsewhere.
    fn write(
        &self,
        rows: usize,
        width: usize,
        values: &[f32],
    ) -> Result<Self::Tensor, BackendError>;

    /// Replaces the first `rows` rows of a tensor, `[rows, width]`; the others become undefined. A
    /// backend may put another tensor in its place.
    fn rewrite(
        &self,
        tensor: &mut Self::Tensor,
        rows: usize,
        values: &[f32],
    ) -> Result<(), BackendError> {
        *tensor = self.write(rows, values.len() / rows.max(1), values)?;
        Ok(())
    }

    /// Reads the first `rows` rows as f32, waiting for pending work.
    fn read(
        &self,
        tensor: &Self::Tensor,
        rows: usize,
        out: &mut Vec<f32>,
    ) -> Result<(), BackendError>;

    /// Replaces `out` by one row as f32, waiting for pending work.
    fn read_row(
        &self,
        tensor: &Self::Tensor,
        row: usize,
        out: &mut Vec<f32>,
    ) -> Result<(), BackendError> {
        self.read(tensor, row + 1, out)?;
        let width = out.len() / (row + 1);
        out.drain(..row * width);
        Ok(())
    }

    /// Whether [`Backend::narrow`] works. It does where steps run beside the host and reading a row
    /// costs something.
    fn narrows(&self) -> bool {
        false
    }

    /// Whether everything enqueued so far is done; always, where steps do not run beside the host.
    fn is_idle(&self) -> bool {
        true
    }

    /// Replaces `out` by the answers to `asks`, in their order, waiting for pending work. Every ask
    /// passes [`NarrowAsk::check`]; rows may be asked for in any order and more than once.
    fn narrow(
        &self,
        logits: &Self::Tensor,
        asks: &[NarrowAsk<'_>],
        out: &mut Vec<NarrowRow>,
    ) -> Result<(), BackendError> {
        let _ = (logits, asks, out);
        Err(BackendError::unsupported(self.name(), "narrowing of logits", "read the rows"))
    }
}

fn no_special(backend: &'static str, what: &'static str) -> BackendError {
    BackendError::unsupported(backend, what, "use another backend, e.g. --device cpu")
}

fn no_experts(backend: &'static str) -> BackendError {
    let hint = "use a dense model or another backend";
    BackendError::unsupported(backend, "mixtures of experts", hint)
}
