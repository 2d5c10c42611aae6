//! Names of tensors in original checkpoints, turned into those that EXL2 files already have.

use crate::spec::RenameRule;

/// Replaces `from` wherever it stands.
const fn anywhere(from: &'static str, to: &'static str) -> RenameRule {
    RenameRule { from, to, anchored: false }
}

/// Replaces `from` at the start of a name.
const fn at_start(from: &'static str, to: &'static str) -> RenameRule {
    RenameRule { from, to, anchored: true }
}

/// A text model inside another model, under its old and its new prefix.
pub(super) const LANGUAGE_MODEL: &[RenameRule] =
    &[at_start("language_model.", ""), at_start("model.language_model.", "model.")];

pub(super) const DBRX: &[RenameRule] = &[
    at_start("transformer.", "model."),
    anywhere(".blocks.", ".layers."),
    anywhere(".ffn.experts.mlp.", ".block_sparse_moe.experts."),
    anywhere(".ffn.router.layer.", ".block_sparse_moe.gate."),
    anywhere(".norm_attn_norm.norm_1.", ".input_layernorm."),
    anywhere(".norm_attn_norm.norm_2.", ".post_attention_layernorm."),
    anywhere(".norm_attn_norm.attn.", ".self_attn."),
    anywhere(".out_proj.", ".o_proj."),
    anywhere(".norm_f.", ".norm."),
    anywhere(".wte.", ".embed_tokens."),
];

pub(super) const GPT_BIGCODE: &[RenameRule] = &[
    at_start("transformer.ln_f", "model.norm"),
    at_start("transformer.", "model."),
    anywhere(".attn.c_proj.", ".self_attn.o_proj."),
    anywhere(".attn.", ".self_attn."),
    anywhere(".h.", ".layers."),
    anywhere(".wte.", ".embed_tokens."),
];

/// With and without the prefix.
pub(super) const GPT2: &[RenameRule] = &[
    at_start("transformer.", ""),
    at_start("ln_f.", "model.norm."),
    anywhere(".attn.c_proj.", ".self_attn.o_proj."),
    anywhere(".attn.", ".self_attn."),
    at_start("h.", "model.layers."),
    at_start("wte.", "model.embed_tokens."),
    at_start("wpe.", "model.wpe."),
];

pub(super) const INTERNLM2: &[RenameRule] = &[
    at_start("output.", "lm_head."),
    at_start("model.tok_embeddings.", "model.embed_tokens."),
    anywhere(".attention.", ".self_attn."),
    anywhere(".wo.", ".o_proj."),
];

/// Biases of stacked experts, under the names of other biases.
pub(super) const GPT_OSS: &[RenameRule] = &[anywhere("_proj_bias", "_proj.bias")];

pub(super) const GRANITE_MOE: &[RenameRule] = &[anywhere(".router.layer.", ".router.")];
