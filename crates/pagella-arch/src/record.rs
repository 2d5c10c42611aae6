//! What a family may vary, with Llama's values as the defaults.
//!
//! A family file states a [`Record`] by naming only its differences:
//! `Record { norm_offset: 1.0, ..Record::LLAMA }`. Everything else comes from the config.
//! Names that start with a dot hang under the layer prefix, `model.layers.{i}`.

use crate::spec::{Activation, NormKind, RopeStyle};

/// One family's differences from Llama.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    /// Norms of a layer.
    pub layer_norms: LayerNorms,
    /// Added to every stored norm weight.
    pub norm_offset: f32,
    /// Norm of query and key heads; `None` for families without.
    pub qk_norm: Option<NormKind>,
    /// Fused query/key/value tensor, rows in the order q, k, v; the split names are accepted too.
    pub fused_qkv: Option<&'static str>,
    /// Fused gate/up tensor, gate rows first; the split names are accepted too.
    pub fused_gate_up: Option<&'static str>,
    /// Experts in place of the MLP; `None` for dense families.
    pub experts: Option<ExpertRecord>,
    /// Biases of the attention projections.
    pub attention_bias: AttentionBias,
    /// Name of the activation in the config, and its value when absent.
    pub activation: (&'static str, Activation),
    /// Which layers have a sliding window.
    pub window: WindowRule,
    /// Pairing of rotated elements.
    pub rope_style: RopeStyle,
    /// `yarn` was an early name of longrope in this family's configs.
    pub yarn_means_longrope: bool,
    /// Embeddings are multiplied by √hidden.
    pub sqrt_hidden: bool,
    /// Evaluation text must start with BOS.
    pub requires_bos: bool,
    /// Values of absent config keys.
    pub defaults: Defaults,
}

/// Tensor names of a layer's norms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayerNorms {
    /// Before attention.
    pub pre_attn: &'static str,
    /// After attention, before the residual.
    pub post_attn: Option<&'static str>,
    /// Before the MLP.
    pub pre_mlp: &'static str,
    /// After the MLP, before the residual.
    pub post_mlp: Option<&'static str>,
}

/// How a family names, counts and weighs its experts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpertRecord {
    /// The router.
    pub router: &'static str,
    /// Gate, up and down of an expert, with `{e}` for its id.
    pub parts: [&'static str; 3],
    /// Experts per layer when the config does not say.
    pub experts: usize,
    /// Experts per token when the config does not say.
    pub experts_per_token: usize,
    /// `moe_intermediate_size` when absent; `None`: experts are as wide as `intermediate_size`.
    pub inner: Option<usize>,
    /// Whether the weights of the selected experts are divided by their sum.
    pub renormalize: Renormalize,
    /// `mlp_only_layers` and `decoder_sparse_step` may give some layers a dense MLP.
    pub dense_layers: bool,
}

/// When selected weights are divided by their sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renormalize {
    /// Always.
    Always,
    /// As `norm_topk_prob` says; not when absent (A18).
    Config,
}

/// Which attention projections have a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttentionBias {
    /// All four or none, as `attention_bias` says.
    Config,
    /// Query, key and value always, output never.
    Qkv,
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
    /// Even layers, or all but each p-th when `sliding_window_pattern` is p > 1.
    Alternating,
}

/// What an absent key stands for. A key that is written as null means "off" instead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Defaults {
    /// `max_position_embeddings` (A17).
    pub context: usize,
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
}

impl Record {
    /// Llama, the record that all others start from.
    pub const LLAMA: Self = Self {
        layer_norms: LayerNorms {
            pre_attn: ".input_layernorm",
            post_attn: None,
            pre_mlp: ".post_attention_layernorm",
            post_mlp: None,
        },
        norm_offset: 0.0,
        qk_norm: None,
        fused_qkv: None,
        fused_gate_up: None,
        experts: None,
        attention_bias: AttentionBias::Config,
        activation: ("hidden_act", Activation::Silu),
        window: WindowRule::Never,
        rope_style: RopeStyle::Neox,
        yarn_means_longrope: false,
        sqrt_hidden: false,
        requires_bos: false,
        defaults: Defaults::LLAMA,
    };
}

impl Defaults {
    /// Llama's defaults.
    pub const LLAMA: Self = Self {
        context: 2048,
        head_dim: None,
        tied: false,
        window: None,
        attn_softcap: None,
        final_softcap: None,
        query_scalar: None,
        original_context: None,
    };
}
