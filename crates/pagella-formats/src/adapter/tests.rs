//! Whole adapters, good and damaged: each damage gives one sentence that names what is wrong.

use std::path::Path;

use super::*;
use crate::dtype::Dtype;
use crate::safetensors::write::{TensorData, write_scratch_file};

const CONFIG: &str = r#"{
    "peft_type": "LORA", "r": 2, "lora_alpha": 6, "target_modules": ["q_proj", "mlp.up_proj"],
    "bias": "none", "lora_dropout": 0.05, "fan_in_fan_out": false, "layers_to_transform": null,
    "init_lora_weights": true, "use_dora": false, "qalora_group_size": 16, "modules_to_save": null
}"#;
const Q: &str = "base_model.model.model.layers.0.self_attn.q_proj";

struct Files {
    config: String,
    tensors: Vec<(String, Vec<usize>, Vec<f32>)>,
}

impl Files {
    /// One pair of rank 2, from 3 inputs to 4 outputs.
    fn new() -> Self {
        Self { config: CONFIG.to_owned(), tensors: Vec::new() }
            .with(&format!("{Q}.lora_A.weight"), &[2, 3])
            .with(&format!("{Q}.lora_B.weight"), &[4, 2])
    }

    fn with(mut self, name: &str, shape: &[usize]) -> Self {
        let values = (0..shape.iter().product::<usize>()).map(|i| i as f32 - 2.0).collect();
        self.tensors.retain(|(other, ..)| other != name);
        self.tensors.push((name.to_owned(), shape.to_vec(), values));
        self
    }

    fn without(mut self, name: &str) -> Self {
        self.tensors.retain(|(other, ..)| other != name);
        self
    }

    fn config(mut self, from: &str, to: &str) -> Self {
        assert!(self.config.contains(from), "{from}");
        self.config = self.config.replace(from, to);
        self
    }

    fn write(&self, dir: &Path) {
        std::fs::write(dir.join("adapter_config.json"), &self.config).unwrap();
        write_tensors(&dir.join("adapter_model.safetensors"), &self.tensors);
    }

    fn open(&self) -> Result<Adapter> {
        let dir = tempfile::tempdir().unwrap();
        self.write(dir.path());
        Adapter::open(dir.path())
    }

    /// The message of what is refused, without the directory.
    fn refusal(&self) -> String {
        self.open().unwrap_err().to_string()
    }
}

fn write_tensors(path: &Path, tensors: &[(String, Vec<usize>, Vec<f32>)]) {
    let bytes: Vec<Vec<u8>> = tensors
        .iter()
        .map(|(.., values)| values.iter().flat_map(|value| value.to_le_bytes()).collect())
        .collect();
    let data = tensors.iter().zip(&bytes).map(|((name, shape, _), data)| TensorData {
        name: name.clone(),
        dtype: Dtype::F32,
        shape: shape.clone(),
        data,
    });
    write_scratch_file(path, &data.collect::<Vec<_>>()).unwrap();
}

/// The scale of the only pair.
fn scale(files: &Files) -> f32 {
    let adapter = files.open().unwrap();
    let module = adapter.modules().next().unwrap().unwrap();
    module.low_rank.unwrap().scale
}

#[test]
fn a_plain_adapter_says_what_it_changes() {
    let files = Files::new().with("base_model.model.lm_head.weight", &[5, 3]);
    let adapter = files.open().unwrap();
    let modules: Vec<_> = adapter.modules().map(|module| module.unwrap()).collect();
    let paths: Vec<&str> = modules.iter().map(|module| module.path).collect();
    assert_eq!(paths, ["lm_head", "model.layers.0.self_attn.q_proj"]);
    assert_eq!(modules[0].full.unwrap().shape, [5, 3]);
    assert!(modules[0].low_rank.is_none() && modules[1].full.is_none());
    let pair = modules[1].low_rank.unwrap();
    assert_eq!((pair.rank, pair.in_features(), pair.out_features()), (2, 3, 4));
    assert_eq!(pair.scale, 3.0);
    assert_eq!(pair.a.to_finite_f32().unwrap(), [-2.0, -1.0, 0.0, 1.0, 2.0, 3.0]);
}

#[test]
fn scales_follow_alpha_rank_and_their_patterns() {
    assert_eq!(
        scale(&Files::new().config("\"bias\"", r#""use_rslora": true, "bias""#)),
        (6.0 / 2f64.sqrt()) as f32
    );
    let patterns = r#""alpha_pattern": {"up_proj": 1, "layers.0.self_attn.q_proj": 10}, "bias""#;
    assert_eq!(scale(&Files::new().config("\"bias\"", patterns)), 5.0);
    let patterns = r#""rank_pattern": {"^model\\.layers\\.[01]\\..*q_proj": 2}, "bias""#;
    assert_eq!(
        scale(&Files::new().config("\"r\": 2", "\"r\": 8").config("\"bias\"", patterns)),
        3.0
    );
}

#[test]
fn targets_are_endings_or_a_pattern_or_everything() {
    for targets in
        ["\"all-linear\"", r#"".*\\.q_proj""#, "null", "\"(?<=x)q\"", "[\"self_attn.q_proj\"]"]
    {
        let files = Files::new().config(r#"["q_proj", "mlp.up_proj"]"#, targets);
        assert!(files.open().is_ok(), "{targets}");
    }
    for targets in ["[\"proj\"]", r#"".*\\.v_proj""#] {
        let refusal = Files::new().config(r#"["q_proj", "mlp.up_proj"]"#, targets).refusal();
        assert!(refusal.contains("does not target"), "{refusal}");
    }
}

#[test]
fn damaged_adapters_are_refused_with_one_sentence() {
    let a = format!("{Q}.lora_A.weight");
    let b = format!("{Q}.lora_B.weight");
    for (files, words) in [
        (Files::new().without(&a), "no other half"),
        (Files::new().without(&b), "no other half"),
        (Files::new().without(&a).without(&b), "changes 0 modules"),
        (Files::new().with(&a, &[3, 3]), "as lora_B has"),
        (Files::new().with(&a, &[3, 3]).with(&b, &[4, 3]), "the rank 2 that"),
        (Files::new().with(&a, &[6]), "a matrix"),
        (Files::new().with(&a, &[2, 0]), "a matrix"),
        (Files::new().with(&format!("{Q}.lora_B.bias"), &[4]), "a bias that is not zero"),
        (Files::new().with(&format!("{Q}.lora_magnitude_vector"), &[4]), "DoRA"),
        (Files::new().with(&format!("{Q}.lora_embedding_A"), &[2, 4]), "an embedding"),
        (Files::new().with(&format!("{Q}.lora_C.weight"), &[2, 4]), "not a tensor of a LoRA"),
        (Files::new().with(&format!("{Q}.lora_A.default.weight"), &[2, 3]), "under two names"),
        (
            Files::new().config("\"lora_alpha\": 6", "\"lora_alpha\": 1e9"),
            "`lora_alpha` is 1000000000",
        ),
        (Files::new().config("\"lora_alpha\": 6", "\"lora_alpha\": 4e6"), "scales model.layers.0"),
        (
            Files::new().config("\"lora_alpha\": 6", "\"lora_alpha\": \"6\""),
            "`lora_alpha` is \"6\"",
        ),
        (Files::new().config("\"r\": 2", "\"r\": 0"), "`r` is 0"),
        (Files::new().config("\"r\": 2", "\"r\": -2"), "`r` is -2"),
        (Files::new().config("\"r\": 2", "\"r\": 1e30"), "`r` is 1e+30"),
        (Files::new().config("\"r\": 2,", ""), "`r` is null"),
        (Files::new().config("\"LORA\"", "\"IA3\""), "`peft_type` is \"IA3\""),
        (Files::new().config("\"peft_type\": \"LORA\",", ""), "no `peft_type`"),
        (Files::new().config("\"use_dora\": false", "\"use_dora\": true"), "DoRA is not supported"),
        (
            Files::new().config("\"init_lora_weights\": true", "\"init_lora_weights\": \"pissa\""),
            "the model's own weights",
        ),
        (
            Files::new().config("\"bias\"", "\"layer_replication\": [[0, 2]], \"bias\""),
            "replicated layers",
        ),
        (Files::new().config("\"bias\"", "\"shiny\": true, \"bias\""), "`shiny` is true"),
        (
            Files::new().config("\"bias\"", "\"rank_pattern\": {\"(?=x)\": 2}, \"bias\""),
            "cannot be read",
        ),
        (
            Files::new().config("\"bias\"", "\"rank_pattern\": {\"x\": 2000}, \"bias\""),
            "`rank_pattern` is 2000",
        ),
        (Files::new().config("\"bias\"", "\"rank_pattern\": [2], \"bias\""), "not a table"),
        (Files::new().config("[\"q_proj\", \"mlp.up_proj\"]", "[1]"), "`target_modules`"),
        (Files::new().config("{", "[{"), "not a JSON object"),
    ] {
        let refusal = files.refusal();
        assert!(refusal.contains(words), "{words}: {refusal}");
        assert!(!refusal.contains('\n'), "{refusal}");
    }
}

#[test]
fn fields_that_are_off_mean_nothing_whatever_they_are_called() {
    let off = r#""a": null, "b": false, "c": [], "d": {}, "e": "", "f": 7, "use_qalora": false,
        "target_parameters": null, "arrow_config": null, "bias""#;
    assert!(Files::new().config("\"bias\"", off).open().is_ok());
}

#[test]
fn biases_of_zeros_are_nothing() {
    let mut files = Files::new().with(&format!("{Q}.base_layer.bias"), &[4]);
    files.tensors.last_mut().unwrap().2.fill(0.0);
    assert_eq!(files.open().unwrap().modules().count(), 1);
}

#[test]
fn values_that_are_not_finite_are_found_when_read() {
    for broken in [f32::NAN, f32::INFINITY] {
        let mut files = Files::new();
        files.tensors[0].2[4] = broken;
        let adapter = files.open().unwrap();
        let pair = adapter.modules().next().unwrap().unwrap().low_rank.unwrap();
        let error = pair.a.to_finite_f32().unwrap_err().to_string();
        assert!(error.contains("element 4") && error.contains("lora_A"), "{error}");
        assert!(pair.b.to_finite_f32().is_ok());
    }
}

#[test]
fn files_are_named_and_stay_in_their_folder() {
    let dir = tempfile::tempdir().unwrap();
    let refusal = |dir: &Path| Adapter::open(dir).unwrap_err().to_string();
    assert!(refusal(dir.path()).contains("no adapter_config.json"));
    let files = Files::new();
    files.write(dir.path());
    std::fs::remove_file(dir.path().join("adapter_model.safetensors")).unwrap();
    assert!(refusal(dir.path()).contains("no adapter_model.safetensors"));
    std::fs::write(dir.path().join("adapter_model.bin"), b"x").unwrap();
    assert!(refusal(dir.path()).contains("safe_serialization=True"));
    let index = dir.path().join("adapter_model.safetensors.index.json");
    let outside = dir.path().parent().unwrap().join("x.safetensors");
    for name in
        ["../x.safetensors", outside.to_str().unwrap(), "a/b.safetensors", "..", "", "x.bin"]
    {
        let map = serde_json::json!({ "weight_map": { "t": name } });
        std::fs::write(&index, map.to_string()).unwrap();
        assert!(refusal(dir.path()).contains("not a safetensors file beside it"), "{name}");
    }
    let parts = ["adapter_model-1.safetensors", "adapter_model-2.safetensors"];
    for (name, tensor) in parts.iter().zip(&files.tensors) {
        write_tensors(&dir.path().join(name), std::slice::from_ref(tensor));
    }
    let map = serde_json::json!({ "weight_map": { "a": parts[0], "b": parts[1] } });
    std::fs::write(&index, map.to_string()).unwrap();
    assert_eq!(Adapter::open(dir.path()).unwrap().modules().count(), 1);
    for broken in ["", "{}", "{\"weight_map\": {}}", "{\"weight_map\": {\"t\": 5}}"] {
        std::fs::write(&index, broken).unwrap();
        assert!(Adapter::open(dir.path()).is_err(), "{broken}");
    }
}

#[test]
fn a_configuration_cut_anywhere_is_refused_and_never_panics() {
    let dir = tempfile::tempdir().unwrap();
    let files = Files::new();
    files.write(dir.path());
    for end in 0..files.config.len() {
        std::fs::write(dir.path().join("adapter_config.json"), &files.config[..end]).unwrap();
        assert!(Adapter::open(dir.path()).is_err());
    }
    let tensors = std::fs::read(dir.path().join("adapter_model.safetensors")).unwrap();
    std::fs::write(dir.path().join("adapter_config.json"), &files.config).unwrap();
    for end in 0..tensors.len() {
        std::fs::write(dir.path().join("adapter_model.safetensors"), &tensors[..end]).unwrap();
        assert!(Adapter::open(dir.path()).is_err(), "cut after {end} bytes");
    }
}
