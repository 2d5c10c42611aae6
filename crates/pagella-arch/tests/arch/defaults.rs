//! A key that is missing means what it means in transformers, or is refused: every key of every case.

use crate::support::{cases, testdata};
use pagella_arch::{ModelSpec, QuantFacts, SpecOptions, TokenIds, spec_from_json};
use serde_json::{Map, Value};

/// Keys that say nothing about the shape of a model, as in `defaults.py`.
const IGNORED: &[&str] = &[
    "architectures",
    "model_type",
    "torch_dtype",
    "dtype",
    "vision_config",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
];
/// Sizes without which nothing can be said.
const SIZES: &[&str] =
    &["hidden_size", "num_hidden_layers", "n_embd", "n_layer", "d_model", "n_layers"];

/// Keys that the shapes of tensors state as well. What transformers takes for them may fit nothing else
/// in a case.
const SHAPED: &[&str] = &[
    "num_key_value_heads",
    "num_attention_heads",
    "n_head",
    "n_heads",
    "kv_n_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
    "num_experts",
    "num_local_experts",
    "n_routed_experts",
    "moe_num_experts",
];

/// Where all rotary values stand once transformers has read them; these give way to them.
const ROTARY: &[&str] = &[
    "rope_scaling",
    "rope_theta",
    "rope_local_base_freq",
    "partial_rotary_factor",
    "original_max_position_embeddings",
];

/// Where transformers no longer reads what published files state: the base of DBRX is in `attn_config`.
const UNLIKE: &[(&str, &str)] = &[("DbrxForCausalLM", "rope_theta")];

/// The shape of a model, without what a missing key may change besides.
fn shape(config: &Value) -> Result<ModelSpec, String> {
    let spec = spec_from_json(config.to_string().as_bytes(), None, &SpecOptions::default());
    let spec = spec.map_err(|error| error.to_string())?;
    let mut head = spec.head.clone();
    // A head of its own is used in any case, and the embedding where there is none.
    head.linear.bases.truncate(1);
    Ok(ModelSpec {
        head,
        tokens: TokenIds::default(),
        quant: QuantFacts::default(),
        notes: Vec::new(),
        warnings: Vec::new(),
        ..spec
    })
}

fn paths(config: &Map<String, Value>, prefix: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (key, value) in config.iter().filter(|(key, _)| !IGNORED.contains(&key.as_str())) {
        found.push(format!("{prefix}{key}"));
        if let Value::Object(inner) = value {
            found.extend(paths(inner, &format!("{prefix}{key}.")));
        }
    }
    found
}

/// The object that holds the last part of a dotted path, and that part.
fn parent<'a, 'p>(config: &'a mut Value, path: &'p str) -> (&'a mut Map<String, Value>, &'p str) {
    let (outer, key) = path.rsplit_once('.').unwrap_or(("", path));
    let parts = outer.split('.').filter(|part| !part.is_empty());
    let object = parts.fold(config, |object, part| {
        let inner = &mut object[part];
        if inner.is_null() {
            *inner = Value::Object(Map::new());
        }
        inner
    });
    (object.as_object_mut().unwrap(), key)
}

/// The case without a key, with what transformers puts in its place.
fn as_transformers_reads(less: &Value, change: &Map<String, Value>) -> Value {
    let mut config = less.clone();
    for (path, value) in change {
        let (object, key) = parent(&mut config, path);
        if key == "rope_parameters" {
            object.retain(|key, _| !ROTARY.contains(&key.as_str()));
        }
        object.insert(key.to_owned(), value.clone());
    }
    config
}

#[test]
fn a_missing_key_means_what_it_means_in_transformers_or_is_refused() {
    let families = testdata().join("families");
    let known = std::fs::read_to_string(families.join("defaults.json")).unwrap();
    let known: Value = serde_json::from_str(&known).unwrap();
    let (mut wrong, mut compared, mut refused, mut by_shape) = (Vec::new(), 0, 0, 0);
    for case in cases() {
        let config = std::fs::read(families.join(&case.name).join("config.json")).unwrap();
        let config: Value = serde_json::from_slice(&config).unwrap();
        let architecture = config["architectures"][0].as_str().unwrap();
        let own = known[&case.name].as_object();
        let own = own.unwrap_or_else(|| panic!("{}: run defaults.py", case.name));
        for path in paths(config.as_object().unwrap(), "") {
            let mut less = config.clone();
            let (object, key) = parent(&mut less, &path);
            object.remove(key);
            let got = match shape(&less) {
                Ok(got) => got,
                Err(_) => {
                    refused += 1;
                    continue;
                }
            };
            if SIZES.contains(&path.strip_prefix("text_config.").unwrap_or(&path)) {
                wrong.push(format!("{}: {path} is not missed", case.name));
                continue;
            }
            if UNLIKE.contains(&(architecture, key)) {
                continue;
            }
            let change = own.get(&path).or_else(|| known[architecture].get(&path));
            let expected = match change {
                None => config.clone(),
                Some(Value::Object(change)) => as_transformers_reads(&less, change),
                // There is no default: it must have been without effect.
                Some(_) => config.clone(),
            };
            compared += 1;
            match shape(&expected) {
                Ok(expected) if expected == got || difference(&expected, &got).is_empty() => {}
                // Files of one of them are refused as the other: nothing wrong is ever computed.
                Ok(expected) if widths(&expected) != widths(&got) => by_shape += 1,
                Err(_) if SHAPED.contains(&key) => by_shape += 1,
                Ok(expected) => wrong.push(format!(
                    "{}: without {path} ({}): {}",
                    case.name,
                    change.map_or("no change".to_owned(), Value::to_string),
                    difference(&expected, &got)
                )),
                Err(error) => wrong.push(format!("{}: without {path}: {error}", case.name)),
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    println!("{compared} compared, {refused} refused, {by_shape} told apart by shapes");
    assert!(compared > 2000 && by_shape < compared / 4, "{compared} {by_shape}");
}

/// Shapes of all tensors.
fn widths(spec: &ModelSpec) -> Vec<(String, usize, usize)> {
    let linears = spec.linear_specs();
    let linears = linears.map(|(label, l)| (label, l.in_features, l.out_features));
    let norms = spec.norm_specs().map(|(label, norm)| (label, norm.width, 1));
    linears.chain(norms).collect()
}

/// The first lines in which two specs differ. A bias for which the files decide differs from nothing.
fn difference(expected: &ModelSpec, got: &ModelSpec) -> String {
    let (expected, got) = (format!("{expected:#?}"), format!("{got:#?}"));
    let counts = (expected.lines().count(), got.lines().count());
    if counts.0 != counts.1 {
        return format!("{} and {} lines", counts.0, counts.1);
    }
    let lines = expected.lines().zip(got.lines());
    let by_files = |line: &str| line.trim() == "bias: IfPresent,";
    let differing = lines.filter(|(expected, got)| expected != got && !by_files(got)).take(2);
    differing.map(|(expected, got)| format!("{} / {}", expected.trim(), got.trim())).collect()
}
