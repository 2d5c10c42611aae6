//! `CpuBackend`: the trait, wired to the kernels.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pagella_arch::{Activation, RopeSpec};
use pagella_backend::{
    AttentionOp, Backend, BackendError, Guess, HeadWeights, HostGuesses, KvSpec, MoeOp,
    NormWeights, Projection, StepPlan, TableSource,
};
use pagella_formats::Linear;

use crate::account::{Account, CpuMemory};
use crate::kv::{self, KvPages};
use crate::linear::{self, CpuLinear, InputBuffers, Layouts, Machine, MathMode, Rows, Target};
use crate::memory::{Aligned, Tensor};
use crate::ops::activate::{activate, finish_logits, gate};
use crate::ops::adapt::{AdapterGroups, CpuSlots, StepAdapters};
use crate::ops::attention::attend;
use crate::ops::embed::{CpuTable, embed};
use crate::ops::experts::{CpuExperts, ExpertBuffers, mix};
use crate::ops::heads::{CpuHeadLinear, project_heads};
use crate::ops::norm::{CpuNorm, norm_add, norm_row};
use crate::ops::rope::CpuRope;
use crate::simd::Isa;
use crate::threads::Pool;
use crate::topology::{cores, usable_cpus};

/// Most threads a user may ask for.
const THREADS_MAX: usize = 1024;

/// Choices of the user.
#[derive(Clone, Copy, Debug)]
pub struct CpuOptions {
    /// Threads including the caller, at most one per CPU that the process may use; `None`: one per
    /// physical core.
    pub threads: Option<usize>,
    /// Arithmetic of quantised linears.
    pub math: MathMode,
    /// Instruction set; `None`: the best one.
    pub isa: Option<Isa>,
    /// Bind workers to cores, if every thread gets a core of its own. For a machine that does nothing
    /// else: a worker that is bound waits for its core while others are free, and cannot make way for
    /// its caller.
    pub pin: bool,
}

impl Default for CpuOptions {
    fn default() -> Self {
        CpuOptions { threads: None, math: MathMode::Exact, isa: None, pin: false }
    }
}

/// The CPU as a [`Backend`]; clones share threads.
#[derive(Clone)]
pub struct CpuBackend {
    shared: Arc<Shared>,
}

struct Shared {
    isa: Isa,
    math: MathMode,
    pool: Arc<Pool>,
    account: Arc<Account>,
    layouts: Layouts,
    buffers: Mutex<InputBuffers>,
    expert_buffers: Mutex<ExpertBuffers>,
    adapter_buffer: Mutex<Aligned<f32>>,
}

/// A plan on the CPU is just the plan, its rows sorted by adapters.
pub struct CpuStep {
    pub(crate) plan: StepPlan,
    groups: AdapterGroups,
}

impl CpuStep {
    /// The adapters of a step that has some.
    pub(crate) fn adapters(&self) -> StepAdapters<'_> {
        StepAdapters { plan: &self.plan, groups: &self.groups }
    }
}

impl CpuBackend {
    /// Starts the worker threads.
    pub fn new(options: CpuOptions) -> Result<Self, BackendError> {
        let cpus = usable_cpus();
        let threads = options.threads.unwrap_or(cpus.len());
        if threads == 0 || threads > THREADS_MAX {
            return Err(BackendError::unsupported(
                "cpu",
                format!("{threads} threads"),
                format!("choose 1 to {THREADS_MAX}"),
            ));
        }
        // More threads than cores only push each other aside.
        let threads = threads.min(cores());
        let pinned = options.pin && threads <= cpus.len();
        let pool = Pool::new(threads, pinned.then_some(&cpus));
        let isa = options.isa.unwrap_or_else(Isa::best);
        Ok(Self::on(isa, options.math, Arc::new(pool), None))
    }

    /// Another device on the same threads, with memory of its own: at most `limit_bytes` for weights,
    /// activations and caches, or what the machine has.
    pub fn device(&self, limit_bytes: Option<u64>) -> Self {
        let Shared { isa, math, pool, .. } = &*self.shared;
        Self::on(*isa, *math, pool.clone(), limit_bytes)
    }

    fn on(isa: Isa, math: MathMode, pool: Arc<Pool>, limit_bytes: Option<u64>) -> Self {
        let account = Account::new(limit_bytes);
        let shared = Shared {
            isa,
            math,
            pool,
            layouts: Layouts::default(),
            buffers: Mutex::new(InputBuffers::of(&account)),
            expert_buffers: Mutex::new(ExpertBuffers::of(&account)),
            adapter_buffer: Mutex::default(),
            account,
        };
        CpuBackend { shared: Arc::new(shared) }
    }

    /// What was taken of its memory, and how much there is.
    pub fn memory(&self) -> CpuMemory {
        self.shared.account.memory()
    }

    pub(crate) fn account(&self) -> &Arc<Account> {
        &self.shared.account
    }

    /// Threads that work on a step.
    pub fn threads(&self) -> usize {
        self.shared.pool.threads()
    }

    /// The instruction set in use.
    pub fn isa(&self) -> Isa {
        self.shared.isa
    }

    /// The arithmetic of quantised linears.
    pub fn math(&self) -> MathMode {
        self.shared.math
    }

    pub(crate) fn machine(&self) -> Machine<'_> {
        let Shared { isa, math, pool, buffers, .. } = &*self.shared;
        Machine { isa: *isa, pool, math: *math, buffers }
    }

    pub(crate) fn expert_buffers(&self) -> MutexGuard<'_, ExpertBuffers> {
        self.shared.expert_buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn adapter_buffer(&self) -> MutexGuard<'_, Aligned<f32>> {
        self.shared.adapter_buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes rows of `x`, normed if need be.
    pub(crate) fn row_source<'a>(
        &self,
        x: &'a Tensor,
        norm: Option<&'a CpuNorm>,
    ) -> impl Fn(usize, &mut [f32]) + Sync + use<'a> {
        let isa = self.shared.isa;
        move |row, out| match norm {
            Some(norm) => norm_row(isa, norm, x.row(row), out),
            None => out.copy_from_slice(x.row(row)),
        }
    }

    /// Runs linears on rows of `x`.
    pub(crate) fn run_linears(
        &self,
        x: &Tensor,
        norm: Option<&CpuNorm>,
        targets: &mut [Target<'_>],
    ) -> Result<(), BackendError> {
        linear::run_all(&self.machine(), &self.row_source(x, norm), targets)
    }

    /// Norm and head of the tokens that want logits.
    pub(crate) fn head(
        &self,
        step: &CpuStep,
        x: &Tensor,
        norm: &CpuNorm,
        head: &CpuLinear,
        out: &mut Tensor,
    ) -> Result<(), BackendError> {
        let wanted = step.plan.logit_tokens();
        norm.expect(x.width)?;
        x.expect("head input", step.plan.tokens(), head.in_features)?;
        out.expect("logits", wanted.len(), head.out_features)?;
        let values = &mut out.data[..wanted.len() * head.out_features];
        let target = Target { linear: head, rows: Rows::Listed(wanted), out: values, add: None };
        self.run_linears(x, Some(norm), &mut [target])
    }
}

impl Backend for CpuBackend {
    type Tensor = Tensor;
    type Linear = CpuLinear;
    type Experts = CpuExperts;
    type HeadLinear = CpuHeadLinear;
    type Norm = CpuNorm;
    type Table = CpuTable;
    type Rope = CpuRope;
    type Vector = Vec<f32>;
    type Kv = KvPages;
    type Step = CpuStep;
    type Recordings = ();
    type Guesses = HostGuesses;
    type Slots = CpuSlots;

    fn name(&self) -> &'static str {
        "cpu"
    }

    fn describe(&self) -> String {
        let threads = self.threads();
        let plural = if threads == 1 { "" } else { "s" };
        format!("cpu, {}, {threads} thread{plural}, {} math", self.isa().name(), self.math().name())
    }

    fn accept_attention(&self, _op: &AttentionOp, _has_sinks: bool) -> Result<(), BackendError> {
        Ok(())
    }

    fn accept_experts(&self, _op: &MoeOp, _weighed: bool) -> Result<(), BackendError> {
        Ok(())
    }

    fn tensor(&self, rows: usize, width: usize) -> Result<Tensor, BackendError> {
        let bytes = rows.saturating_mul(width).saturating_mul(size_of::<f32>());
        let claim = self.account().claim(bytes, "activations")?;
        Ok(Tensor { _claim: claim, ..Tensor::new(rows, width)? })
    }

    fn linear(&self, source: &Linear<'_>) -> Result<CpuLinear, BackendError> {
        let Shared { isa, pool, layouts, .. } = &*self.shared;
        let mut linear = linear::load(*isa, pool, layouts, source)?;
        linear._claim = self.account().claim(linear.bytes(), "weights")?;
        Ok(linear)
    }

    fn head_linear(&self, source: &HeadWeights) -> Result<CpuHeadLinear, BackendError> {
        let mut linear = CpuHeadLinear::new(source)?;
        linear._claim = self.account().claim(linear.bytes(), "weights")?;
        Ok(linear)
    }

    fn experts(&self, op: &MoeOp, rows: usize) -> Result<CpuExperts, BackendError> {
        let experts = CpuExperts::new(*op)?;
        self.expert_buffers().reserve(op, rows)?;
        Ok(experts)
    }

    fn add_expert(
        &self,
        experts: &mut CpuExperts,
        gate: CpuLinear,
        up: CpuLinear,
        down: CpuLinear,
    ) -> Result<(), BackendError> {
        experts.add(gate, up, down)
    }

    fn bias_selection(&self, experts: &mut CpuExperts, bias: Vec<f32>) -> Result<(), BackendError> {
        experts.bias_selection(bias)
    }

    fn vector(&self, values: &[f32]) -> Result<Vec<f32>, BackendError> {
        Ok(values.to_vec())
    }

    fn norm(&self, weights: NormWeights) -> Result<CpuNorm, BackendError> {
        let mut norm = CpuNorm::new(weights)?;
        norm._claim = self.account().claim(norm.bytes(), "norms")?;
        Ok(norm)
    }

    fn table(&self, source: TableSource) -> Result<CpuTable, BackendError> {
        CpuTable::new(source)
    }

    fn rope(&self, spec: &RopeSpec, context: usize) -> Result<CpuRope, BackendError> {
        CpuRope::new(spec, context)
    }

    fn kv(&self, spec: &KvSpec) -> Result<KvPages, BackendError> {
        let claim = self.account().claim(spec.bytes(), "keys and values")?;
        let mut pages = KvPages::new(spec)?;
        pages._claim = claim;
        Ok(pages)
    }

    fn linear_bytes(&self, linear: &CpuLinear) -> usize {
        linear.bytes()
    }

    fn head_linear_bytes(&self, linear: &CpuHeadLinear) -> usize {
        linear.bytes()
    }

    fn begin(&self, plan: &StepPlan) -> Result<CpuStep, BackendError> {
        Ok(CpuStep { plan: plan.clone(), groups: AdapterGroups::new(plan) })
    }

    fn embed(
        &self,
        step: &CpuStep,
        table: &CpuTable,
        scale: f32,
        positions: Option<&CpuTable>,
        out: &mut Tensor,
    ) -> Result<(), BackendError> {
        step.plan.expect_ids()?;
        embed(self.shared.isa, &self.shared.pool, &step.plan, table, scale, positions, out)
    }

    fn project(
        &self,
        step: &CpuStep,
        x: &Tensor,
        norm: Option<&CpuNorm>,
        projections: &mut [Projection<'_, Self>],
    ) -> Result<(), BackendError> {
        let tokens = step.plan.tokens();
        if let Some(norm) = norm {
            norm.expect(x.width)?;
        }
        let mut targets = Vec::with_capacity(projections.len());
        for projection in projections {
            let linear = projection.linear;
            x.expect("linear input", tokens, linear.in_features)?;
            projection.out.expect("linear output", tokens, linear.out_features)?;
            let out = &mut projection.out.data[..tokens * linear.out_features];
            targets.push(Target { linear, rows: Rows::First(tokens), out, add: None });
        }
        self.run_linears(x, norm, &mut targets)
    }

    fn project_add(
        &self,
        step: &CpuStep,
        x: &Tensor,
        linear: &CpuLinear,
        scale: f32,
        residual: &mut Tensor,
    ) -> Result<(), BackendError> {
        let tokens = step.plan.tokens();
        x.expect("linear input", tokens, linear.in_features)?;
        residual.expect("residual", tokens, linear.out_features)?;
        let out = &mut residual.data[..tokens * linear.out_features];
        let target = Target { linear, rows: Rows::First(tokens), out, add: Some(scale) };
        self.run_linears(x, None, &mut [target])
    }

    fn norm_add(
        &self,
        step: &CpuStep,
        x: &Tensor,
        norm: &CpuNorm,
        scale: f32,
        residual: &mut Tensor,
    ) -> Result<(), BackendError> {
        let tokens = step.plan.tokens();
        norm_add(self.shared.isa, &self.shared.pool, tokens, norm, x, scale, residual)
    }

    fn append(
        &self,
        step: &CpuStep,
        op: &AttentionOp,
        qk_norm: Option<(&CpuNorm, &CpuNorm)>,
        rope: Option<&CpuRope>,
        q: &mut Tensor,
        k: &mut Tensor,
        v: &mut Tensor,
        kv: &mut KvPages,
    ) -> Result<(), BackendError> {
        let (isa, pool) = (self.shared.isa, &self.shared.pool);
        kv::append(isa, pool, &step.plan, op, qk_norm, rope, q, k, v, kv)
    }

    fn append_latent(
        &self,
        step: &CpuStep,
        op: &AttentionOp,
        norm: &CpuNorm,
        rope: &CpuRope,
        q: &mut Tensor,
        entry: &mut Tensor,
        kv: &mut KvPages,
    ) -> Result<(), BackendError> {
        let (isa, pool) = (self.shared.isa, &self.shared.pool);
        kv::append_latent(isa, pool, &step.plan, op, norm, rope, q, entry, kv)
    }

    fn project_heads(
        &self,
        step: &CpuStep,
        x: &Tensor,
        linear: &CpuHeadLinear,
        out: &mut Tensor,
    ) -> Result<(), BackendError> {
        project_heads(self.shared.isa, &self.shared.pool, step.plan.tokens(), x, linear, out)
    }

    fn attend(
        &self,
        step: &CpuStep,
        op: &AttentionOp,
        sinks: Option<&Vec<f32>>,
        q: &Tensor,
        kv: &KvPages,
        out: &mut Tensor,
    ) -> Result<(), BackendError> {
        let sinks = sinks.map(Vec::as_slice);
        attend(self.shared.isa, &self.shared.pool, &step.plan, op, sinks, q, kv, out)
    }

    fn gate(&self, step: &CpuStep, gates: &Tensor, x: &mut Tensor) -> Result<(), BackendError> {
        gate(self.shared.isa, &self.shared.pool, step.plan.tokens(), gates, x)
    }

    fn activate(
        &self,
        step: &CpuStep,
        act: Activation,
        gate: &mut Tensor,
        up: Option<&Tensor>,
    ) -> Result<(), BackendError> {
        activate(self.shared.isa, &self.shared.pool, step.plan.tokens(), act, gate, up)
    }

    fn mix_experts(
        &self,
        step: &CpuStep,
        norm: Option<&CpuNorm>,
        router: &CpuLinear,
        experts: &CpuExperts,
        residual: &mut Tensor,
    ) -> Result<(), BackendError> {
        let (machine, tokens) = (self.machine(), step.plan.tokens());
        let buffers = &mut *self.expert_buffers();
        mix(&machine, tokens, norm, router, experts, None, buffers, residual)
    }

    fn logits(
        &self,
        step: &CpuStep,
        x: &Tensor,
        norm: &CpuNorm,
        head: &CpuLinear,
        scale: f32,
        softcap: Option<f32>,
        out: &mut Tensor,
    ) -> Result<(), BackendError> {
        let rows = step.plan.logit_tokens().len();
        if rows == 0 {
            return Ok(());
        }
        self.head(step, x, norm, head, out)?;
        finish_logits(self.shared.isa, &self.shared.pool, rows, scale, softcap, out)
    }

    fn guess(
        &self,
        step: &CpuStep,
        logits: &Tensor,
        vocab: usize,
        guesses: &mut HostGuesses,
    ) -> Result<(), BackendError> {
        guesses.push(&step.plan, &logits.data, logits.width, vocab)
    }

    fn feed(&self, step: &mut CpuStep, guesses: &HostGuesses) -> Result<(), BackendError> {
        guesses.feed(&mut step.plan)
    }

    fn read_guesses(
        &self,
        guesses: &mut HostGuesses,
        out: &mut Vec<Guess>,
    ) -> Result<(), BackendError> {
        guesses.take(out);
        Ok(())
    }

    fn copy_pages(&self, kv: &mut KvPages, moves: &[(u32, u32)]) -> Result<(), BackendError> {
        kv.copy_pages(moves)
    }

    fn copy_page_prefix(
        &self,
        kv: &mut KvPages,
        from: u32,
        to: u32,
        tokens: usize,
    ) -> Result<(), BackendError> {
        kv.copy_page_prefix(from, to, tokens)
    }

    fn page_bytes(&self, kv: &KvPages) -> usize {
        kv.page_bytes()
    }

    fn read_page(&self, kv: &KvPages, page: u32, out: &mut Vec<u8>) -> Result<(), BackendError> {
        kv.read_page(page, out)
    }

    fn write_page(&self, kv: &mut KvPages, page: u32, bytes: &[u8]) -> Result<(), BackendError> {
        kv.write_page(page, bytes)
    }

    fn write(&self, rows: usize, width: usize, values: &[f32]) -> Result<Tensor, BackendError> {
        let mut tensor = self.tensor(rows, width)?;
        self.rewrite(&mut tensor, rows, values)?;
        Ok(tensor)
    }

    fn rewrite(
        &self,
        tensor: &mut Tensor,
        rows: usize,
        values: &[f32],
    ) -> Result<(), BackendError> {
        tensor.expect("tensor", rows, tensor.width)?;
        let first = &mut tensor.data[..rows * tensor.width];
        if values.len() != first.len() {
            let (expected, found) = (first.len(), values.len());
            return Err(BackendError::Size { what: "values", expected, found });
        }
        first.copy_from_slice(values);
        Ok(())
    }

    fn read(&self, tensor: &Tensor, rows: usize, out: &mut Vec<f32>) -> Result<(), BackendError> {
        tensor.expect("tensor", rows, tensor.width)?;
        out.clear();
        out.extend_from_slice(&tensor.data[..rows * tensor.width]);
        Ok(())
    }
}
