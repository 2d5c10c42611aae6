//! Tensors that no part of a model takes: known extras of published checkpoints, tensors of other
//! models, and those that should have been taken.
//!
//! The last kind means that the configuration belongs to other weights: a number of layers that is too
//! small, or a family without a norm that the files have. Such a model would run and write nonsense.
//! Names are those after the renames of the family.

use std::collections::BTreeSet;

use crate::spec::ModelSpec;

/// What a tensor is that nothing takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Extra {
    /// Known of published checkpoints, with what it is.
    Known(&'static str),
    /// Named like no tensor of the model: of another model, or of an adapter.
    Foreign,
    /// Named like a tensor of the model.
    Own,
}

impl Extra {
    /// Whether it belongs to what a model sees or hears with.
    pub fn is_sense(self) -> bool {
        self == SENSES
    }
}

const ROTARY: Extra = Extra::Known("rotary tables, which follow from the configuration");
const NEXT: Extra = Extra::Known("layers that predict further tokens");
const SENSES: Extra = Extra::Known("parts for images or sound, of which only text is read");
const MASK: Extra = Extra::Known("attention masks of old checkpoints");
const CACHE: Extra = Extra::Known("scales for an 8-bit cache");
const ACTIVATIONS: Extra = Extra::Known("scales of activations, which stay as they are");

/// Buffers that old versions of transformers wrote into every layer.
const ROTARY_NAMES: &[&str] =
    &["inv_freq", "original_inv_freq", "cos_cached", "sin_cached", "rope_freqs"];

/// First parts of names in models that see or hear; `model.` may stand before them.
const SENSES_NAMES: &[&str] = &[
    "visual",
    "vision_tower",
    "vision_model",
    "vision_encoder",
    "vision_embed_tokens",
    "vision_language_adapter",
    "vision_proj",
    "image_newline",
    "multi_modal_projector",
    "mm_projector",
    "patch_merger",
    "pre_mm_projector_norm",
    "embed_vision",
    "embed_audio",
    "audio_tower",
    "audio_model",
];

/// What quantisers for FP8 leave beside projections.
const CACHE_NAMES: &[&str] = &["k_scale", "v_scale", "kv_scale", "k_zero_point", "v_zero_point"];

/// What quantisers leave beside projections for programs that round activations.
const ACTIVATION_NAMES: &[&str] = &[
    "input_scale",
    "input_scale_ub",
    "input_zero_point",
    "input_global_scale",
    "activation_scale",
    "output_scale",
    "output_zero_point",
];

impl ModelSpec {
    /// What each of `names` is, none of which any part of the model takes.
    pub fn extras<'a>(&self, names: &[&'a str]) -> Vec<(&'a str, Extra)> {
        // Only such layers project an embedding and a hidden row together, whatever the config says.
        let is_next = |name: &&&str| name.split('.').any(|part| part == "eh_proj");
        let next: BTreeSet<usize> =
            names.iter().filter(is_next).filter_map(|name| layer_of(name)).collect();
        let beyond = |layer: usize| layer >= self.layers.len() && next.contains(&layer);
        let kind = |name: &str| match known(name) {
            Some(known) => known,
            None if layer_of(name).is_some_and(beyond) => NEXT,
            None if name.starts_with("model.") || name.starts_with("lm_head.") => Extra::Own,
            None => Extra::Foreign,
        };
        names.iter().map(|&name| (name, kind(name))).collect()
    }
}

fn known(name: &str) -> Option<Extra> {
    let inner = name.strip_prefix("model.").unwrap_or(name);
    let first = inner.split('.').next().unwrap_or_default();
    let (rest, last) = name.rsplit_once('.').unwrap_or(("", name));
    let parent = rest.rsplit('.').next().unwrap_or_default();
    if ROTARY_NAMES.contains(&last) {
        return Some(ROTARY);
    }
    if SENSES_NAMES.contains(&first) {
        return Some(SENSES);
    }
    if first.starts_with("mtp") {
        return Some(NEXT);
    }
    // Of experts in one tensor the name is a part of the last word.
    let is_of = |suffix: &&str| last.strip_suffix(*suffix).is_some_and(ends_word);
    if ACTIVATION_NAMES.iter().any(is_of) {
        return Some(ACTIVATIONS);
    }
    let of_attention = matches!(parent, "self_attn" | "attn" | "crossattention");
    match last {
        "q_scale" | "prob_scale" if of_attention => Some(CACHE),
        "bias" | "masked_bias" if of_attention => Some(MASK),
        _ => CACHE_NAMES.contains(&last).then_some(CACHE),
    }
}

/// Whether a word may end here.
fn ends_word(before: &str) -> bool {
    before.is_empty() || before.ends_with('_')
}

/// The layer in a name such as `model.layers.3.mlp.up_proj.weight`.
fn layer_of(name: &str) -> Option<usize> {
    name.strip_prefix("model.layers.")?.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SpecOptions, spec_from_json};

    fn kinds(names: &[&str]) -> Vec<Extra> {
        let config = br#"{
            "architectures": ["LlamaForCausalLM"], "vocab_size": 16, "hidden_size": 32,
            "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
            "rms_norm_eps": 1e-5
        }"#;
        let spec = spec_from_json(config, None, &SpecOptions::default()).unwrap();
        spec.extras(names).into_iter().map(|(_, kind)| kind).collect()
    }

    #[test]
    fn what_published_checkpoints_hold_besides_is_known() {
        for (name, kind) in [
            ("model.layers.0.self_attn.rotary_emb.inv_freq", ROTARY),
            ("model.rotary_emb.inv_freq", ROTARY),
            ("model.visual.blocks.0.attn.qkv.weight", SENSES),
            ("visual.merger.mlp.0.weight", SENSES),
            ("vision_tower.transformer.layers.0.ffn_norm.weight", SENSES),
            ("multi_modal_projector.linear_1.weight", SENSES),
            ("model.image_newline", SENSES),
            ("model.mtp_block.0.input_layernorm.weight", NEXT),
            ("mtp.fc.weight", NEXT),
            ("model.layers.1.self_attn.bias", MASK),
            ("model.layers.1.self_attn.masked_bias", MASK),
            ("model.layers.1.self_attn.k_proj.k_scale", CACHE),
            ("model.layers.1.self_attn.q_scale", CACHE),
            ("model.layers.1.self_attn.q_proj.input_scale", ACTIVATIONS),
            ("model.layers.1.self_attn.q_proj.input_zero_point", ACTIVATIONS),
            ("model.layers.1.mlp.up_proj.input_global_scale", ACTIVATIONS),
            ("model.layers.1.mlp.up_proj.input_scale_ub", ACTIVATIONS),
            ("model.layers.1.mlp.experts.gate_up_proj_activation_scale", ACTIVATIONS),
            ("model.layers.1.mlp.experts.gate_up_proj_scale", Extra::Own),
            ("model.layers.1.self_attn.q_proj.q_scale", Extra::Own),
            ("layers.0.attention.wq.weight", Extra::Foreign),
            ("v_head.summary.weight", Extra::Foreign),
            ("model.layers.1.self_attn.q_norm.weight", Extra::Own),
            ("model.layers.2.self_attn.q_proj.weight", Extra::Own),
            ("lm_head.scale", Extra::Own),
        ] {
            assert_eq!(kinds(&[name]), [kind], "{name}");
        }
    }

    #[test]
    fn a_layer_beyond_the_last_is_known_only_if_it_predicts_further_tokens() {
        let names = [
            "model.layers.2.eh_proj.weight",
            "model.layers.2.mlp.up_proj.weight",
            "model.layers.3.mlp.up_proj.weight",
            "model.layers.1.eh_proj.weight",
        ];
        assert_eq!(kinds(&names), [NEXT, NEXT, Extra::Own, Extra::Own]);
    }
}
