//! `config.json`, and the same bytes as `generation_config.json`, to a `ModelSpec`.

use pagella_arch::{RopeOverride, SpecOptions, families, spec_from_json};
use serde_json::json;

use crate::demo;

pub fn run(data: &[u8]) {
    let _ = spec_from_json(data, Some(data), &SpecOptions::default());
    for rope in [RopeOverride::Linear(2.0), RopeOverride::NtkAlpha(2.5), RopeOverride::Yarn(4.0)] {
        let options = SpecOptions { context: Some(8192), rope: Some(rope), assume_llama: true };
        let _ = spec_from_json(data, None, &options);
    }
}

/// The demo model's configuration as every family, and with each way of stretching positions.
pub fn seeds() -> Vec<Vec<u8>> {
    let demo = demo::json("config.json");
    let mut configs = vec![demo.clone()];
    for architecture in families().iter().flat_map(|family| family.architectures) {
        let mut config = demo.clone();
        config["architectures"] = json!([architecture]);
        config["sliding_window"] = json!(512);
        config["query_pre_attn_scalar"] = json!(64);
        config["final_logit_softcapping"] = json!(30.0);
        configs.push(config);
    }
    for scaling in [
        json!({"rope_type": "linear", "factor": 2.0}),
        json!({"rope_type": "dynamic", "factor": 2.0}),
        json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}),
        json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 1024}),
        json!({"type": "longrope", "short_factor": vec![1.0; 32], "long_factor": vec![2.0; 32]}),
    ] {
        let mut config = demo.clone();
        config["rope_scaling"] = scaling;
        configs.push(config);
    }
    configs.iter().map(|config| config.to_string().into_bytes()).collect()
}
