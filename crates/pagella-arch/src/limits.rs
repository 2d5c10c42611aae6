//! Bounds of every number a config may state.
//!
//! They are generous compared with any published model and small enough that no product of two of
//! them overflows 64 bits. A value outside is an error that names key, value and bound.

use std::ops::RangeInclusive;

/// Largest `config.json` or `generation_config.json`, in bytes.
pub(crate) const CONFIG_BYTES_MAX: u64 = 4 << 20;

/// Width of the residual stream, in elements.
pub(crate) const HIDDEN: RangeInclusive<u64> = 1..=65_536;
/// Decoder layers.
pub(crate) const LAYERS: RangeInclusive<u64> = 1..=1024;
/// Query heads, and key/value heads.
pub(crate) const HEADS: RangeInclusive<u64> = 1..=4096;
/// Elements per head.
pub(crate) const HEAD_DIM: RangeInclusive<u64> = 1..=1024;
/// Rows of the embedding, in tokens.
pub(crate) const VOCAB: RangeInclusive<u64> = 1..=4 << 20;
/// Inner width of the MLP, in elements.
pub(crate) const INTERMEDIATE: RangeInclusive<u64> = 1..=1 << 20;
/// Positions: context, original context, windows; in tokens.
pub(crate) const CONTEXT: RangeInclusive<u64> = 1..=16 << 20;
/// Sliding window as written; 0 stands for no window.
pub(crate) const WINDOW: RangeInclusive<u64> = 0..=16 << 20;
/// Layers between two global ones; 0 and 1 both mean "every other layer".
pub(crate) const WINDOW_PATTERN: RangeInclusive<u64> = 0..=1024;
/// Layer index at which windows begin; may lie beyond the last layer.
pub(crate) const WINDOW_START: RangeInclusive<u64> = 0..=1 << 20;
/// Experts of a dense model: none, or one that is the MLP itself.
pub(crate) const DENSE_EXPERTS: RangeInclusive<u64> = 0..=1;
/// Experts per layer, and per token.
pub(crate) const EXPERTS: RangeInclusive<u64> = 1..=4096;
/// Experts per layer of families that may do without.
pub(crate) const EXPERTS_OR_NONE: RangeInclusive<u64> = 0..=4096;
/// Experts of all layers together: each has names of its own.
pub(crate) const EXPERTS_TOTAL_MAX: usize = 1 << 16;
/// Inner width of an expert, in elements.
pub(crate) const EXPERT_INNER: RangeInclusive<u64> = INTERMEDIATE;
/// Inner width of a shared expert, in elements; 0 stands for none.
pub(crate) const SHARED_INNER: RangeInclusive<u64> = 0..=1 << 20;
/// Shared experts, each as wide as a routed one.
pub(crate) const SHARED_EXPERTS: RangeInclusive<u64> = 0..=64;
/// First layer of a kind; may lie beyond the last layer.
pub(crate) const FIRST_LAYER: RangeInclusive<u64> = 0..=1 << 20;
/// Clamp of queries, keys and values, and of gates.
pub(crate) const CLIP: RangeInclusive<f64> = 1e-3..=1e6;
/// Every how many layers there is one with experts, or without rotation.
pub(crate) const SPARSE_STEP: RangeInclusive<u64> = 1..=1 << 20;
/// Token ids; −1 stands for "none" in old configs.
pub(crate) const TOKEN_ID: RangeInclusive<i64> = -1..=4 << 20;
/// End-of-sequence ids in one list.
pub(crate) const EOS_IDS_MAX: usize = 256;

/// Added to the mean square of a norm.
pub(crate) const NORM_EPS: RangeInclusive<f64> = 1e-20..=1.0;
/// Rotary base.
pub(crate) const ROPE_THETA: RangeInclusive<f64> = 1.001..=1e15;
/// Rotary scaling factors, per-dimension ones included.
pub(crate) const ROPE_FACTOR: RangeInclusive<f64> = 1e-3..=1e6;
/// Frequency factors and betas of llama3 and yarn.
pub(crate) const ROPE_BETA: RangeInclusive<f64> = 1e-6..=1e6;
/// Factors on sin and cos.
pub(crate) const ROPE_ATTENTION_FACTOR: RangeInclusive<f64> = 1e-3..=1e3;
/// mscale values of yarn; 0 stands for "not used".
pub(crate) const ROPE_MSCALE: RangeInclusive<f64> = 0.0..=1e3;
/// Part of a head that is rotated.
pub(crate) const PARTIAL_ROTARY: RangeInclusive<f64> = 1e-3..=1.0;
/// NTK alpha of the user.
pub(crate) const NTK_ALPHA: RangeInclusive<f64> = 1.0..=1e6;
/// Soft-caps of scores and logits.
pub(crate) const SOFTCAP: RangeInclusive<f64> = 1e-3..=1e6;
/// `query_pre_attn_scalar`; scores are multiplied by its inverse square root.
pub(crate) const QUERY_SCALAR: RangeInclusive<f64> = 1e-3..=1e6;
/// Multipliers of embeddings, branches, scores and logits.
pub(crate) const MULTIPLIER: RangeInclusive<f64> = 1e-6..=1e6;
/// How much queries grow with the logarithm of their position.
pub(crate) const GROWTH: RangeInclusive<f64> = 0.0..=1e3;
/// Rows or columns of weights that share a scale.
pub(crate) const SCALE_GROUP: RangeInclusive<i64> = 1..=1 << 20;
/// Bits per weight stated by a quantisation config.
pub(crate) const QUANT_BITS: RangeInclusive<f64> = 0.0..=64.0;
