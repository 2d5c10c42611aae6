//! What each family's record makes of a minimal config, and of the configs of real models.

use std::path::Path;

use crate::support::config::{parse, windows};
use pagella_arch::*;
use serde_json::{Value, json};

#[test]
fn llama_minimal() {
    let spec = parse("LlamaForCausalLM", json!({})).unwrap();
    assert_eq!((spec.family, spec.architecture.as_str()), ("llama", "LlamaForCausalLM"));
    assert_eq!((spec.hidden, spec.vocab, spec.context, spec.layers.len()), (64, 320, 2048, 4));
    assert_eq!((spec.embed.name.as_str(), spec.embed.scale), ("model.embed_tokens", 1.0));
    let layer = &spec.layers[3];
    assert_eq!(layer.attn_pre_norm.as_ref().unwrap().bases, ["model.layers.3.input_layernorm"]);
    assert_eq!(
        layer.mlp_pre_norm.as_ref().unwrap().bases,
        ["model.layers.3.post_attention_layernorm"]
    );
    assert!(layer.attn_post_norm.is_none() && layer.mlp_post_norm.is_none());
    let attn = &layer.attn;
    assert_eq!((attn.heads, attn.kv_heads, attn.head_dim, attn.scale), (4, 4, 16, 0.25));
    assert_eq!((attn.window, attn.softcap, attn.rope), (None, None, Some(0)));
    assert!(attn.qk_norm.is_none() && attn.clip_qkv.is_none());
    assert_eq!(
        (attn.q.in_features, attn.q.out_features, attn.q.bias),
        (64, 64, BiasRule::Forbidden)
    );
    assert!(
        matches!(&layer.mlp, MlpSpec::Gated { act: Activation::Silu, up, .. } if up.out_features == 96)
    );
    assert_eq!(spec.final_norm.bases, ["model.norm"]);
    assert_eq!((spec.final_norm.eps, spec.final_norm.offset), (1e-5, 0.0));
    assert_eq!(spec.head.linear.bases, ["lm_head"]);
    assert_eq!((spec.head.scale, spec.head.softcap, spec.head.normalize_rows), (1.0, None, false));
    assert_eq!(
        (spec.ropes.len(), spec.ropes[0].style, spec.ropes[0].rotary_dim),
        (1, RopeStyle::Neox, 16)
    );
    assert!(!spec.requires_bos && spec.notes.is_empty() && spec.renames.is_empty());
}

#[test]
fn llama_biases_and_tying_follow_the_config() {
    let changes = json!({ "attention_bias": true, "mlp_bias": true, "tie_word_embeddings": true });
    let spec = parse("LlamaForCausalLM", changes).unwrap();
    for (label, linear) in spec.linear_specs() {
        let want = if label == "head" { BiasRule::Forbidden } else { BiasRule::Required };
        assert_eq!(linear.bias, want, "{label}");
    }
    assert_eq!(spec.head.linear.bases, ["lm_head", "model.embed_tokens"]);
    assert!(spec.is_tied());
}

#[test]
fn llama_3_1_8b() {
    let spec = parse("LlamaForCausalLM", json!({
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072, "rope_theta": 500000.0,
        "rope_scaling": { "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192, "rope_type": "llama3" },
        "eos_token_id": [128001, 128008, 128009], "tie_word_embeddings": false, "pretraining_tp": 1
    })).unwrap();
    assert_eq!(spec.params(), 8_030_261_248);
    assert_eq!(spec.kv_elements_per_token(), 2 * 32 * 8 * 128);
    assert_eq!((spec.context, spec.tokens.eos.len()), (131_072, 3));
}

#[test]
fn the_bundled_demo_model() {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo");
    let spec = load_spec(&demo, &SpecOptions::default()).unwrap();
    assert_eq!((spec.family, spec.quant.method.as_deref()), ("llama", Some("exl2")));
    assert_eq!((spec.quant.bits, spec.quant.head_bits), (Some(6.0), Some(6)));
    assert_eq!(spec.tokens, TokenIds { bos: Some(0), eos: vec![0, 4], pad: Some(5) });
}

#[test]
fn mistral_minimal_is_llama_with_a_window() {
    let spec = parse("MistralForCausalLM", json!({})).unwrap();
    assert_eq!((spec.family, spec.context), ("mistral", 131_072));
    assert_eq!(windows(&spec), [Some(4096); 4]);
}

#[test]
fn qwen2_minimal_has_biases_on_q_k_and_v() {
    let spec = parse("Qwen2ForCausalLM", json!({})).unwrap();
    assert_eq!((spec.family, spec.context), ("qwen2", 32_768));
    let attn = &spec.layers[0].attn;
    let biases = [attn.q.bias, attn.k.bias, attn.v.bias, attn.o.bias];
    assert_eq!(biases[..3], [BiasRule::Required; 3]);
    assert_eq!(biases[3], BiasRule::Forbidden);
    assert_eq!(windows(&spec), [None; 4]);
    // `attention_bias` does not add one to the output projection.
    let spec = parse("Qwen2ForCausalLM", json!({ "attention_bias": true })).unwrap();
    assert_eq!(spec.layers[0].attn.o.bias, BiasRule::Forbidden);
}

#[test]
fn qwen3_minimal_norms_heads_of_128() {
    let spec = parse("Qwen3ForCausalLM", json!({ "num_key_value_heads": 2 })).unwrap();
    assert_eq!((spec.family, spec.context), ("qwen3", 32_768));
    let attn = &spec.layers[1].attn;
    assert_eq!((attn.head_dim, attn.q.out_features, attn.k.out_features), (128, 512, 256));
    assert_eq!((attn.o.in_features, attn.o.out_features), (512, 64));
    let norm = attn.qk_norm.as_ref().unwrap();
    assert_eq!(norm.q.bases, ["model.layers.1.self_attn.q_norm"]);
    assert_eq!(norm.k.bases, ["model.layers.1.self_attn.k_norm"]);
    assert_eq!((norm.q.width, norm.q.eps, norm.q.offset), (128, 1e-5, 0.0));
    assert_eq!(attn.q.bias, BiasRule::Forbidden);
}

/// The experts of a layer.
fn moe(spec: &ModelSpec, layer: usize) -> Option<&MoeSpec> {
    match &spec.layers[layer].mlp {
        MlpSpec::Moe(moe) => Some(moe),
        _ => None,
    }
}

#[test]
fn mixtral_minimal_has_eight_experts_as_wide_as_an_mlp() {
    let spec = parse("MixtralForCausalLM", json!({})).unwrap();
    assert_eq!((spec.family, spec.context), ("mixtral", 131_072));
    assert_eq!(windows(&spec), [None; 4]);
    let moe = moe(&spec, 3).unwrap();
    assert_eq!((moe.experts.len(), moe.experts_per_token, moe.renormalize), (8, 2, true));
    assert_eq!((moe.score, moe.act), (RouterScore::Softmax, Activation::Silu));
    assert_eq!(moe.router.bases, ["model.layers.3.block_sparse_moe.gate"]);
    assert_eq!((moe.router.in_features, moe.router.out_features), (64, 8));
    let [gate, up, down] = &moe.experts[7];
    assert_eq!(gate.bases, ["model.layers.3.block_sparse_moe.experts.7.w1"]);
    assert_eq!(up.bases, ["model.layers.3.block_sparse_moe.experts.7.w3"]);
    assert_eq!(down.bases, ["model.layers.3.block_sparse_moe.experts.7.w2"]);
    assert_eq!((up.in_features, up.out_features), (64, 96));
    assert_eq!((down.in_features, down.out_features), (96, 64));
}

#[test]
fn qwen3_moe_minimal_has_128_narrow_experts() {
    let spec = parse("Qwen3MoeForCausalLM", json!({})).unwrap();
    assert_eq!((spec.family, spec.context), ("qwen3_moe", 32_768));
    // Unlike dense Qwen3, no head size of its own.
    assert_eq!(spec.layers[0].attn.head_dim, 16);
    assert_eq!(spec.layers[0].attn.qk_norm.as_ref().unwrap().q.kind, NormKind::Rms);
    let moe = moe(&spec, 0).unwrap();
    assert_eq!((moe.experts.len(), moe.experts_per_token, moe.renormalize), (128, 8, false));
    assert_eq!(moe.router.bases, ["model.layers.0.mlp.gate"]);
    let [gate, _, down] = &moe.experts[127];
    assert_eq!(gate.bases, ["model.layers.0.mlp.experts.127.gate_proj"]);
    assert_eq!((gate.out_features, down.in_features), (768, 768));
}

#[test]
fn qwen3_moe_layers_may_be_dense() {
    let with_experts = |changes| -> Vec<bool> {
        let spec = parse("Qwen3MoeForCausalLM", changes).unwrap();
        (0..4).map(|layer| moe(&spec, layer).is_some()).collect()
    };
    assert_eq!(with_experts(json!({})), [true; 4]);
    assert_eq!(with_experts(json!({ "decoder_sparse_step": 2 })), [false, true, false, true]);
    let changes = json!({ "mlp_only_layers": [0, 9], "num_local_experts": 8 });
    assert_eq!(with_experts(changes), [false, true, true, true]);
    let spec = parse("Qwen3MoeForCausalLM", json!({ "mlp_only_layers": [2] })).unwrap();
    let MlpSpec::Gated { up, .. } = &spec.layers[2].mlp else { panic!("a dense layer") };
    assert_eq!((up.bases[0].as_str(), up.out_features), ("model.layers.2.mlp.up_proj", 96));
}

#[test]
fn qwen3_30b_a3b() {
    let spec = parse("Qwen3MoeForCausalLM", json!({
        "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 48, "num_attention_heads": 32,
        "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 40960,
        "rope_theta": 1000000.0, "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
        "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [], "use_sliding_window": false,
        "sliding_window": null, "max_window_layers": 48, "tie_word_embeddings": false
    })).unwrap();
    assert_eq!(spec.params(), 30_532_122_624);
    assert!(moe(&spec, 0).unwrap().renormalize);
    assert_eq!(windows(&spec), [None; 48]);
}

#[test]
fn gemma2_minimal() {
    let spec = parse("Gemma2ForCausalLM", json!({ "hidden_act": "gelu" })).unwrap();
    assert_eq!((spec.family, spec.context, spec.requires_bos), ("gemma2", 8192, true));
    assert_eq!(spec.embed.scale, 8.0);
    assert_eq!(spec.head.linear.bases, ["lm_head", "model.embed_tokens"]);
    assert_eq!(spec.head.softcap, Some(30.0));
    let layer = &spec.layers[2];
    let names: Vec<_> = layer.norm_specs().iter().map(|(_, norm)| norm.bases[0].clone()).collect();
    assert_eq!(
        names,
        [
            "model.layers.2.input_layernorm",
            "model.layers.2.post_attention_layernorm",
            "model.layers.2.pre_feedforward_layernorm",
            "model.layers.2.post_feedforward_layernorm",
        ]
    );
    assert!(spec.norm_specs().all(|(_, norm)| norm.offset == 1.0));
    assert_eq!(
        (layer.attn.softcap, layer.attn.scale, layer.attn.head_dim),
        (Some(50.0), 0.0625, 256)
    );
    assert_eq!(windows(&spec), [Some(4096), None, Some(4096), None]);
    // `hidden_act` of old configs said "gelu" and meant the tanh form.
    assert!(matches!(layer.mlp, MlpSpec::Gated { act: Activation::GeluTanh, .. }));
}

#[test]
fn gemma2_null_switches_a_cap_off() {
    let changes = json!({ "attn_logit_softcapping": null, "final_logit_softcapping": null });
    let spec = parse("Gemma2ForCausalLM", changes).unwrap();
    assert_eq!((spec.head.softcap, spec.layers[0].attn.softcap), (None, None));
}

#[test]
fn phi3_minimal_is_fused() {
    let spec = parse("Phi3ForCausalLM", json!({ "num_key_value_heads": 2 })).unwrap();
    assert_eq!((spec.family, spec.context), ("phi3", 4096));
    let attn = &spec.layers[0].attn;
    let parts = [&attn.q, &attn.k, &attn.v].map(|linear| linear.fused.clone().unwrap());
    let rows = parts.each_ref().map(|fused| fused.rows[0].clone());
    assert_eq!(rows, [0..64, 64..96, 96..128]);
    assert!(parts.iter().all(|fused| fused.total_out == 128));
    assert!(attn.o.fused.is_none());
    assert_eq!(windows(&spec), [None; 4]);
}

#[test]
fn phi_4_mini() {
    let spec = parse("Phi3ForCausalLM", json!({
        "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32, "num_attention_heads": 24,
        "num_key_value_heads": 8, "vocab_size": 200064, "max_position_embeddings": 131072,
        "original_max_position_embeddings": 4096, "partial_rotary_factor": 0.75, "sliding_window": 262144,
        "rope_scaling": { "type": "longrope", "short_factor": vec![1.0; 48], "long_factor": vec![2.0; 48] },
        "tie_word_embeddings": true, "attention_bias": false, "mlp_bias": false, "lm_head_bias": false,
        "full_attn_mod": 1, "interpolate_factor": 1
    })).unwrap();
    assert_eq!(spec.ropes[0].rotary_dim, 96);
    assert_eq!(spec.params(), 3_836_021_760);
    assert_eq!(spec.layers[0].attn.window, Some(262_144));
}

#[test]
fn the_registry_is_consistent() {
    let mut seen = Vec::new();
    for family in families() {
        assert!(!family.notes.is_empty());
        for architecture in family.architectures {
            // Vision models may hold text models of several families.
            let inner = (family.name == "ministral3").then_some("ministral3");
            assert!(!seen.contains(&(architecture, inner)), "{architecture} is listed twice");
            seen.push((architecture, inner));
            // What some families want to see stated.
            let stated = json!({
                "scale_emb": 1, "scale_depth": 1, "dim_model_base": 64,
                "vision_config": { "model_type": "pixtral" },
                "text_config": { "model_type": inner },
                "layer_types": vec!["full_attention"; 4]
            });
            assert_eq!(parse(architecture, stated).unwrap().family, family.name);
        }
    }
}

#[test]
fn every_linear_and_norm_has_a_label_of_its_own() {
    let spec = parse("Qwen3ForCausalLM", json!({})).unwrap();
    let linears: Vec<_> = spec.linear_specs().map(|(label, _)| label).collect();
    assert_eq!(linears.len(), 4 * 7 + 1);
    assert_eq!(
        linears[7..11],
        ["layers.1.attn.q", "layers.1.attn.k", "layers.1.attn.v", "layers.1.attn.o"]
    );
    assert_eq!(linears[11..14], ["layers.1.mlp.gate", "layers.1.mlp.up", "layers.1.mlp.down"]);
    let norms: Vec<_> = spec.norm_specs().map(|(label, _)| label).collect();
    assert_eq!(norms[..2], ["layers.0.attn_pre_norm", "layers.0.attn.q_norm"]);
    assert_eq!((norms.len(), norms.last().map(String::as_str)), (4 * 4 + 1, Some("final_norm")));
}

#[test]
fn multipliers_are_obeyed_by_every_family() {
    let spec = parse("LlamaForCausalLM", json!({
        "embedding_multiplier": 12, "residual_multiplier": 0.22, "attention_multiplier": 0.015625,
        "logits_scaling": 8.0, "attn_logit_softcapping": 20.0
    })).unwrap();
    assert_eq!((spec.embed.scale, spec.layers[0].branch_scale), (12.0, 0.22));
    assert_eq!((spec.layers[0].attn.scale, spec.head.scale), (0.015625, 0.125));
    assert_eq!(spec.layers[0].attn.softcap, Some(20.0));
    let spec =
        parse("LlamaForCausalLM", json!({ "scale_depth": 1.4, "logit_scale": 0.0625 })).unwrap();
    assert_eq!((spec.layers[0].branch_scale, spec.head.scale), (0.7, 0.0625));
}

#[test]
fn deepseek_v3() {
    let mut config = json!({
        "vocab_size": 129_280, "hidden_size": 7168, "intermediate_size": 18_432,
        "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 128,
        "num_key_value_heads": 128, "n_shared_experts": 1, "n_routed_experts": 256,
        "routed_scaling_factor": 2.5, "kv_lora_rank": 512, "q_lora_rank": 1536,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "qk_nope_head_dim": 128, "n_group": 8,
        "topk_group": 4, "topk_method": "noaux_tc", "scoring_func": "sigmoid",
        "num_experts_per_tok": 8, "first_k_dense_replace": 3, "norm_topk_prob": true,
        "moe_layer_freq": 1, "num_nextn_predict_layers": 1, "max_position_embeddings": 163_840,
        "rope_scaling": {
            "type": "yarn", "factor": 40, "original_max_position_embeddings": 4096,
            "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0
        }
    });
    let spec = parse("DeepseekV3ForCausalLM", config.clone()).unwrap();
    let attn = &spec.layers[60].attn;
    assert_eq!((attn.heads, attn.kv_heads, attn.head_dim), (128, 1, 576));
    let latent = attn.latent.as_ref().unwrap();
    assert_eq!((latent.rank, latent.nope_dim, latent.value_dim), (512, 128, 128));
    assert_eq!((latent.norm.eps, latent.norm.width), (1e-6, 512));
    let labels: Vec<_> = spec.layers[60].linear_specs().into_iter().take(5).collect();
    let shapes: Vec<_> =
        labels.iter().map(|(label, l)| (label.as_str(), l.in_features, l.out_features)).collect();
    let expected = [
        ("attn.q_down", 7168, 1536),
        ("attn.q", 1536, 128 * 192),
        ("attn.entry", 7168, 576),
        ("attn.unfold", 512, 128 * 256),
        ("attn.o", 128 * 128, 7168),
    ];
    assert_eq!(shapes, expected);
    // The factors of sin and cos cancel; scores take the square of one of them.
    assert_eq!((spec.ropes[0].attention_factor, spec.ropes[0].rotary_dim), (1.0, 64));
    assert_eq!(spec.ropes[0].style, RopeStyle::GptJ);
    let mscale = 0.1 * 40f64.ln() + 1.0;
    assert!((f64::from(attn.scale) - 192f64.powf(-0.5) * mscale * mscale).abs() < 1e-8);
    assert_eq!(spec.kv_elements_per_token(), 61 * 576);
    let moe = |spec: &ModelSpec, layer: usize| match &spec.layers[layer].mlp {
        MlpSpec::Moe(moe) => Some((**moe).clone()),
        _ => None,
    };
    assert!(moe(&spec, 2).is_none());
    let experts = moe(&spec, 3).unwrap();
    let groups = ExpertGroups { count: 8, taken: 4, rank: GroupRank::TwoBest };
    assert_eq!((experts.experts.len(), experts.groups), (256, Some(groups)));
    assert_eq!((experts.score, experts.weight_scale), (RouterScore::Sigmoid, 2.5));
    // 671 billion, without the layer that predicts a further token.
    assert_eq!(spec.params() / 1_000_000_000, 671);

    // The user's YaRN concerns whole scores, as the model's own does.
    let options = SpecOptions { rope: Some(RopeOverride::Yarn(4.0)), ..SpecOptions::default() };
    config["architectures"] = json!(["DeepseekV3ForCausalLM"]);
    config["rms_norm_eps"] = json!(1e-6);
    let bytes = serde_json::to_vec(&config).unwrap();
    let spec = spec_from_json(&bytes, None, &options).unwrap();
    let mscale = 0.1 * 4f64.ln() + 1.0;
    let scale = f64::from(spec.layers[0].attn.scale);
    assert!((scale - 192f64.powf(-0.5) * mscale * mscale).abs() < 1e-8);
    assert_eq!(spec.ropes[0].attention_factor, 1.0);
}

#[test]
fn deepseek_v2_takes_groups_only_by_its_method() {
    let groups = |changes: serde_json::Value| {
        let mut config = json!({
            "kv_lora_rank": 64, "qk_rope_head_dim": 16, "q_lora_rank": null, "n_group": 8,
            "topk_group": 3, "num_experts_per_tok": 2
        });
        let changes = changes.as_object().unwrap().clone();
        config.as_object_mut().unwrap().extend(changes);
        let spec = parse("DeepseekV2ForCausalLM", config)?;
        assert!(spec.layers[0].attn.latent.as_ref().unwrap().query_down.is_none());
        match &spec.layers[0].mlp {
            MlpSpec::Moe(moe) => Ok(moe.groups),
            _ => panic!("no experts"),
        }
    };
    let taken = ExpertGroups { count: 8, taken: 3, rank: GroupRank::Best };
    let limited = json!({ "topk_method": "group_limited_greedy" });
    assert_eq!(groups(limited).unwrap(), Some(taken));
    assert_eq!(groups(json!({ "topk_method": "greedy" })).unwrap(), None);
    assert_eq!(groups(json!({})).unwrap(), None);
    for (key, value) in [
        ("topk_method", json!("noaux_tc")),
        ("scoring_func", json!("sigmoid")),
        ("norm_topk_prob", json!(true)),
        ("moe_layer_freq", json!(2)),
    ] {
        let error: ArchError = groups(json!({ key: value })).unwrap_err();
        assert!(error.to_string().contains(key), "{error}");
    }
}

/// gpt-oss has one activation, which two keys describe.
#[test]
fn the_clamp_of_gpt_oss_is_read_without_the_name_of_its_activation() {
    let limit = |changes: Value| match &parse("GptOssForCausalLM", changes).unwrap().layers[0].mlp {
        MlpSpec::Moe(moe) => moe.act,
        other => panic!("{other:?}"),
    };
    for (changes, expected) in [
        (json!({ "hidden_act": null }), 7.0),
        (json!({ "hidden_act": null, "swiglu_limit": 3.5 }), 3.5),
        (json!({ "hidden_act": "silu", "swiglu_limit": 3.5 }), 3.5),
        (json!({ "hidden_act": "swish" }), 7.0),
    ] {
        let act = limit(changes.clone());
        assert_eq!(act, Activation::ClampedSwiglu { limit: expected }, "{changes}");
    }
    for name in ["gelu", "relu2", "gelu_pytorch_tanh"] {
        let error = parse("GptOssForCausalLM", json!({ "hidden_act": name })).unwrap_err();
        assert!(error.to_string().contains("hidden_act") && error.to_string().contains(name));
    }
}

#[test]
fn null_switches_the_normalised_weights_of_dbrx_off() {
    let cases = [
        (json!(1), Some(true)),
        (json!(1.0), Some(true)),
        (json!(null), Some(false)),
        (json!(2), None),
    ];
    for (value, expected) in cases {
        let ffn = json!({ "moe_num_experts": 4, "moe_normalize_expert_weights": value });
        let renormalize = parse("DbrxForCausalLM", json!({ "ffn_config": ffn })).ok().map(|spec| {
            match &spec.layers[0].mlp {
                MlpSpec::Moe(moe) => moe.renormalize,
                other => panic!("{other:?}"),
            }
        });
        assert_eq!(renormalize, expected, "{value}");
    }
}

#[test]
fn an_end_of_sequence_outside_the_vocabulary_is_a_warning() {
    let spec = parse("LlamaForCausalLM", json!({ "eos_token_id": [2, 999_999] })).unwrap();
    assert!(
        matches!(spec.warnings.as_slice(), [one] if one.contains("999999")),
        "{:?}",
        spec.warnings
    );
}
