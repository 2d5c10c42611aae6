//! The activations of a step, allocated once and reused.
//!
//! Layers of one shape share their buffers, so the size does not grow with depth. Only the logits
//! grow, to the largest number of rows ever asked for.

use pagella_arch::{LayerSpec, LinearSpec, MlpSpec};
use pagella_backend::{Backend, BackendError, NarrowAsk, NarrowRow};

use crate::error::ModelError;

/// Bytes of an activation; backends may use fewer.
const ELEMENT_BYTES: u64 = 4;

/// All activations.
pub(crate) struct Workspace<B: Backend> {
    /// The residual stream, `[t, hidden]`.
    pub residual: B::Tensor,
    /// Output of a branch before its post-norm, `[t, hidden]`; only in models with post-norms.
    pub branch: Option<B::Tensor>,
    /// One set per distinct shape of layer.
    pub scratch: Vec<Scratch<B>>,
    /// Which set each layer uses.
    pub scratch_of_layer: Vec<usize>,
    /// Logits of the last step.
    pub logits: Logits<B>,
    bytes: u64,
}

/// Activations inside a layer.
pub(crate) struct Scratch<B: Backend> {
    /// Queries, `[t, heads · head_dim]`.
    pub q: B::Tensor,
    /// Keys, `[t, kv_heads · head_dim]`.
    pub k: B::Tensor,
    /// Values, like keys; in latent attention what becomes of the attention output,
    /// `[t, heads · value_dim]`.
    pub v: B::Tensor,
    /// Attention output, like queries; in latent attention `[t, heads · rank]`.
    pub attended: B::Tensor,
    /// Before queries are in latent space.
    pub latent: Option<LatentScratch<B>>,
    /// Inside a dense MLP or a shared expert; other experts keep theirs in the backend.
    pub mlp: Option<MlpScratch<B>>,
}

/// Queries of latent attention as they are projected.
pub(crate) struct LatentScratch<B: Backend> {
    /// Compressed.
    pub query_down: Option<B::Tensor>,
    /// Not yet in latent space, `[t, heads · (nope_dim + head_dim − rank)]`.
    pub queries: B::Tensor,
}

/// Activations inside a dense MLP.
pub(crate) struct MlpScratch<B: Backend> {
    /// Gate, or the only input projection of a plain MLP, `[t, intermediate]`.
    pub gate: B::Tensor,
    /// Up projection of a gated MLP, like `gate`.
    pub up: Option<B::Tensor>,
    /// How much a shared expert counts, `[t, 1]`.
    pub weight: Option<B::Tensor>,
}

/// Widths of a layer's activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Widths {
    q: usize,
    k: usize,
    v: usize,
    attended: usize,
    /// Projected queries of latent attention, and compressed ones.
    latent: Option<(usize, Option<usize>)>,
    /// Of a dense MLP or a shared expert.
    mlp: Option<MlpWidths>,
}

/// Widths of an MLP's activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MlpWidths {
    inner: usize,
    is_gated: bool,
    is_weighed: bool,
}

impl Widths {
    fn of(layer: &LayerSpec) -> Self {
        let mlp = |up: &LinearSpec, is_gated, is_weighed| {
            Some(MlpWidths { inner: up.out_features, is_gated, is_weighed })
        };
        let mlp = match &layer.mlp {
            MlpSpec::Gated { up, .. } => mlp(up, true, false),
            MlpSpec::Plain { up, .. } => mlp(up, false, false),
            MlpSpec::Moe(moe) => match &moe.shared {
                Some(shared) => mlp(&shared.up, true, shared.weight.is_some()),
                None => None,
            },
        };
        let attn = &layer.attn;
        let (q, k) = (attn.heads * attn.head_dim, attn.kv_heads * attn.head_dim);
        let Some(latent) = &attn.latent else {
            return Self { q, k, v: k, attended: q, latent: None, mlp };
        };
        let query_down = latent.query_down.as_ref().map(|down| down.linear.out_features);
        Self {
            q,
            k,
            v: attn.heads * latent.value_dim,
            attended: attn.heads * latent.rank,
            latent: Some((attn.q.out_features, query_down)),
            mlp,
        }
    }

    /// Elements per token.
    fn elements(&self) -> usize {
        let mlp = self.mlp.map_or(0, |mlp| {
            mlp.inner * if mlp.is_gated { 2 } else { 1 } + usize::from(mlp.is_weighed)
        });
        let latent = self.latent.map_or(0, |(queries, down)| queries + down.unwrap_or(0));
        self.q + self.k + self.v + self.attended + latent + mlp
    }
}

/// Elements per token that a backend needs between router and sum: normed rows, logits, and for
/// every expert of the token its gate, up and output. Layers share them.
fn expert_elements(hidden: usize, layers: &[LayerSpec]) -> usize {
    let of_layer = |layer: &LayerSpec| match &layer.mlp {
        MlpSpec::Moe(moe) => {
            hidden + moe.experts.len() + moe.experts_per_token * (2 * moe.inner() + hidden)
        }
        _ => 0,
    };
    layers.iter().map(of_layer).max().unwrap_or(0)
}

/// The distinct shapes of layers, and the shape of every layer.
fn widths(layers: &[LayerSpec]) -> (Vec<Widths>, Vec<usize>) {
    let mut distinct: Vec<Widths> = Vec::new();
    let mut of_layer = Vec::with_capacity(layers.len());
    for layer in layers {
        let widths = Widths::of(layer);
        let index = distinct.iter().position(|known| *known == widths);
        of_layer.push(index.unwrap_or(distinct.len()));
        if index.is_none() {
            distinct.push(widths);
        }
    }
    (distinct, of_layer)
}

fn has_post_norms(layers: &[LayerSpec]) -> bool {
    layers.iter().any(|l| l.attn_post_norm.is_some() || l.mlp_post_norm.is_some())
}

/// Bytes of all activations but the logits, those inside experts included.
pub(crate) fn workspace_bytes(hidden: usize, layers: &[LayerSpec], step_tokens: usize) -> u64 {
    let experts = ELEMENT_BYTES * (step_tokens * expert_elements(hidden, layers)) as u64;
    tensor_bytes(hidden, layers, step_tokens) + experts
}

/// Bytes of logits that had `rows` rows at once.
pub(crate) fn logits_bytes(vocab: usize, rows: usize) -> u64 {
    ELEMENT_BYTES * (roomy_rows(rows) * vocab) as u64
}

/// Rows that there is room for once there were `rows`.
fn roomy_rows(rows: usize) -> usize {
    rows.next_power_of_two()
}

/// Bytes of all activations but the logits and those inside experts.
pub(crate) fn tensor_bytes(hidden: usize, layers: &[LayerSpec], step_tokens: usize) -> u64 {
    let (shapes, _) = shape_bytes(layers, step_tokens);
    stream_bytes(hidden, layers, step_tokens) + shapes.iter().sum::<u64>()
}

/// Bytes of the residual stream, and of a branch beside it where there are post-norms.
pub(crate) fn stream_bytes(hidden: usize, layers: &[LayerSpec], step_tokens: usize) -> u64 {
    let streams = if has_post_norms(layers) { 2 } else { 1 };
    ELEMENT_BYTES * (step_tokens * streams * hidden) as u64
}

/// Bytes inside layers of every distinct shape, and the shape of every layer.
pub(crate) fn shape_bytes(layers: &[LayerSpec], step_tokens: usize) -> (Vec<u64>, Vec<usize>) {
    let (distinct, of_layer) = widths(layers);
    let bytes = |widths: &Widths| ELEMENT_BYTES * (step_tokens * widths.elements()) as u64;
    (distinct.iter().map(bytes).collect(), of_layer)
}

impl<B: Backend> Workspace<B> {
    /// Allocates the activations of up to `step_tokens` tokens in these layers.
    pub(crate) fn new(
        backend: &B,
        hidden: usize,
        layers: &[LayerSpec],
        step_tokens: usize,
    ) -> Result<Self, BackendError> {
        let tensor = |width| backend.tensor(step_tokens, width);
        let mlp_scratch = |mlp: MlpWidths| {
            Ok::<_, BackendError>(MlpScratch {
                gate: tensor(mlp.inner)?,
                up: mlp.is_gated.then(|| tensor(mlp.inner)).transpose()?,
                weight: mlp.is_weighed.then(|| tensor(1)).transpose()?,
            })
        };
        let latent_scratch = |(queries, down): (usize, Option<usize>)| {
            let query_down = down.map(tensor).transpose()?;
            Ok::<_, BackendError>(LatentScratch { query_down, queries: tensor(queries)? })
        };
        let (distinct, scratch_of_layer) = widths(layers);
        let scratch = distinct.iter().map(|widths| {
            Ok(Scratch {
                q: tensor(widths.q)?,
                k: tensor(widths.k)?,
                v: tensor(widths.v)?,
                attended: tensor(widths.attended)?,
                latent: widths.latent.map(latent_scratch).transpose()?,
                mlp: widths.mlp.map(mlp_scratch).transpose()?,
            })
        });
        Ok(Self {
            residual: tensor(hidden)?,
            branch: has_post_norms(layers).then(|| tensor(hidden)).transpose()?,
            scratch: scratch.collect::<Result<_, BackendError>>()?,
            scratch_of_layer,
            logits: Logits { tensor: None, rows_max: 0, rows: 0, vocab: 0 },
            bytes: workspace_bytes(hidden, layers, step_tokens),
        })
    }

    /// Bytes of everything allocated so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes + ELEMENT_BYTES * (self.logits.rows_max * self.logits.vocab) as u64
    }
}

/// Logits of the last step.
pub(crate) struct Logits<B: Backend> {
    tensor: Option<B::Tensor>,
    rows_max: usize,
    rows: usize,
    vocab: usize,
}

impl<B: Backend> Logits<B> {
    /// Forgets the last step's logits and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.rows = 0;
    }

    /// Makes room for `rows` rows, and says whether that replaced the buffer. Room grows by
    /// doubling: recorded steps name the buffer, and each new one costs them all.
    pub(crate) fn make_room(
        &mut self,
        backend: &B,
        rows: usize,
        vocab: usize,
    ) -> Result<bool, BackendError> {
        self.rows = 0;
        if rows <= self.rows_max {
            return Ok(false);
        }
        // The old buffer goes first: two at once could be too much.
        self.tensor = None;
        self.rows_max = 0;
        let rows_max = roomy_rows(rows);
        self.tensor = Some(backend.tensor(rows_max, vocab)?);
        (self.rows_max, self.vocab) = (rows_max, vocab);
        Ok(true)
    }

    /// The buffer, as far as there is room.
    pub(crate) fn tensor_mut(&mut self) -> Option<&mut B::Tensor> {
        self.tensor.as_mut()
    }

    /// Notes that the step has left `rows` rows.
    pub(crate) fn written(&mut self, rows: usize) {
        self.rows = rows.min(self.rows_max);
    }

    /// Reads the rows of the last step.
    pub(crate) fn read(&self, backend: &B, out: &mut Vec<f32>) -> Result<(), ModelError> {
        match &self.tensor {
            Some(tensor) if self.rows > 0 => Ok(backend.read(tensor, self.rows, out)?),
            _ => Ok(()),
        }
    }

    /// Reads one row of the last step.
    pub(crate) fn read_row(
        &self,
        backend: &B,
        row: usize,
        out: &mut Vec<f32>,
    ) -> Result<(), ModelError> {
        Ok(backend.read_row(self.tensor_with(row)?, row, out)?)
    }

    /// Narrows rows of the last step.
    pub(crate) fn narrow(
        &self,
        backend: &B,
        asks: &[NarrowAsk<'_>],
        out: &mut Vec<NarrowRow>,
    ) -> Result<(), ModelError> {
        let Some(last) = asks.iter().map(|ask| ask.row).max() else {
            out.clear();
            return Ok(());
        };
        Ok(backend.narrow(self.tensor_with(last)?, asks, out)?)
    }

    /// Guesses ids by the rows of the last step.
    pub(crate) fn guess(
        &self,
        backend: &B,
        step: &B::Step,
        vocab: usize,
        guesses: &mut B::Guesses,
    ) -> Result<(), ModelError> {
        let last = self.rows.saturating_sub(1);
        Ok(backend.guess(step, self.tensor_with(last)?, vocab, guesses)?)
    }

    /// The logits, if the last step computed this row.
    fn tensor_with(&self, row: usize) -> Result<&B::Tensor, BackendError> {
        let what = "rows of logits";
        let found = BackendError::Size { what, expected: row + 1, found: self.rows };
        self.tensor.as_ref().filter(|_| row < self.rows).ok_or(found)
    }
}
