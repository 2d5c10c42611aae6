//! What a family may vary, with Llama's values as the defaults.
//!
//! A family file states a [`Record`] by naming only its differences:
//! `Record { norm_offset: 1.0, ..Record::LLAMA }`. Everything else comes from the config.
//! Names that start with a dot hang under the layer prefix, `model.layers.{i}`. Where a record lists
//! several names, the first one that is in the files is used.

use crate::latent::LatentSizes;
use crate::spec::{
    Activation, BiasRule, BlockOrder, ExpertGroups, NormKind, QkNormOrder, QkNormSpan, RenameRule,
    RopeStyle, RouterScore, Weigh,
};

/// One family's differences from Llama.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    /// How the halves of a layer hang together.
    pub order: BlockOrder,
    /// Norms of a layer.
    pub layer_norms: LayerNorms,
    /// Kind of all norms but those of heads.
    pub norm_kind: NormKind,
    /// Names of the norms' epsilon in the config.
    pub norm_eps: &'static [&'static str],
    /// Added to every stored norm weight.
    pub norm_offset: f32,
    /// Norm of queries and keys; `None` for families without.
    pub qk_norm: Option<QkNormRecord>,
    /// Query, key, value and output projections.
    pub attention: [&'static str; 4],
    /// Fused query/key/value tensor; the split names are accepted too.
    pub fused_qkv: Option<FusedQkv>,
    /// One key/value head, whatever the config says.
    pub one_kv_head: bool,
    /// Keys and values are unfolded from a latent vector of these sizes when the config does not
    /// say; `attention` names its output only.
    pub latent: Option<LatentSizes>,
    /// Bias of query, key and value projections.
    pub qkv_bias: BiasKey,
    /// Bias of the output projection.
    pub o_bias: BiasKey,
    /// Key of a clamp of queries, keys and values.
    pub clip_qkv: Option<&'static str>,
    /// Name of learned logits that join every softmax.
    pub sinks: Option<&'static str>,
    /// Whether queries grow with their position.
    pub query_growth: GrowthRule,
    /// The dense MLP.
    pub mlp: MlpRecord,
    /// Experts in place of the MLP; `None` for dense families.
    pub experts: Option<ExpertRecord>,
    /// Name of the activation in the config, and its value when absent.
    pub activation: (&'static str, Activation),
    /// Which layers have a sliding window.
    pub window: WindowRule,
    /// Pairing of rotated elements.
    pub rope_style: RopeStyle,
    /// Which layers rotate.
    pub rope_layers: RopeLayers,
    /// Rotary table of layers with a window, if it is one of its own.
    pub local_rope: LocalRope,
    /// `yarn` was an early name of longrope in this family's configs.
    pub yarn_means_longrope: bool,
    /// Learned positions.
    pub positions: Option<&'static str>,
    /// Embeddings are multiplied by √hidden.
    pub sqrt_hidden: bool,
    /// Logits are divided by hidden / `dim_model_base`.
    pub logit_base_dim: bool,
    /// Unquantised linears are stored `[in, out]`.
    pub transposed: bool,
    /// Renames of tensors before any is looked for.
    pub renames: &'static [RenameRule],
    /// Evaluation text must start with BOS.
    pub requires_bos: bool,
    /// Values of absent config keys.
    pub defaults: Defaults,
}

/// Tensor names of a layer's norms, alternatives each; `None`: there is no such norm.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayerNorms {
    /// Before attention.
    pub pre_attn: Option<&'static [&'static str]>,
    /// After attention, before the residual.
    pub post_attn: Option<&'static [&'static str]>,
    /// Before the MLP.
    pub pre_mlp: Option<&'static [&'static str]>,
    /// After the MLP, before the residual.
    pub post_mlp: Option<&'static [&'static str]>,
}

/// Norm of queries and keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QkNormRecord {
    pub kind: NormKind,
    pub span: QkNormSpan,
    pub order: QkNormOrder,
    /// Names of the two weights; `None`: there are none.
    pub names: Option<[&'static str; 2]>,
    /// Whether it is there when `use_qk_norm` does not say.
    pub default_on: bool,
    /// Layers without rotation go without.
    pub only_rotated: bool,
}

/// A tensor that holds queries, keys and values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FusedQkv {
    pub name: &'static str,
    pub layout: FusedLayout,
}

/// Order of the rows of a fused tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FusedLayout {
    /// All of q, all of k, all of v.
    Parts,
    /// For every key/value head: its query heads, its key, its value.
    KvHeads,
}

/// Which config key decides about a bias.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BiasKey {
    /// The key, if there is one.
    pub key: Option<&'static str>,
    /// What holds without it.
    pub absent: BiasRule,
}

impl BiasKey {
    pub const ALWAYS: Self = Self { key: None, absent: BiasRule::Required };
    pub const NEVER: Self = Self { key: None, absent: BiasRule::Forbidden };

    /// As the key says; none without it.
    pub const fn config(key: &'static str) -> Self {
        Self { key: Some(key), absent: BiasRule::Forbidden }
    }

    /// As the key says; there is one without it.
    pub const fn unless(key: &'static str) -> Self {
        Self { key: Some(key), absent: BiasRule::Required }
    }

    /// As the key says; without it the files decide.
    pub const fn by_presence(key: &'static str) -> Self {
        Self { key: Some(key), absent: BiasRule::IfPresent }
    }
}

/// The dense MLP of a family.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MlpRecord {
    /// Gate projection; `None`: the MLP has none.
    pub gate: Option<&'static str>,
    pub up: &'static str,
    pub down: &'static str,
    /// Fused gate/up tensor, gate rows first; the split names are accepted too.
    pub fused_gate_up: Option<&'static str>,
    pub bias: BiasKey,
    /// Key of its inner width where it is not the usual one, in families with experts.
    pub inner_key: Option<&'static str>,
    /// Inner width when absent, as a multiple of the hidden size.
    pub inner_times_hidden: Option<usize>,
}

/// How a family names, counts and weighs its experts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpertRecord {
    /// The router.
    pub router: &'static str,
    /// Whether the router has a bias.
    pub router_bias: BiasRule,
    /// Gate, up and down of an expert, with `{e}` for its id.
    pub parts: [&'static str; 3],
    /// Tensors that hold all experts; the names of single ones are accepted too.
    pub stacked: Option<StackedExperts>,
    /// Whether experts have biases.
    pub bias: BiasKey,
    /// Experts per layer when the config does not say.
    pub experts: usize,
    /// Experts per token when the config does not say.
    pub experts_per_token: usize,
    /// `moe_intermediate_size` when absent; `None`: experts are as wide as `intermediate_size`.
    pub inner: Option<usize>,
    /// How logits become scores.
    pub score: RouterScore,
    /// Name of values added to the scores for the selection.
    pub selection_bias: Option<&'static str>,
    /// `n_group` groups; `None`: the family has none. Those ranked by their best expert exist only where
    /// `topk_method` is `group_limited_greedy`.
    pub groups: Option<ExpertGroups>,
    /// Whether the weights of the selected experts are divided by their sum.
    pub renormalize: Renormalize,
    /// Whether `routed_scaling_factor` multiplies the weights, and its value when absent.
    pub weight_scale: Option<f64>,
    /// Where the weights go.
    pub weigh: Weigh,
    /// An MLP beside the experts.
    pub shared: Option<SharedRecord>,
    /// Which layers have experts.
    pub layers: ExpertLayers,
}

/// How the experts of a layer share tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StackedExperts {
    /// `[experts · inner, hidden]` each for gate, up and, `[in, out]`, down.
    Rows([&'static str; 3]),
    /// `[experts, 2 · inner, hidden]`, gate rows first, and `[experts, hidden, inner]`.
    GateUp { gate_up: &'static str, down: &'static str },
    /// `[experts, hidden, 2 · inner]` and `[experts, inner, hidden]`: `[in, out]` both. Gate and
    /// up columns alternate, or the gate's come first.
    GateUpTransposed { gate_up: &'static str, down: &'static str, alternate: bool },
}

/// An MLP beside the routed experts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedRecord {
    /// Gate, up and down.
    pub parts: [&'static str; 3],
    /// Tensor that holds gate and up, gate rows first.
    pub fused_gate_up: Option<&'static str>,
    /// One logit per token that weighs it.
    pub weight: Option<&'static str>,
    /// Its inner width.
    pub inner: SharedInner,
}

/// Inner width of a shared expert. A width of 0 means that there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SharedInner {
    /// The value of a key, or the default.
    Key(&'static str, usize),
    /// So many times the width of a routed expert as the key says, or the default.
    Times(&'static str, usize),
    /// `intermediate_size`.
    Intermediate,
}

/// Which layers have experts; the others have a dense MLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpertLayers {
    /// All.
    All,
    /// All, unless the number of experts is 0.
    UnlessNone,
    /// Every `decoder_sparse_step`-th, without those of `mlp_only_layers`.
    StepAndList,
    /// Those that `mlp_layer_types` calls sparse, else all from `first_k_dense_replace` or the default
    /// on.
    From(usize),
    /// Every `moe_layer_interval`-th from `moe_layer_start_index` to `moe_layer_end_index`.
    Interval,
    /// Those of `moe_layers`, or every `interleave_moe_layer_step`-th.
    Listed,
}

/// When selected weights are divided by their sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renormalize {
    /// Always.
    Always,
    /// Never.
    Never,
    /// As `norm_topk_prob` says, or the default.
    Config(bool),
    /// Unless the key, whose value is a power, is written as null.
    UnlessNull(&'static str),
}

/// Which queries grow with their position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrowthRule {
    /// None.
    Never,
    /// Those of layers that do not rotate, as `attn_temperature_tuning` says.
    Unrotated,
    /// All, where the rotary scaling has a `llama_4_scaling_beta`.
    Scaled,
}

/// Which layers have a sliding window when the config has no `layer_types`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WindowRule {
    /// None: the family has no windows, a stray `sliding_window` means nothing.
    Never,
    /// Every layer, when `sliding_window` is set.
    Every,
    /// Every layer, when `use_sliding_window` is true.
    EveryIfUsed,
    /// Layers from `max_window_layers` on, when `use_sliding_window` is true.
    FromLayer,
    /// Even layers below `max_window_layers`, when `use_sliding_window` is true.
    EvenBelowIfUsed,
    /// Even layers, or all but each p-th when `sliding_window_pattern` is p > 1; p when absent.
    Alternating(usize),
    /// All but the first of each so many.
    AllButFirstOf(usize),
    /// Layers that do not rotate, when `use_sliding_window` is true.
    UnrotatedIfUsed,
    /// Layers that rotate see chunks of `attention_chunk_size` keys.
    RotatedChunks,
}

/// Which layers rotate queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RopeLayers {
    /// All.
    All,
    /// None.
    None,
    /// Those with a window.
    Sliding,
    /// Those with a window, or all where no window is in force.
    SlidingIfAny,
    /// Those with a 1 in `no_rope_layers`, or all but every `no_rope_layer_interval`-th.
    Listed,
    /// All, if `position_embedding_type` is `rope`.
    IfNamed,
}

/// The rotary table of layers with a window, where the config has no table per kind of layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum LocalRope {
    /// The same as of the others.
    Same,
    /// Base `rope_local_base_freq`, or the default, without scaling.
    Theta(f64),
    /// The same base without scaling.
    Unscaled,
}

/// What an absent key stands for. A key that is written as null means "off" instead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Defaults {
    /// `max_position_embeddings`.
    pub context: usize,
    /// `vocab_size`; `None`: required.
    pub vocab: Option<usize>,
    /// The norms' epsilon; `None`: required.
    pub norm_eps: Option<f64>,
    /// `num_attention_heads`; `None`: from the hidden size.
    pub heads: Option<usize>,
    /// `num_key_value_heads`; `None`: as many as heads.
    pub kv_heads: Option<usize>,
    /// `head_dim`; `None`: hidden / heads.
    pub head_dim: Option<usize>,
    /// `tie_word_embeddings`.
    pub tied: bool,
    /// `sliding_window`.
    pub window: Option<usize>,
    /// `attn_logit_softcapping`.
    pub attn_softcap: Option<f64>,
    /// `final_logit_softcapping`.
    pub final_softcap: Option<f64>,
    /// `query_pre_attn_scalar`; `None`: head_dim.
    pub query_scalar: Option<f64>,
    /// `original_max_position_embeddings`; `None`: `max_position_embeddings`.
    pub original_context: Option<usize>,
    /// `rope_theta`.
    pub rope_theta: f64,
    /// `partial_rotary_factor`.
    pub partial_rotary: f64,
    /// `logit_scale`.
    pub logit_scale: f64,
    /// `attention_multiplier`; `None`: from the query scalar.
    pub attention_multiplier: Option<f64>,
    /// `rope_parameters`, as JSON.
    pub rope_scaling: &'static str,
}

impl Record {
    /// Llama, the record that all others start from.
    pub const LLAMA: Self = Self {
        order: BlockOrder::Sequential,
        layer_norms: LayerNorms::LLAMA,
        norm_kind: NormKind::Rms,
        norm_eps: &["rms_norm_eps"],
        norm_offset: 0.0,
        qk_norm: None,
        attention: [
            ".self_attn.q_proj",
            ".self_attn.k_proj",
            ".self_attn.v_proj",
            ".self_attn.o_proj",
        ],
        fused_qkv: None,
        one_kv_head: false,
        latent: None,
        qkv_bias: BiasKey::config("attention_bias"),
        o_bias: BiasKey::config("attention_bias"),
        clip_qkv: None,
        sinks: None,
        query_growth: GrowthRule::Never,
        mlp: MlpRecord::LLAMA,
        experts: None,
        activation: ("hidden_act", Activation::Silu),
        window: WindowRule::Never,
        rope_style: RopeStyle::Neox,
        rope_layers: RopeLayers::All,
        local_rope: LocalRope::Same,
        yarn_means_longrope: false,
        positions: None,
        sqrt_hidden: false,
        logit_base_dim: false,
        transposed: false,
        renames: &[],
        requires_bos: false,
        defaults: Defaults::LLAMA,
    };
}

impl LayerNorms {
    /// Before attention and before the MLP.
    pub const LLAMA: Self = Self {
        pre_attn: Some(&[".input_layernorm"]),
        post_attn: None,
        pre_mlp: Some(&[".post_attention_layernorm"]),
        post_mlp: None,
    };

    /// Before and after both halves, as Gemma 2 names them.
    pub const GEMMA: Self = Self {
        pre_attn: Some(&[".input_layernorm"]),
        post_attn: Some(&[".post_attention_layernorm"]),
        pre_mlp: Some(&[".pre_feedforward_layernorm"]),
        post_mlp: Some(&[".post_feedforward_layernorm"]),
    };

    /// After both halves only.
    pub const POST: Self = Self {
        pre_attn: None,
        post_attn: Some(&[".post_attention_layernorm"]),
        pre_mlp: None,
        post_mlp: Some(&[".post_feedforward_layernorm"]),
    };
}

impl QkNormRecord {
    /// RMS norm of every head, before rotation.
    pub const RMS: Self = Self {
        kind: NormKind::Rms,
        span: QkNormSpan::Head,
        order: QkNormOrder::BeforeRope,
        names: Some([".self_attn.q_norm", ".self_attn.k_norm"]),
        default_on: true,
        only_rotated: false,
    };
}

impl MlpRecord {
    /// Gate, up, down.
    pub const LLAMA: Self = Self {
        gate: Some(".mlp.gate_proj"),
        up: ".mlp.up_proj",
        down: ".mlp.down_proj",
        fused_gate_up: None,
        bias: BiasKey::config("mlp_bias"),
        inner_key: None,
        inner_times_hidden: None,
    };

    /// Two linears, as GPT-2 names them.
    pub const PLAIN: Self = Self {
        gate: None,
        up: ".mlp.c_fc",
        down: ".mlp.c_proj",
        bias: BiasKey::ALWAYS,
        ..Self::LLAMA
    };
}

impl ExpertRecord {
    /// Experts as Qwen names them, softmax over all.
    pub const QWEN: Self = Self {
        router: ".mlp.gate",
        router_bias: BiasRule::Forbidden,
        parts: [
            ".mlp.experts.{e}.gate_proj",
            ".mlp.experts.{e}.up_proj",
            ".mlp.experts.{e}.down_proj",
        ],
        stacked: None,
        bias: BiasKey::config("mlp_bias"),
        experts: 8,
        experts_per_token: 2,
        inner: None,
        score: RouterScore::Softmax,
        selection_bias: None,
        groups: None,
        renormalize: Renormalize::Always,
        weight_scale: None,
        weigh: Weigh::Output,
        shared: None,
        layers: ExpertLayers::All,
    };

    /// Experts as Mixtral names them.
    pub const MIXTRAL: Self = Self {
        router: ".block_sparse_moe.gate",
        parts: [
            ".block_sparse_moe.experts.{e}.w1",
            ".block_sparse_moe.experts.{e}.w3",
            ".block_sparse_moe.experts.{e}.w2",
        ],
        ..Self::QWEN
    };
}

impl Defaults {
    /// Llama's defaults.
    pub const LLAMA: Self = Self {
        context: 2048,
        vocab: None,
        norm_eps: None,
        heads: None,
        kv_heads: None,
        head_dim: None,
        tied: false,
        window: None,
        attn_softcap: None,
        final_softcap: None,
        query_scalar: None,
        original_context: None,
        rope_theta: 10_000.0,
        partial_rotary: 1.0,
        logit_scale: 1.0,
        attention_multiplier: None,
        rope_scaling: "{}",
    };
}
