//! What the name of a tensor in an adapter says: which module it belongs to, and as what.

/// What PEFT puts before the path of every module.
const PREFIX: &str = "base_model.model.";

/// A name, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key<'a> {
    /// Path of the module inside the model.
    pub path: &'a str,
    pub kind: Kind,
}

/// What a tensor is to its module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The half that reads inputs.
    A,
    /// The half that gives outputs.
    B,
    /// A weight in the place of the model's.
    Full,
    /// A bias, of the module or of a half.
    Bias,
    /// The length of rows that DoRA learns.
    Magnitude,
    /// Half of a pair for an embedding.
    Embedding,
    /// A copy of the model's own weight.
    Ignored,
    Unknown,
}

/// Endings of names, longest first where one ends in another. Halves may carry the name of the
/// adapter, which is `default` unless someone chose another and saved the tensors by hand.
const ENDINGS: &[(&str, Kind)] = &[
    (".lora_A.weight", Kind::A),
    (".lora_A.default.weight", Kind::A),
    (".lora_B.weight", Kind::B),
    (".lora_B.default.weight", Kind::B),
    (".lora_A.bias", Kind::Bias),
    (".lora_B.bias", Kind::Bias),
    (".lora_B.default.bias", Kind::Bias),
    (".lora_embedding_A", Kind::Embedding),
    (".lora_embedding_B", Kind::Embedding),
    (".lora_embedding_A.default", Kind::Embedding),
    (".lora_embedding_B.default", Kind::Embedding),
    (".lora_magnitude_vector", Kind::Magnitude),
    (".lora_magnitude_vector.weight", Kind::Magnitude),
    (".lora_magnitude_vector.default.weight", Kind::Magnitude),
    (".original_module.weight", Kind::Ignored),
    (".original_module.bias", Kind::Ignored),
    (".modules_to_save.default.weight", Kind::Full),
    (".modules_to_save.weight", Kind::Full),
    (".modules_to_save.default.bias", Kind::Bias),
    (".modules_to_save.bias", Kind::Bias),
    (".base_layer.weight", Kind::Full),
    (".base_layer.bias", Kind::Bias),
];

/// Endings of weights and biases that are there as the model has them.
const PLAIN: &[(&str, Kind)] = &[(".weight", Kind::Full), (".bias", Kind::Bias)];

impl<'a> Key<'a> {
    pub fn parse(name: &'a str) -> Self {
        let inner = name.strip_prefix(PREFIX).unwrap_or(name);
        let found = ENDINGS.iter().chain(PLAIN).find_map(|(ending, kind)| {
            let path = inner.strip_suffix(ending).filter(|path| !path.is_empty())?;
            Some(Key { path, kind: *kind })
        });
        // Something of LoRA that was not foreseen must not pass for a weight.
        let is_foreign = |key: &Key<'_>| key.path.contains("lora_") && key.kind == Kind::Full;
        found.filter(|key| !is_foreign(key)).unwrap_or(Key { path: inner, kind: Kind::Unknown })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        for (name, path, kind) in [
            ("base_model.model.model.layers.0.q.lora_A.weight", "model.layers.0.q", Kind::A),
            ("base_model.model.h.0.attn.c_attn.lora_B.weight", "h.0.attn.c_attn", Kind::B),
            (
                "model.layers.3.mlp.up_proj.lora_B.default.weight",
                "model.layers.3.mlp.up_proj",
                Kind::B,
            ),
            ("base_model.model.lm_head.weight", "lm_head", Kind::Full),
            ("base_model.model.lm_head.modules_to_save.default.weight", "lm_head", Kind::Full),
            ("base_model.model.lm_head.base_layer.weight", "lm_head", Kind::Full),
            ("base_model.model.lm_head.original_module.weight", "lm_head", Kind::Ignored),
            ("base_model.model.x.lora_magnitude_vector", "x", Kind::Magnitude),
            ("base_model.model.x.lora_embedding_A", "x", Kind::Embedding),
            ("base_model.model.x.lora_B.bias", "x", Kind::Bias),
            ("base_model.model.x.bias", "x", Kind::Bias),
            ("base_model.model.x.lora_C.weight", "x.lora_C.weight", Kind::Unknown),
            ("base_model.model.x.lora_A.other.weight", "x.lora_A.other.weight", Kind::Unknown),
            ("something", "something", Kind::Unknown),
            (".weight", ".weight", Kind::Unknown),
        ] {
            assert_eq!(Key::parse(name), Key { path, kind }, "{name}");
        }
    }
}
