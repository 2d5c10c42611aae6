//! `CudaBackend`: the trait, wired to the kernels.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pagella_arch::{Activation, QkNormSpan, RopeSpec};
use pagella_backend::{
    AttentionOp, Backend, BackendError, Guess, HeadWeights, KvSpec, KvValues, MoeOp, NarrowAsk,
    NarrowRow, NormWeights, PAGE_TOKENS, Projection, StepPlan, TableSource,
};
use pagella_formats::{Linear, LinearKind};

use crate::checks::{
    checked_pages, expect_norm_first, expect_room_for_sinks, expect_stored_values, latent_rank,
};
use crate::device::Device;
use crate::error::device_error;
use crate::experts::{self, CudaExperts};
use crate::graph::{Capture, Key, Recordings};
use crate::kv::{CudaKv, expect_entry};
use crate::linear::args::NormArgs;
use crate::linear::{self, CudaLinear, Input, Loader, Product, Runner};
use crate::ops::activate::{self, activate, finish_logits};
use crate::ops::adapt::CudaSlots;
use crate::ops::append::{Heads, Rotation, append};
use crate::ops::append_latent::append_latent;
use crate::ops::attend::{Rows, attend};
use crate::ops::embed::{CudaTable, embed};
use crate::ops::guess::CudaGuesses;
use crate::ops::heads::{CudaHeadLinear, project_heads};
use crate::ops::logits::project_head;
use crate::ops::narrow::{NarrowBuffers, narrow};
use crate::ops::norm::{CudaNorm, norm_add, norm_rows};
use crate::ops::rope::CudaRope;
use crate::options::CudaOptions;
use crate::scratch::Scratch;
use crate::step::{BUCKETS, CudaStep, StepBuffers};
use crate::tensor::Tensor;
use crate::vector::CudaVector;

/// One CUDA device as a [`Backend`]; clones share it. Everything runs in order on one stream.
#[derive(Clone)]
pub struct CudaBackend {
    shared: Arc<Shared>,
}

struct Shared {
    // Dropped before the device they were made on.
    scratch: Scratch,
    steps: Mutex<StepBuffers>,
    narrowed: Mutex<NarrowBuffers>,
    loader: Loader,
    options: CudaOptions,
    device: Device,
}

impl CudaBackend {
    /// Opens the device and loads the kernels.
    pub fn new(options: CudaOptions) -> Result<Self, BackendError> {
        let device = Device::open(options.device)?;
        Ok(CudaBackend {
            shared: Arc::new(Shared {
                scratch: Scratch::default(),
                steps: Mutex::new(StepBuffers::new(&device)?),
                narrowed: Mutex::default(),
                loader: Loader::default(),
                options,
                device,
            }),
        })
    }

    pub(crate) fn device(&self) -> &Device {
        &self.shared.device
    }

    fn steps(&self) -> MutexGuard<'_, StepBuffers> {
        self.shared.steps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn scratch(&self) -> &Scratch {
        &self.shared.scratch
    }

    pub(crate) fn runner(&self) -> Runner<'_> {
        let Shared { device, scratch, options, .. } = &*self.shared;
        Runner { device, scratch, dequantised_max: options.dequantised_max }
    }

    /// Recordings of steps of this shape over this cache.
    fn key(&self, step: &CudaStep, kv: &CudaKv) -> Option<Key> {
        let generation = self.shared.scratch.generation();
        let shape = step.shape.clone().filter(|_| self.shared.options.graphs)?;
        let rank = if shape.row_adapters() > 0 { self.shared.scratch.rank() } else { 0 };
        Some(Key { shape, kv: kv.id, generation, rank })
    }

    /// Rows of a rotary table for the tokens of a step.
    fn rotation(&self, step: &CudaStep, rope: &CudaRope) -> Result<Rotation, BackendError> {
        let (rows, replaced) = rope.rows(self.device(), step)?;
        if replaced {
            self.shared.scratch.bump();
        }
        Ok(Rotation { rows, dim: rope.rotary_dim, style: rope.style })
    }
}

impl Backend for CudaBackend {
    type Tensor = Tensor;
    type Linear = CudaLinear;
    type Norm = CudaNorm;
    type Table = CudaTable;
    type Rope = CudaRope;
    type Vector = CudaVector;
    type Kv = CudaKv;
    type Step = CudaStep;
    type Experts = CudaExperts;
    type HeadLinear = CudaHeadLinear;
    type Recordings = Recordings;
    type Guesses = CudaGuesses;
    type Slots = CudaSlots;

    fn name(&self) -> &'static str {
        "cuda"
    }

    fn describe(&self) -> String {
        let Device { name, limits, .. } = self.device();
        let (index, version, sms) = (self.shared.options.device, limits.version(), limits.sms);
        format!("cuda:{index}, {name}, compute capability {version}, {sms} multiprocessors")
    }

    fn accept_attention(&self, op: &AttentionOp, has_sinks: bool) -> Result<(), BackendError> {
        if op.qk_norm_span != QkNormSpan::Head {
            expect_norm_first(op)?;
        }
        if let KvValues::InKeys(rank) = op.values {
            expect_entry(op.kv_heads, op.head_dim, rank)?;
        }
        if has_sinks { expect_room_for_sinks(op) } else { Ok(()) }
    }

    fn accept_linear(&self, kind: LinearKind, widths: &[(u8, u64)]) -> Result<(), BackendError> {
        match (kind, widths) {
            (LinearKind::Exl2 | LinearKind::Plain, _) => Ok(()),
            (LinearKind::Gptq | LinearKind::Awq | LinearKind::PackQuantized, [(4, _)]) => Ok(()),
            (_, [(bits, _)]) => Err(BackendError::unsupported(
                "cuda",
                format!("{bits}-bit {} weights yet", kind.name()),
                "add --device cpu",
            )),
            _ => Err(BackendError::unsupported(
                "cuda",
                format!("{} weights yet", kind.name()),
                "add --device cpu",
            )),
        }
    }

    fn accept_experts(&self, _op: &MoeOp, _weighed: bool) -> Result<(), BackendError> {
        Ok(())
    }

    fn bias_selection(
        &self,
        experts: &mut CudaExperts,
        bias: CudaVector,
    ) -> Result<(), BackendError> {
        experts.bias_selection(bias)
    }

    fn vector(&self, values: &[f32]) -> Result<CudaVector, BackendError> {
        CudaVector::new(self.device(), values)
    }

    fn tensor(&self, rows: usize, width: usize) -> Result<Tensor, BackendError> {
        Tensor::new(self.device(), rows, width)
    }

    fn linear(&self, source: &Linear<'_>) -> Result<CudaLinear, BackendError> {
        self.shared.loader.load(self.device(), source)
    }

    fn head_linear(&self, source: &HeadWeights) -> Result<CudaHeadLinear, BackendError> {
        CudaHeadLinear::new(self.device(), source)
    }

    fn experts(&self, op: &MoeOp, rows: usize) -> Result<CudaExperts, BackendError> {
        CudaExperts::new(*op, rows)
    }

    fn add_expert(
        &self,
        experts: &mut CudaExperts,
        gate: CudaLinear,
        up: CudaLinear,
        down: CudaLinear,
    ) -> Result<(), BackendError> {
        experts.add(self.device(), &self.shared.scratch, [gate, up, down])
    }

    fn norm(&self, weights: NormWeights) -> Result<CudaNorm, BackendError> {
        CudaNorm::new(self.device(), &self.shared.loader, &weights)
    }

    fn table(&self, source: TableSource) -> Result<CudaTable, BackendError> {
        let Shared { device, loader, options, .. } = &*self.shared;
        CudaTable::new(device, loader, &source, options.tables_on_host)
    }

    fn rope(&self, spec: &RopeSpec, _context: usize) -> Result<CudaRope, BackendError> {
        CudaRope::new(self.device(), spec)
    }

    fn kv(&self, spec: &KvSpec) -> Result<CudaKv, BackendError> {
        // Everything is loaded when a cache is made: staging is not needed any longer.
        self.shared.loader.finish(self.device())?;
        CudaKv::new(self.device(), spec)
    }

    fn linear_bytes(&self, linear: &CudaLinear) -> usize {
        linear.bytes()
    }

    fn head_linear_bytes(&self, linear: &CudaHeadLinear) -> usize {
        linear.bytes()
    }

    fn begin(&self, plan: &StepPlan) -> Result<CudaStep, BackendError> {
        let (step, replaced) = self.steps().upload(self.device(), plan)?;
        if replaced {
            self.shared.scratch.bump();
        }
        Ok(step)
    }

    fn recorded_tokens(&self) -> &'static [usize] {
        if self.shared.options.graphs { &BUCKETS } else { &[] }
    }

    fn replay(
        &self,
        recordings: &mut Recordings,
        step: &mut CudaStep,
        kv: &CudaKv,
    ) -> Result<bool, BackendError> {
        let Some(key) = self.key(step, kv) else { return Ok(false) };
        step.plan.expect_ids()?;
        kv.expect_pages(&step.plan)?;
        kv.expect_own_pages(&step.plan)?;
        if let Some(graph) = recordings.graph(&key) {
            graph.launch().map_err(device_error)?;
            return Ok(true);
        }
        if recordings.seen(&key) {
            step.capture = Some(Capture::begin(&self.device().stream)?);
        }
        Ok(false)
    }

    fn finish(
        &self,
        recordings: &mut Recordings,
        step: &mut CudaStep,
        kv: &CudaKv,
    ) -> Result<(), BackendError> {
        let capture = step.capture.take();
        self.steps().learn(step);
        let Some(key) = self.key(step, kv) else { return Ok(()) };
        let Some(capture) = capture else {
            recordings.note(key);
            return Ok(());
        };
        let Some(graph) = capture.end()? else { return Ok(()) };
        graph.upload().map_err(device_error)?;
        graph.launch().map_err(device_error)?;
        recordings.keep(key, graph);
        Ok(())
    }

    fn forget_adapted(recordings: &mut Recordings) {
        recordings.forget_adapted();
    }

    fn embed(
        &self,
        step: &CudaStep,
        table: &CudaTable,
        scale: f32,
        positions: Option<&CudaTable>,
        out: &mut Tensor,
    ) -> Result<(), BackendError> {
        embed(self.device(), step, table, scale, positions, out)
    }

    fn project(
        &self,
        step: &CudaStep,
        x: &Tensor,
        norm: Option<&CudaNorm>,
        projections: &mut [Projection<'_, Self>],
    ) -> Result<(), BackendError> {
        let tokens = step.plan.tokens();
        if let Some(norm) = norm {
            norm.expect(x.width)?;
        }
        let mut products = Vec::with_capacity(projections.len());
        for projection in projections {
            let linear = projection.linear;
            x.expect("linear input", tokens, linear.in_features)?;
            projection.out.expect("linear output", tokens, linear.out_features)?;
            products.push(Product { linear, out: projection.out.ptr(), add: None });
        }
        let norm = norm.map_or(NormArgs::default(), CudaNorm::args);
        let input = Input { x: x.ptr(), stride: x.width, row_map: 0, norm, rows: step.tokens };
        linear::run(&self.runner(), &input, &products)
    }

    fn project_add(
        &self,
        step: &CudaStep,
        x: &Tensor,
        linear: &CudaLinear,
        scale: f32,
        residual: &mut Tensor,
    ) -> Result<(), BackendError> {
        let tokens = step.plan.tokens();
        x.expect("linear input", tokens, linear.in_features)?;
        residual.expect("residual", tokens, linear.out_features)?;
        let norm = NormArgs::default();
        let input = Input { x: x.ptr(), stride: x.width, row_map: 0, norm, rows: step.tokens };
        let product = Product { linear, out: residual.ptr(), add: Some(scale) };
        linear::run(&self.runner(), &input, &[product])
    }

    fn norm_add(
        &self,
        step: &CudaStep,
        x: &Tensor,
        norm: &CudaNorm,
        scale: f32,
        residual: &mut Tensor,
    ) -> Result<(), BackendError> {
        let (tokens, width) = (step.plan.tokens(), x.width);
        norm.expect(width)?;
        x.expect("norm input", tokens, width)?;
        residual.expect("residual", tokens, width)?;
        norm_add(self.device(), step.tokens, norm, x, scale, residual)
    }

    fn append(
        &self,
        step: &CudaStep,
        op: &AttentionOp,
        qk_norm: Option<(&CudaNorm, &CudaNorm)>,
        rope: Option<&CudaRope>,
        q: &mut Tensor,
        k: &mut Tensor,
        v: &mut Tensor,
        kv: &mut CudaKv,
    ) -> Result<(), BackendError> {
        let pages = checked_pages(step, op, kv)?;
        expect_stored_values(op)?;
        kv.expect_own_pages(&step.plan)?;
        let tokens = step.plan.tokens();
        q.expect("queries", tokens, op.heads * op.head_dim)?;
        k.expect("keys", tokens, op.kv_heads * op.head_dim)?;
        v.expect("values", tokens, op.kv_heads * op.head_dim)?;
        let rotation = match rope {
            None => None,
            Some(rope) if rope.rotary_dim > op.head_dim => {
                let (expected, found) = (op.head_dim, rope.rotary_dim);
                return Err(BackendError::Size { what: "rotary size", expected, found });
            }
            Some(rope) => Some(self.rotation(step, rope)?),
        };
        let of_heads = qk_norm.filter(|_| op.qk_norm_span == QkNormSpan::Head);
        if let (Some((q_norm, k_norm)), None) = (qk_norm, of_heads) {
            expect_norm_first(op)?;
            norm_rows(self.device(), step.tokens, q_norm, q)?;
            norm_rows(self.device(), step.tokens, k_norm, k)?;
        }
        let heads = Heads { q: q.ptr(), k: k.ptr(), v: v.ptr() };
        append(self.device(), step, op, of_heads, rotation, &heads, pages)
    }

    fn append_latent(
        &self,
        step: &CudaStep,
        op: &AttentionOp,
        norm: &CudaNorm,
        rope: &CudaRope,
        q: &mut Tensor,
        entry: &mut Tensor,
        kv: &mut CudaKv,
    ) -> Result<(), BackendError> {
        let pages = checked_pages(step, op, kv)?;
        let rank = latent_rank(op)?;
        kv.expect_own_pages(&step.plan)?;
        let tokens = step.plan.tokens();
        q.expect("queries", tokens, op.heads * op.head_dim)?;
        entry.expect("entries", tokens, op.head_dim)?;
        norm.expect(rank)?;
        if rope.rotary_dim != op.head_dim - rank {
            let (expected, found) = (op.head_dim - rank, rope.rotary_dim);
            return Err(BackendError::Size { what: "rotary size", expected, found });
        }
        let rotation = self.rotation(step, rope)?;
        let rows = (q.ptr(), entry.ptr());
        append_latent(self.device(), step, op, norm.args(), rotation, rows, pages)
    }

    fn project_heads(
        &self,
        step: &CudaStep,
        x: &Tensor,
        linear: &CudaHeadLinear,
        out: &mut Tensor,
    ) -> Result<(), BackendError> {
        let tokens = step.plan.tokens();
        x.expect("input of heads", tokens, x.width)?;
        out.expect("output of heads", tokens, out.width)?;
        project_heads(self.device(), step.tokens, x, linear, out)
    }

    fn attend(
        &self,
        step: &CudaStep,
        op: &AttentionOp,
        sinks: Option<&CudaVector>,
        q: &Tensor,
        kv: &CudaKv,
        out: &mut Tensor,
    ) -> Result<(), BackendError> {
        let pages = checked_pages(step, op, kv)?;
        let tokens = step.plan.tokens();
        q.expect("queries", tokens, op.heads * op.head_dim)?;
        out.expect("attention output", tokens, op.heads * op.value_dim())?;
        if sinks.is_some() {
            expect_room_for_sinks(op)?;
        }
        let sinks = sinks.map(|sinks| sinks.expect("attention sinks", op.heads)).transpose()?;
        let rows = Rows { q: q.ptr(), out: out.ptr(), sinks: sinks.unwrap_or(0) };
        attend(self.device(), &self.shared.scratch, step, op, pages, rows)
    }

    fn gate(&self, step: &CudaStep, gate: &Tensor, x: &mut Tensor) -> Result<(), BackendError> {
        let tokens = step.plan.tokens();
        gate.expect("gates", tokens, gate.width)?;
        x.expect("gated rows", tokens, x.width)?;
        activate::gate(self.device(), step.tokens, gate, x)
    }

    fn activate(
        &self,
        step: &CudaStep,
        act: Activation,
        gate: &mut Tensor,
        up: Option<&Tensor>,
    ) -> Result<(), BackendError> {
        let (tokens, width) = (step.plan.tokens(), gate.width);
        gate.expect("gate", tokens, width)?;
        if let Some(up) = up {
            up.expect("up", tokens, width)?;
        }
        activate(self.device(), step.tokens, act, gate, up)
    }

    fn mix_experts(
        &self,
        step: &CudaStep,
        norm: Option<&CudaNorm>,
        router: &CudaLinear,
        experts: &CudaExperts,
        residual: &mut Tensor,
    ) -> Result<(), BackendError> {
        experts::mix(&self.runner(), step, norm, router, experts, residual)
    }

    fn logits(
        &self,
        step: &CudaStep,
        x: &Tensor,
        norm: &CudaNorm,
        head: &CudaLinear,
        scale: f32,
        softcap: Option<f32>,
        out: &mut Tensor,
    ) -> Result<(), BackendError> {
        if step.plan.logit_tokens().is_empty() {
            return Ok(());
        }
        project_head(&self.runner(), step, x, norm, head, out)?;
        finish_logits(self.device(), step.logit_rows, scale, softcap, out)
    }

    fn guess(
        &self,
        step: &CudaStep,
        logits: &Tensor,
        vocab: usize,
        guesses: &mut CudaGuesses,
    ) -> Result<(), BackendError> {
        guesses.push(self.device(), step, logits, vocab)
    }

    fn feed(&self, step: &mut CudaStep, guesses: &CudaGuesses) -> Result<(), BackendError> {
        guesses.feed(self.device(), step)
    }

    fn read_guesses(
        &self,
        guesses: &mut CudaGuesses,
        out: &mut Vec<Guess>,
    ) -> Result<(), BackendError> {
        guesses.take(self.device(), out)
    }

    fn copy_pages(&self, kv: &mut CudaKv, moves: &[(u32, u32)]) -> Result<(), BackendError> {
        kv.copy(self.device(), moves, PAGE_TOKENS)
    }

    fn copy_page_prefix(
        &self,
        kv: &mut CudaKv,
        from: u32,
        to: u32,
        tokens: usize,
    ) -> Result<(), BackendError> {
        kv.copy(self.device(), &[(from, to)], tokens)
    }

    fn page_bytes(&self, kv: &CudaKv) -> usize {
        kv.page_bytes()
    }

    fn read_page(&self, kv: &CudaKv, page: u32, out: &mut Vec<u8>) -> Result<(), BackendError> {
        kv.read_page(self.device(), page, out)
    }

    fn write_page(&self, kv: &mut CudaKv, page: u32, bytes: &[u8]) -> Result<(), BackendError> {
        kv.write_page(self.device(), page, bytes)
    }

    fn write(&self, rows: usize, width: usize, values: &[f32]) -> Result<Tensor, BackendError> {
        let tensor = Tensor::new(self.device(), rows, width)?;
        if values.len() != rows * width {
            let (expected, found) = (rows * width, values.len());
            return Err(BackendError::Size { what: "values", expected, found });
        }
        self.device().write(&tensor.buffer, 0, values)?;
        Ok(tensor)
    }

    fn read(&self, tensor: &Tensor, rows: usize, out: &mut Vec<f32>) -> Result<(), BackendError> {
        tensor.expect("tensor", rows, tensor.width)?;
        out.clear();
        out.resize(rows * tensor.width, 0.0);
        self.device().read(&tensor.buffer, 0, out)
    }

    fn read_row(
        &self,
        tensor: &Tensor,
        row: usize,
        out: &mut Vec<f32>,
    ) -> Result<(), BackendError> {
        tensor.expect("tensor", row + 1, tensor.width)?;
        out.clear();
        out.resize(tensor.width, 0.0);
        self.device().read(&tensor.buffer, 4 * row * tensor.width, out)
    }

    fn narrows(&self) -> bool {
        true
    }

    fn is_idle(&self) -> bool {
        self.device().is_idle()
    }

    fn narrow(
        &self,
        logits: &Tensor,
        asks: &[NarrowAsk<'_>],
        out: &mut Vec<NarrowRow>,
    ) -> Result<(), BackendError> {
        let Shared { device, scratch, narrowed, .. } = &*self.shared;
        let mut buffers = narrowed.lock().unwrap_or_else(PoisonError::into_inner);
        narrow(device, scratch, &mut buffers, logits, asks, out)
    }
}
