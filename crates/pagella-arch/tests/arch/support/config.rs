//! Small configs for tests of the parser.

use pagella_arch::{ArchError, ModelSpec, SpecOptions, spec_from_json};
use serde_json::{Value, json};

/// The smallest complete config of an architecture, with `changes` on top.
pub fn config(architecture: &str, changes: Value) -> Value {
    let mut config = json!({
        "architectures": [architecture], "vocab_size": 320, "hidden_size": 64,
        "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
        "rms_norm_eps": 1e-5
    });
    let map = config.as_object_mut().expect("an object");
    map.extend(changes.as_object().expect("an object").clone());
    config
}

/// Its spec.
pub fn parse(architecture: &str, changes: Value) -> Result<ModelSpec, ArchError> {
    let config = config(architecture, changes).to_string();
    spec_from_json(config.as_bytes(), None, &SpecOptions::default())
}

/// Window of every layer.
pub fn windows(spec: &ModelSpec) -> Vec<Option<usize>> {
    spec.layers.iter().map(|layer| layer.attn.window).collect()
}
