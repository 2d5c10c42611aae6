//! One test per quirk of ExLlamaV2 that concerns configs. Those of rotary scaling are in `rope.rs`,
//! those that need weights in the tests of the model crate.

use crate::support::config::{config, parse, windows};
use pagella_arch::*;
use serde_json::json;

#[test]
fn mistral_and_phi3_use_their_window_unless_it_is_null() {
    for architecture in ["MistralForCausalLM", "Phi3ForCausalLM"] {
        let windows_of =
            |window| windows(&parse(architecture, json!({ "sliding_window": window })).unwrap());
        assert_eq!(windows_of(json!(100)), [Some(100); 4]);
        assert_eq!(windows_of(json!(null)), [None; 4]);
        assert_eq!(windows_of(json!(0)), [None; 4]);
    }
    // Llama has no windows; the key is left over from some conversion.
    assert_eq!(
        windows(&parse("LlamaForCausalLM", json!({ "sliding_window": 100 })).unwrap()),
        [None; 4]
    );
}

#[test]
fn qwen_uses_its_window_only_when_told_to_and_above_max_window_layers() {
    for architecture in ["Qwen2ForCausalLM", "Qwen3ForCausalLM"] {
        let windows_of = |on: bool, first: usize| {
            let changes = json!({ "use_sliding_window": on, "sliding_window": 100, "max_window_layers": first });
            windows(&parse(architecture, changes).unwrap())
        };
        assert_eq!(windows_of(false, 1), [None; 4]);
        assert_eq!(windows_of(true, 1), [None, Some(100), Some(100), Some(100)]);
        assert_eq!(windows_of(true, 28), [None; 4]);
    }
}

#[test]
fn qwen3_norms_heads_by_rms_and_exl2_files_get_a_note() {
    let spec = parse("Qwen3ForCausalLM", json!({})).unwrap();
    let norm = spec.layers[0].attn.qk_norm.as_ref().unwrap();
    assert_eq!((norm.q.kind, norm.k.kind), (NormKind::Rms, NormKind::Rms));
    assert!(spec.notes.is_empty());
    let quant = json!({ "quantization_config": { "quant_method": "EXL2", "bits": 4 } });
    let spec = parse("Qwen3ForCausalLM", quant.clone()).unwrap();
    assert!(
        matches!(spec.notes.as_slice(), [note] if note.contains("RMS norm")),
        "{:?}",
        spec.notes
    );
    assert!(parse("Qwen2ForCausalLM", quant).unwrap().notes.is_empty());
}

#[test]
fn use_qk_norm_switches_the_norm_off_but_never_guesses_one() {
    let spec = parse("Qwen3ForCausalLM", json!({ "use_qk_norm": false })).unwrap();
    assert!(spec.layers[0].attn.qk_norm.is_none());
    let error = parse("LlamaForCausalLM", json!({ "use_qk_norm": true })).unwrap_err();
    assert!(matches!(&error, ArchError::Unsupported { family: "llama", .. }), "{error}");
    assert!(error.to_string().contains("use_qk_norm"), "{error}");
}

#[test]
fn a_window_counts_the_query_itself() {
    // Not w + 1: `reference.rs` checks against transformers that this is what its masks do.
    let spec = parse("Gemma2ForCausalLM", json!({ "sliding_window": 8 })).unwrap();
    assert_eq!(spec.layers[0].attn.window, Some(8));
}

#[test]
fn a_config_without_a_length_gets_the_familys_own() {
    let context = |architecture| parse(architecture, json!({})).unwrap().context;
    assert_eq!(context("LlamaForCausalLM"), 2048);
    assert_eq!(context("MistralForCausalLM"), 131_072);
    assert_eq!(context("Qwen2ForCausalLM"), 32_768);
    assert_eq!(context("Qwen3ForCausalLM"), 32_768);
    assert_eq!(context("Gemma2ForCausalLM"), 8192);
    assert_eq!(context("Phi3ForCausalLM"), 4096);
}

#[test]
fn an_extended_length_wins_over_max_position_embeddings() {
    let changes = json!({
        "max_sequence_length": 16384, "max_position_embeddings": 4096,
        "rope_scaling": { "type": "linear", "factor": 4.0 }
    });
    assert_eq!(parse("LlamaForCausalLM", changes).unwrap().context, 16_384);
}

#[test]
fn every_key_may_sit_in_text_config_and_the_top_level_wins() {
    let mut outer = config(
        "Gemma2ForCausalLM",
        json!({
            "tie_word_embeddings": false, "attention_bias": true, "sliding_window_pattern": 3,
            "attn_logit_softcapping": 7.0, "partial_rotary_factor": 0.5, "sliding_window": 9,
            "rope_parameters": { "rope_theta": 100.0 }, "eos_token_id": [5, 6]
        }),
    );
    let map = outer.as_object_mut().unwrap();
    let architectures = map.remove("architectures").unwrap();
    let nested =
        json!({ "architectures": architectures, "text_config": outer, "vocab_size": 1000 });
    let spec =
        spec_from_json(nested.to_string().as_bytes(), None, &SpecOptions::default()).unwrap();
    assert_eq!(spec.vocab, 1000);
    assert_eq!(spec.head.linear.bases, ["lm_head"]);
    assert_eq!(spec.layers[0].attn.q.bias, BiasRule::Required);
    assert_eq!(windows(&spec), [Some(9), Some(9), None, Some(9)]);
    assert_eq!(spec.layers[0].attn.softcap, Some(7.0));
    assert_eq!((spec.ropes[0].rotary_dim, spec.tokens.eos.as_slice()), (128, [5, 6].as_slice()));
    assert!((spec.ropes[0].inv_freq[32] - 0.1).abs() < 1e-7);
}

#[test]
fn layer_types_win_over_the_familys_pattern() {
    let kinds = ["full_attention", "full_attention", "sliding_attention", "full_attention"];
    for architecture in ["Gemma2ForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM"] {
        let changes =
            json!({ "layer_types": kinds, "sliding_window": 6, "use_sliding_window": true });
        assert_eq!(windows(&parse(architecture, changes).unwrap()), [None, None, Some(6), None]);
    }
}

#[test]
fn layer_types_that_cannot_be_followed_are_refused() {
    let refused = |changes| parse("Qwen2ForCausalLM", changes).unwrap_err().to_string();
    let message = refused(json!({ "layer_types": ["full_attention"] }));
    assert!(message.contains("1 entries for 4 layers"), "{message}");
    let message = refused(json!({ "layer_types": vec!["chunked_attention"; 4] }));
    assert!(message.contains("chunked_attention"), "{message}");
    let message = refused(json!({ "layer_types": vec!["sliding_attention"; 4] }));
    assert!(message.contains("no `sliding_window` is in force"), "{message}");
}

#[test]
fn layer_kinds_may_have_their_own_rotary_tables() {
    let parameters = json!({
        "full_attention": { "rope_type": "linear", "factor": 2.0, "rope_theta": 1e6 },
        "sliding_attention": { "rope_type": "default", "rope_theta": 1e4 }
    });
    let spec = parse("Gemma2ForCausalLM", json!({ "rope_parameters": parameters })).unwrap();
    assert_eq!(spec.ropes.iter().map(|rope| rope.inv_freq[0]).collect::<Vec<_>>(), [0.5, 1.0]);
    let tables: Vec<_> = spec.layers.iter().map(|layer| layer.attn.rope).collect();
    assert_eq!(tables, [Some(1), Some(0), Some(1), Some(0)]);
}

#[test]
fn all_eos_ids_are_kept_generation_first_without_repeats() {
    let with = |config_ids, generation: Option<serde_json::Value>| {
        let config = config("LlamaForCausalLM", json!({ "eos_token_id": config_ids })).to_string();
        let generation = generation.map(|ids| json!({ "eos_token_id": ids }).to_string());
        let generation = generation.as_ref().map(String::as_bytes);
        spec_from_json(config.as_bytes(), generation, &SpecOptions::default()).unwrap().tokens.eos
    };
    assert_eq!(with(json!([3, 4, 3]), None), [3, 4]);
    assert_eq!(with(json!(3), Some(json!([7, 3, 9]))), [7, 3, 9]);
    assert_eq!(with(json!([3, 8]), Some(json!(7))), [7, 3, 8]);
    assert_eq!(with(json!(null), Some(json!([7.0]))), [7]);
}

#[test]
fn control_ids_of_minus_one_mean_none() {
    let changes = json!({ "pad_token_id": -1, "bos_token_id": 1, "eos_token_id": -1 });
    let tokens = parse("LlamaForCausalLM", changes).unwrap().tokens;
    assert_eq!(tokens, TokenIds { bos: Some(1), eos: vec![], pad: None });
}

#[test]
fn quantisation_facts_are_reported() {
    let spec = parse("LlamaForCausalLM", json!({
        "torch_dtype": "bfloat16",
        "quantization_config": { "quant_method": "GPTQ", "bits": 4, "checkpoint_format": "gptq_v2", "group_size": 128 }
    })).unwrap();
    let want = QuantFacts {
        method: Some("gptq".to_owned()),
        bits: Some(4.0),
        head_bits: None,
        block: Some(json!({
            "quant_method": "GPTQ", "bits": 4, "checkpoint_format": "gptq_v2", "group_size": 128
        })),
        scale_groups: None,
        dtype: Some("bfloat16".to_owned()),
    };
    assert_eq!(spec.quant, want);
}

#[test]
fn sizes_of_rectangles_that_share_a_scale_are_taken_from_either_form() {
    let groups = |quant: serde_json::Value| {
        parse("LlamaForCausalLM", json!({ "quantization_config": quant }))
            .map(|spec| spec.quant.scale_groups)
    };
    let weights = |block: serde_json::Value| json!({ "weights": { "block_structure": block } });
    for (config, expected) in [
        (json!({ "quant_method": "fp8", "weight_block_size": [128, 64] }), Some([128, 64])),
        (json!({ "quant_method": "fp8", "weight_block_size": null }), None),
        (
            json!({ "config_groups": { "group_0": weights(json!([64, 128])), "group_1": {} } }),
            Some([64, 128]),
        ),
        (json!({ "config_groups": { "group_0": weights(json!("64x32")) } }), Some([64, 32])),
        (json!({ "config_groups": { "group_0": weights(serde_json::Value::Null) } }), None),
        (
            json!({ "config_groups": { "a": weights(json!([1, 2])), "b": weights(json!([2, 1])) } }),
            None,
        ),
    ] {
        assert_eq!(groups(config.clone()).unwrap(), expected, "{config}");
    }
    for wrong in [json!([128]), json!([0, 128]), json!("128"), json!([1e30, 1])] {
        let error = groups(json!({ "weight_block_size": wrong })).unwrap_err().to_string();
        assert!(error.contains("weight_block_size"), "{error}");
    }
}

#[test]
fn an_unknown_architecture_is_refused_unless_the_user_assumes_llama() {
    let error = parse("NovelForCausalLM", json!({})).unwrap_err().to_string();
    for part in ["\"NovelForCausalLM\"", "families of docs/families.md", "--assume-llama"] {
        assert!(error.contains(part), "{error}");
    }
    let text = config("NovelForCausalLM", json!({})).to_string();
    let options = SpecOptions { assume_llama: true, ..SpecOptions::default() };
    let spec = spec_from_json(text.as_bytes(), None, &options).unwrap();
    assert_eq!((spec.family, spec.architecture.as_str()), ("llama", "NovelForCausalLM"));
    assert!(spec.warnings[0].contains("NovelForCausalLM"), "{:?}", spec.warnings);
    // The option changes nothing for a known one.
    let text = config("Qwen2ForCausalLM", json!({})).to_string();
    assert_eq!(spec_from_json(text.as_bytes(), None, &options).unwrap().family, "qwen2");
}

#[test]
fn features_a_family_cannot_do_are_refused_by_name() {
    for (architecture, changes, name) in [
        (
            "Gemma2ForCausalLM",
            json!({ "use_bidirectional_attention": true }),
            "use_bidirectional_attention",
        ),
        ("LlamaForCausalLM", json!({ "num_local_experts": 8 }), "num_local_experts"),
        ("MistralForCausalLM", json!({ "num_experts": 2 }), "num_experts"),
        ("LlamaForCausalLM", json!({ "hidden_act": "xielu" }), "xielu"),
    ] {
        let error = parse(architecture, changes).unwrap_err();
        assert!(matches!(error, ArchError::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn experts_that_contradict_each_other_are_refused() {
    for (changes, words) in [
        (json!({ "num_experts": 4, "num_experts_per_tok": 5 }), "5 experts per token of 4"),
        (json!({ "num_experts": 4096, "num_hidden_layers": 17 }), "69632 experts"),
    ] {
        let error = parse("Qwen3MoeForCausalLM", changes).unwrap_err();
        assert!(matches!(error, ArchError::Inconsistent { .. }), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    for changes in [json!({ "num_local_experts": 0 }), json!({ "num_experts_per_tok": 0 })] {
        let error = parse("MixtralForCausalLM", changes).unwrap_err();
        assert!(matches!(error, ArchError::OutOfRange { .. }), "{error}");
    }
    let error = parse("Qwen3MoeForCausalLM", json!({ "mlp_only_layers": 3 })).unwrap_err();
    assert!(matches!(error, ArchError::WrongType { .. }), "{error}");
}

#[test]
fn a_longer_context_than_the_models_own_is_noted() {
    let text = config("LlamaForCausalLM", json!({})).to_string();
    let options = SpecOptions { context: Some(4096), ..SpecOptions::default() };
    let spec = spec_from_json(text.as_bytes(), None, &options).unwrap();
    assert_eq!(spec.context, 4096);
    assert!(spec.warnings[0].contains("4096"), "{:?}", spec.warnings);
    assert!(spec.warnings[0].contains("2048"), "{:?}", spec.warnings);
}

#[test]
fn global_layers_of_cohere2_have_no_rotary_table() {
    let changes = json!({ "layer_norm_eps": 1e-5, "sliding_window": 8 });
    let spec = parse("Cohere2ForCausalLM", changes).unwrap();
    let ropes: Vec<_> = spec.layers.iter().map(|layer| layer.attn.rope).collect();
    assert_eq!(ropes, [Some(0), Some(0), Some(0), None]);
    assert_eq!(windows(&spec), [Some(8), Some(8), Some(8), None]);
}

#[test]
fn the_clamp_of_dbrx_is_read() {
    let changes = json!({ "attn_config": { "clip_qkv": 8, "kv_n_heads": 2 } });
    let spec = parse("DbrxForCausalLM", changes).unwrap();
    assert_eq!((spec.layers[0].attn.clip_qkv, spec.layers[0].attn.kv_heads), (Some(8.0), 2));
}

#[test]
fn small_gemma_3_configs_get_their_sizes_and_length() {
    let config = json!({
        "architectures": ["Gemma3ForConditionalGeneration"],
        "text_config": { "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
            "model_type": "gemma3_text", "sliding_window": 1024,
            "rope_scaling": { "factor": 8.0, "rope_type": "linear" } }
    });
    let spec =
        spec_from_json(config.to_string().as_bytes(), None, &SpecOptions::default()).unwrap();
    let attn = &spec.layers[0].attn;
    assert_eq!((spec.context, spec.vocab), (131_072, 262_208));
    assert_eq!((attn.heads, attn.kv_heads, attn.head_dim), (8, 4, 256));
    // One global layer in six, whose table alone is stretched.
    assert_eq!(
        windows(&spec)[..6],
        [Some(1024), Some(1024), Some(1024), Some(1024), Some(1024), None]
    );
    assert_eq!((spec.ropes[0].inv_freq[0], spec.ropes[1].inv_freq[0]), (0.125, 1.0));
}

#[test]
fn either_name_of_starcoder2s_epsilon_is_read() {
    for key in ["layer_norm_epsilon", "norm_epsilon"] {
        let spec = parse("Starcoder2ForCausalLM", json!({ key: 0.25 })).unwrap();
        assert_eq!(spec.final_norm.eps, 0.25, "{key}");
    }
}

#[test]
fn exl2_files_that_were_calibrated_with_a_wrong_pass_get_a_note() {
    let quant = json!({ "quant_method": "exl2", "bits": 4 });
    for (architecture, changes, words) in [
        ("MistralForCausalLM", json!({}), "sliding window"),
        ("Qwen3MoeForCausalLM", json!({}), "instead of the RMS norm"),
        ("Cohere2ForCausalLM", json!({ "layer_norm_eps": 1e-5 }), "global layers"),
        ("DbrxForCausalLM", json!({}), "the clamp"),
        ("Qwen2VLForConditionalGeneration", json!({}), "rounded to 16 bits"),
        ("LlamaForCausalLM", json!({ "rope_scaling": { "type": "yarn", "factor": 4.0 } }), "YaRN"),
    ] {
        let plain = parse(architecture, changes.clone()).unwrap();
        assert!(plain.notes.is_empty(), "{:?}", plain.notes);
        let mut changes = changes;
        changes["quantization_config"] = quant.clone();
        let notes = parse(architecture, changes).unwrap().notes;
        assert!(matches!(&notes[..], [note] if note.contains(words)), "{architecture}: {notes:?}");
    }
    let changes = json!({ "sliding_window": null, "quantization_config": quant });
    assert!(parse("MistralForCausalLM", changes).unwrap().notes.is_empty());
}

#[test]
fn what_needs_a_missing_block_is_refused_by_its_name_from_the_config_alone() {
    for (architecture, block) in [
        ("Qwen3NextForCausalLM", "gated delta-net"),
        ("NemotronHForCausalLM", "Mamba"),
        ("DeepseekV32ForCausalLM", "indexer"),
        ("Lfm2MoeForCausalLM", "short convolutions"),
        ("MllamaForConditionalGeneration", "cross-attention"),
    ] {
        let error = parse(architecture, json!({})).unwrap_err();
        assert!(matches!(error, ArchError::MissingBlock { .. }), "{error}");
        let message = error.to_string();
        assert!(message.contains(architecture) && message.contains(block), "{message}");
        // Not even on request: it is known not to be a Llama.
        let text = config(architecture, json!({})).to_string();
        let options = SpecOptions { assume_llama: true, ..SpecOptions::default() };
        assert!(spec_from_json(text.as_bytes(), None, &options).is_err());
    }
}

#[test]
fn a_known_family_with_a_missing_feature_is_refused_by_its_name() {
    let mamba = json!({ "layer_types": ["mamba", "attention", "mamba", "attention"] });
    for (architecture, changes, words) in [
        ("GraniteMoeHybridForCausalLM", mamba, "Mamba 2 layers"),
        ("HunYuanDenseV1ForCausalLM", json!({ "use_cla": true }), "use_cla"),
        ("GptOssForCausalLM", json!({ "swiglu_alpha": 2.0 }), "swiglu_alpha"),
        ("GPT2LMHeadModel", json!({ "scale_attn_by_inverse_layer_idx": true }), "inverse_layer"),
        (
            "LlavaForConditionalGeneration",
            json!({ "vision_config": { "model_type": "clip_vision_model" } }),
            "clip",
        ),
        (
            "DbrxForCausalLM",
            json!({ "ffn_config": { "moe_normalize_expert_weights": 2.0 } }),
            "normalize",
        ),
    ] {
        let error = parse(architecture, changes).unwrap_err();
        assert!(matches!(error, ArchError::Unsupported { .. }), "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn experts_follow_the_config_in_every_way_it_can_say_so() {
    let moe = |architecture: &str, changes| {
        let spec = parse(architecture, changes).unwrap();
        let of = |layer: &LayerSpec| match &layer.mlp {
            MlpSpec::Moe(moe) => Some((**moe).clone()),
            _ => None,
        };
        spec.layers.iter().map(of).collect::<Vec<_>>()
    };
    let layers = moe(
        "Glm4MoeForCausalLM",
        json!({ "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 4, "topk_group": 2,
            "routed_scaling_factor": 2.5, "n_shared_experts": 2, "moe_intermediate_size": 32,
            "first_k_dense_replace": 2 }),
    );
    assert!(layers[..2].iter().all(Option::is_none));
    let glm = layers[2].as_ref().unwrap();
    assert_eq!(glm.groups, Some(ExpertGroups { count: 4, taken: 2, rank: GroupRank::TwoBest }));
    assert_eq!((glm.score, glm.weight_scale, glm.renormalize), (RouterScore::Sigmoid, 2.5, true));
    assert_eq!(glm.shared.as_ref().unwrap().up.out_features, 64);
    assert!(glm.selection_bias.as_ref().unwrap().ends_with("2.mlp.gate.e_score_correction_bias"));
    let layers = moe(
        "HunYuanMoEV1ForCausalLM",
        json!({ "num_experts": 4, "moe_topk": [2, 2, 2, 2], "moe_intermediate_size": [96] }),
    );
    assert_eq!(layers[0].as_ref().unwrap().experts_per_token, 2);
    let error =
        parse("HunYuanMoEV1ForCausalLM", json!({ "num_experts": 4, "moe_topk": [1, 2, 2, 2] }));
    assert!(error.unwrap_err().to_string().contains("differs from layer to layer"));
    let error = parse(
        "Glm4MoeForCausalLM",
        json!({ "n_routed_experts": 8, "n_group": 4, "topk_group": 1, "num_experts_per_tok": 3 }),
    );
    assert!(error.unwrap_err().to_string().contains("3 experts per token of 2"));
}
