//! Yi as it was first published: Llama with other norm names. Both spellings are read.

use super::{FamilyInfo, accept};
use crate::record::{Defaults, LayerNorms, Record};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "yi",
    architectures: &["YiForCausalLM"],
    notes: "Yi 6B and 34B in their first form; later ones are Llama",
    record: Record {
        layer_norms: LayerNorms {
            pre_attn: Some(&[".ln1", ".input_layernorm"]),
            pre_mlp: Some(&[".ln2", ".post_attention_layernorm"]),
            ..LayerNorms::LLAMA
        },
        defaults: Defaults { context: 4096, rope_theta: 5e6, ..Defaults::LLAMA },
        ..Record::LLAMA
    },
    check: accept,
    exl2_caution: None,
};
