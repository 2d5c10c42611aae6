//! `ModelSpec`: everything a forward pass needs to know about a model, as plain data.
//!
//! A family turns `config.json` into this; the loader and the forward pass read nothing else.
//! Names are complete tensor base names (without `.weight`), so nobody below re-derives them.
//! Invariants, established by [`crate::load_spec`]: sizes are non-zero and bounded, `heads` is a
//! multiple of `kv_heads`, `rope` indexes [`ModelSpec::ropes`].

use std::ops::Range;

/// A model as data: sizes, tensor names, and every choice in which families differ.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelSpec {
    /// Short family name of the registry, e.g. `llama`.
    pub family: &'static str,
    /// The string in `architectures`, e.g. `LlamaForCausalLM`.
    pub architecture: String,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Rows of the token embedding.
    pub vocab: usize,
    /// Largest position the model was configured for, in tokens.
    pub context: usize,
    /// How token ids become hidden rows.
    pub embed: EmbedSpec,
    /// Decoder layers, in order.
    pub layers: Vec<LayerSpec>,
    /// Norm before the head.
    pub final_norm: NormSpec,
    /// How hidden rows become logits.
    pub head: HeadSpec,
    /// Rotary tables; layers refer to them by index.
    pub ropes: Vec<RopeSpec>,
    /// Control ids as the config states them.
    pub tokens: TokenIds,
    /// What the config says about quantisation, for refusals and reports.
    pub quant: QuantFacts,
    /// Tensor renames applied to every shard header before lookup.
    pub renames: &'static [RenameRule],
    /// Whether evaluation text must start with BOS for this family.
    pub requires_bos: bool,
    /// Things a user should know, e.g. a calibration quirk of the files of this family.
    pub notes: Vec<String>,
    /// What may make the model write nonsense, or not end.
    pub warnings: Vec<String>,
}

/// One rename step: `from` is replaced by `to`, everywhere or only at the start of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenameRule {
    /// Text to look for.
    pub from: &'static str,
    /// Its replacement.
    pub to: &'static str,
    /// Only at the start of the name.
    pub anchored: bool,
}

/// Token embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbedSpec {
    /// Base name of the `[vocab, hidden]` table.
    pub name: String,
    /// Every embedding row is multiplied by this, in f32.
    pub scale: f32,
    /// Base name of a learned position table `[context, hidden]`, added to the rows.
    pub positions: Option<String>,
}

/// One decoder layer.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerSpec {
    /// How the two halves hang together.
    pub order: BlockOrder,
    /// Norm before attention; absent in post-norm-only families.
    pub attn_pre_norm: Option<NormSpec>,
    /// Attention.
    pub attn: AttentionSpec,
    /// Norm of the attention output, before it is added to the residual.
    pub attn_post_norm: Option<NormSpec>,
    /// Norm before the MLP; absent in parallel blocks, which share the attention norm.
    pub mlp_pre_norm: Option<NormSpec>,
    /// Feed-forward half.
    pub mlp: MlpSpec,
    /// Norm of the MLP output, before it is added to the residual.
    pub mlp_post_norm: Option<NormSpec>,
    /// Multiplier of both branch outputs (residual scale), 1 for most families.
    pub branch_scale: f32,
}

/// Order of attention and MLP within a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockOrder {
    /// `x += A(N1 x); x += M(N2 x)`.
    Sequential,
    /// `h = N1 x; x += A(h) + M(h)`.
    Parallel,
}

/// Self-attention of one layer.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionSpec {
    /// Query heads.
    pub heads: usize,
    /// Key/value heads; divides `heads`.
    pub kv_heads: usize,
    /// Elements per head; with `latent` those of a cache entry.
    pub head_dim: usize,
    /// Scores are `scale · q·k`.
    pub scale: f32,
    /// `s = cap · tanh(s / cap)` on scaled scores.
    pub softcap: Option<f32>,
    /// How many keys a query sees at most, itself included. `None`: all earlier ones.
    pub window: Option<usize>,
    /// Keys come in chunks of this many positions, and a query sees those of its own chunk only.
    pub chunk: Option<usize>,
    /// Norm of queries and keys.
    pub qk_norm: Option<QkNormSpec>,
    /// Queries grow with their position, after rotation and norm.
    pub query_growth: Option<QueryGrowth>,
    /// Base name of one logit per query head that joins the softmax and takes no value.
    pub sinks: Option<String>,
    /// Index into [`ModelSpec::ropes`]; `None`: no rotation in this layer.
    pub rope: Option<usize>,
    /// Clamp of q, k and v after projection, to `[-c, c]`.
    pub clip_qkv: Option<f32>,
    /// Keys and values are unfolded from a latent vector, which is what the cache holds.
    pub latent: Option<LatentSpec>,
    /// Query projection; with `latent` of a compressed query, if there is one.
    pub q: LinearSpec,
    /// Key projection; with `latent` the one that gives cache entries.
    pub k: LinearSpec,
    /// Value projection; with `latent` the one that unfolds the latent vector: for every head the
    /// part of its key that is not rotated, then its value.
    pub v: LinearSpec,
    /// Output projection.
    pub o: LinearSpec,
}

/// Latent attention: one entry per token in the cache, for all heads. It is the normed latent
/// vector, `[rank]`, and behind it a rotated key, `[head_dim − rank]`.
///
/// A query head is projected as `nope_dim` elements, which meet what the latent vector unfolds to,
/// and `head_dim − rank` more, which are rotated and meet the rotated key.
#[derive(Clone, Debug, PartialEq)]
pub struct LatentSpec {
    /// Elements of the latent vector.
    pub rank: usize,
    /// Elements of a query head that are not rotated.
    pub nope_dim: usize,
    /// Elements of a head's value.
    pub value_dim: usize,
    /// Norm of the latent vector.
    pub norm: NormSpec,
    /// Queries are compressed first.
    pub query_down: Option<QueryDown>,
}

/// Compression of queries.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryDown {
    /// From the layer's input.
    pub linear: LinearSpec,
    /// Norm of the compressed query.
    pub norm: NormSpec,
}

/// Norm of queries and keys.
#[derive(Clone, Debug, PartialEq)]
pub struct QkNormSpec {
    /// Norm of queries; `width` is what the span says.
    pub q: NormSpec,
    /// Norm of keys; `width` is what the span says.
    pub k: NormSpec,
    /// What is normed together.
    pub span: QkNormSpan,
    /// When it happens.
    pub order: QkNormOrder,
}

/// What a norm of queries and keys spans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QkNormSpan {
    /// Every head for itself: `head_dim` elements.
    #[default]
    Head,
    /// All heads of a token together: `heads · head_dim` elements.
    Token,
}

/// Whether queries and keys are normed before or after they are rotated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QkNormOrder {
    /// Norm, then rotation.
    #[default]
    BeforeRope,
    /// Rotation, then norm.
    AfterRope,
}

/// A query at position `p` (from 0) is multiplied by
/// `1 + weight · ln(1 + ⌊(p + offset) / length⌋)`, computed in f32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueryGrowth {
    /// Positions per step of growth.
    pub length: usize,
    /// Added to the position.
    pub offset: usize,
    /// How much the logarithm counts.
    pub weight: f32,
}

/// Feed-forward half of a layer.
#[derive(Clone, Debug, PartialEq)]
pub enum MlpSpec {
    /// `down(act(gate x) · up x)`.
    Gated {
        /// Gate projection.
        gate: LinearSpec,
        /// Up projection.
        up: LinearSpec,
        /// Down projection.
        down: LinearSpec,
        /// Activation of the gate.
        act: Activation,
    },
    /// `down(act(up x))`.
    Plain {
        /// Up projection.
        up: LinearSpec,
        /// Down projection.
        down: LinearSpec,
        /// Activation.
        act: Activation,
    },
    /// Mixture of experts.
    Moe(Box<MoeSpec>),
}

/// Mixture-of-experts half of a layer: `Σ w_e · expert_e(x)` over the selected experts, plus what
/// the shared expert makes of `x`.
#[derive(Clone, Debug, PartialEq)]
pub struct MoeSpec {
    /// Router linear, `[hidden] → [experts]`.
    pub router: LinearSpec,
    /// Gate, up and down of every expert, in order of expert id.
    pub experts: Vec<[LinearSpec; 3]>,
    /// Experts selected per token: those with the largest rank (the logit, or the score plus the
    /// selection bias), the lower id where two are equal.
    pub experts_per_token: usize,
    /// How logits become scores.
    pub score: RouterScore,
    /// Base name of `[experts]` values that are added to the scores for the selection alone.
    pub selection_bias: Option<String>,
    /// Only experts of the best groups can be selected.
    pub groups: Option<ExpertGroups>,
    /// Whether the selected scores are divided by their sum.
    pub renormalize: bool,
    /// Multiplier of the weights.
    pub weight_scale: f32,
    /// Where the weights go.
    pub weigh: Weigh,
    /// Activation of the experts' gates.
    pub act: Activation,
    /// An MLP that every token takes besides.
    pub shared: Option<SharedExpertSpec>,
}

/// Experts in groups of neighbours, of which a token may use a few.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertGroups {
    /// Groups; divides the number of experts.
    pub count: usize,
    /// Groups per token: those with the largest group rank, the lower index where two are equal.
    pub taken: usize,
    /// How ranks of experts become the rank of their group.
    pub rank: GroupRank,
}

/// The rank of a group of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupRank {
    /// That of its best expert.
    Best,
    /// The sum of those of its two best experts.
    TwoBest,
}

/// Where the weight of an expert is multiplied in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weigh {
    /// `w · expert(x)`.
    #[default]
    Output,
    /// `expert(w · x)`.
    Input,
}

/// An MLP beside the routed experts: `σ(weight x) · down(act(gate x) · up x)`.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedExpertSpec {
    /// Gate projection.
    pub gate: LinearSpec,
    /// Up projection.
    pub up: LinearSpec,
    /// Down projection.
    pub down: LinearSpec,
    /// One logit per token; `None`: the sum counts in full.
    pub weight: Option<LinearSpec>,
}

/// How the logits of a router become weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouterScore {
    /// Softmax over all experts.
    Softmax,
    /// Each expert for itself: `1 / (1 + e⁻ˡ)`.
    Sigmoid,
}

/// Activation functions, as the families define them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    /// `x · sigmoid(x)`.
    Silu,
    /// GELU, tanh form.
    GeluTanh,
    /// GELU, exact (erf) form.
    GeluErf,
    /// `x · sigmoid(1.702 x)`.
    QuickGelu,
    /// `max(x, 0)²`.
    Relu2,
    /// Of a gated MLP: `g · sigmoid(1.702 g) · (u + 1)` with `g = min(gate, limit)` and
    /// `u = clamp(up, −limit, limit)`.
    ClampedSwiglu {
        /// Largest magnitude that passes.
        limit: f32,
    },
}

/// One linear: where its weights are and what shape they must have.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearSpec {
    /// Base names to try, in order.
    pub bases: Vec<String>,
    /// A fused tensor that may hold this linear; it wins over the split names.
    pub fused: Option<FusedSpec>,
    /// Inputs.
    pub in_features: usize,
    /// Outputs.
    pub out_features: usize,
    /// Whether a bias belongs to it.
    pub bias: BiasRule,
    /// Plain weights are stored `[in, out]`.
    pub transposed: bool,
}

/// A linear as part of a fused tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct FusedSpec {
    /// Base name of the fused tensor.
    pub base: String,
    /// Outputs of the whole fused tensor.
    pub total_out: usize,
    /// Output rows that make up this linear, in order.
    pub rows: Vec<Range<usize>>,
    /// Of each range every so many rows are taken, from its first on; 1 for all.
    pub step: usize,
    /// The tensor stacks matrices, `[matrices, …]`, and one of them is meant.
    pub slab: Option<Slab>,
}

/// One matrix of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slab {
    /// Which one.
    pub index: usize,
    /// Of how many.
    pub count: usize,
}

/// Whether a linear has a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BiasRule {
    /// It must be in the file.
    Required,
    /// It must not be in the file (an all-zero one is ignored).
    Forbidden,
    /// It is used when present.
    IfPresent,
}

/// A norm with its weights.
#[derive(Clone, Debug, PartialEq)]
pub struct NormSpec {
    /// Base names to try, in order; empty for norms without weights.
    pub bases: Vec<String>,
    /// Root-mean-square or layer norm.
    pub kind: NormKind,
    /// Added to the mean square or variance.
    pub eps: f32,
    /// Added to the stored weight, in f32 (1 for Gemma).
    pub offset: f32,
    /// Elements normalised together.
    pub width: usize,
}

/// Kinds of norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// `x / rms(x) · w`.
    Rms,
    /// `(x − mean) / std · w (+ b)`.
    Layer,
}

/// Output head.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadSpec {
    /// Head linear; its alternatives include the embedding when tied.
    pub linear: LinearSpec,
    /// Logits are multiplied by this.
    pub scale: f32,
    /// `l = cap · tanh(l / cap)` on scaled logits.
    pub softcap: Option<f32>,
    /// Rows of an unquantised head are L2-normalised at load.
    pub normalize_rows: bool,
}

/// One rotary table, resolved: `angle(position, i) = (position + offset) · inv_freq[i]`.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeSpec {
    /// Which elements form a pair.
    pub style: RopeStyle,
    /// Rotated width of a head; dims beyond pass through. `inv_freq.len() · 2`.
    pub rotary_dim: usize,
    /// Frequencies after every scaling method, `[rotary_dim / 2]`.
    pub inv_freq: Vec<f32>,
    /// Multiplies sin and cos.
    pub attention_factor: f32,
    /// Added to every position.
    pub position_offset: u32,
}

/// Pairing of rotated elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeStyle {
    /// `(j, j + d/2)`.
    Neox,
    /// `(2j, 2j + 1)`.
    GptJ,
}

/// Control ids stated by the config files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenIds {
    /// Beginning of sequence.
    pub bos: Option<u32>,
    /// Ends of sequence: `generation_config.json` first, then `config.json`, without repeats.
    pub eos: Vec<u32>,
    /// Padding.
    pub pad: Option<u32>,
}

/// What `quantization_config` says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuantFacts {
    /// `quant_method`, lower case.
    pub method: Option<String>,
    /// `bits`.
    pub bits: Option<f64>,
    /// `head_bits` of EXL2.
    pub head_bits: Option<u32>,
    /// The whole block, for whoever reads the weights.
    pub block: Option<serde_json::Value>,
    /// Rows and columns of FP8 weights that share a scale.
    pub scale_groups: Option<[usize; 2]>,
    /// `dtype` or `torch_dtype` of the config: how the original weights were stored.
    pub dtype: Option<String>,
}

/// Choices of the user that change the spec.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpecOptions {
    /// Context to prepare for; `None`: the model's own.
    pub context: Option<usize>,
    /// Rotary override.
    pub rope: Option<RopeOverride>,
    /// Load an unknown architecture with the Llama record instead of refusing it.
    pub assume_llama: bool,
}

/// Rotary scaling asked for by the user.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeOverride {
    /// Positions divided by the factor: replaces a linear factor of the config, and comes on top
    /// of its other methods.
    Linear(f32),
    /// Base multiplied by `alpha^(d / (d − 2))`, before the config's own method.
    NtkAlpha(f32),
    /// YaRN with this factor, in place of the config's method. The original length is the
    /// config's, or that of its own YaRN.
    Yarn(f32),
}
