//! What `inspect` finds, and names that would do something to a terminal.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::{demo_copy, pagella, text};

/// What a terminal would obey, and what would turn the direction of reading.
const WILD: &str = "\u{1b}]0;title\u{7}\u{1b}[31m\r\u{9b}2J\u{202e}\u{2066}";

fn change(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut value: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    change(&mut value);
    std::fs::write(path, value.to_string()).unwrap();
}

/// Nothing in `shown` but line breaks is for the terminal and not for people.
fn assert_tame(shown: &str) {
    let wild = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    assert!(!shown.contains(wild), "{shown:?}");
}

#[test]
fn tensors_that_nothing_takes_are_shown_and_refused_unless_told() {
    let dir = demo_copy();
    change(&dir.path().join("config.json"), |config| {
        let layers = config["num_hidden_layers"].as_u64().unwrap();
        config["num_hidden_layers"] = json!(layers - 1);
    });
    let shown = pagella(&["inspect", text(dir.path())]).out;
    assert!(shown.contains("not used") && shown.contains("--ignore-unused-tensors"), "{shown}");
    let found = pagella(&["inspect", text(dir.path()), "--json"]).json();
    assert_eq!(found["unused"][0]["refused"], true, "{found}");
    let run = ["run", "Hi", "-m", text(dir.path()), "--max-new-tokens", "2", "--json"];
    let error = pagella(&run).error(1).to_owned();
    assert!(error.contains("no part of the model takes"), "{error}");
    pagella(&[&run[..], &["--ignore-unused-tensors"]].concat()).json();
}

#[test]
fn a_broken_template_and_bad_settings_are_findings() {
    let dir = demo_copy();
    let found = pagella(&["inspect", text(dir.path()), "--json"]).json();
    assert_eq!(found["chat_template_problem"], Value::Null);
    assert_eq!(found["generation_config_problem"], Value::Null);
    change(&dir.path().join("tokenizer_config.json"), |config| {
        config["chat_template"] = json!("{{ messages[0]['content'] | no_such_filter }}");
    });
    let _ = std::fs::remove_file(dir.path().join("chat_template.jinja"));
    for bad in [r#"{"temperature": -1}"#, r#"{"eos_token_id": "x"}"#, "{"] {
        std::fs::write(dir.path().join("generation_config.json"), bad).unwrap();
        let found = pagella(&["inspect", text(dir.path()), "--json"]).json();
        assert_eq!(found["chat_template"], false, "{found}");
        let template = found["chat_template_problem"].as_str().unwrap();
        assert!(template.contains("no_such_filter"), "{template}");
        let shown = pagella(&["inspect", text(dir.path())]).out;
        assert!(shown.contains("broken:") && shown.contains("generation_config.json"), "{shown}");
    }
}

#[test]
fn an_end_outside_the_vocabulary_and_a_context_beyond_training_are_warnings() {
    let dir = demo_copy();
    change(&dir.path().join("config.json"), |config| config["eos_token_id"] = json!([0, 99_999]));
    let shown = pagella(&["inspect", text(dir.path()), "-l", "9000"]).out;
    assert!(shown.contains("warning: `eos_token_id` 99999"), "{shown}");
    assert!(shown.contains("warning: context 9000"), "{shown}");
    let run = ["run", "Hi", "-m", text(dir.path()), "--max-new-tokens", "2", "-l", "9000"];
    let said = pagella(&run).err;
    assert!(said.contains("warning: context 9000") && said.contains("99999"), "{said}");
}

#[test]
fn an_empty_vocabulary_is_an_error() {
    let dir = demo_copy();
    change(&dir.path().join("tokenizer.json"), |tokenizer| {
        tokenizer["model"]["vocab"] = json!({});
        tokenizer["model"]["merges"] = json!([]);
        tokenizer["added_tokens"] = json!([]);
    });
    let error = pagella(&["run", "Hi", "-m", text(dir.path())]).error(1).to_owned();
    assert!(error.contains("vocabulary") && error.contains("empty"), "{error}");
}

#[test]
fn an_id_that_does_not_exist_is_wrong_usage() {
    let error =
        pagella(&["run", "Hi", "--bias", "99999=2", "--max-new-tokens", "2"]).error(2).to_owned();
    assert!(error.contains("99999") && error.contains("4096"), "{error}");
    pagella(&["run", "Hi", "--bias", "4095=2", "--max-new-tokens", "2", "--json"]).json();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("sampling.json");
    for name in ["allowed_tokens", "banned_tokens"] {
        std::fs::write(&file, json!({ name: [99999] }).to_string()).unwrap();
        let error = pagella(&["run", "Hi", "--sampling", text(&file)]).error(2).to_owned();
        assert!(error.contains("99999") && error.contains(name), "{error}");
    }
}

#[test]
fn names_of_tensors_and_folders_cannot_command_the_terminal() {
    let parent = demo_copy();
    let dir = parent.path().join(format!("m{WILD}"));
    std::fs::create_dir(&dir).unwrap();
    for entry in std::fs::read_dir(parent.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            std::fs::copy(&path, dir.join(path.file_name().unwrap())).unwrap();
        }
    }
    assert_tame(&pagella(&["inspect", text(&dir)]).out);
    assert_tame(&pagella(&["inspect", text(&dir), "--json"]).out);
    // A tensor of the model's own namespace, with such a name.
    let name = format!("model.layers.0.{WILD}.weight");
    let header =
        json!({ name: { "dtype": "F32", "shape": [1], "data_offsets": [0, 4] } }).to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend_from_slice(&[0; 4]);
    std::fs::write(dir.join("more.safetensors"), file).unwrap();
    assert_tame(&pagella(&["inspect", text(&dir)]).out);
    assert_tame(pagella(&["run", "Hi", "-m", text(&dir)]).error(1));
    assert_tame(pagella(&["run", "Hi", "-m", &format!("nothing{WILD}")]).error(1));
    assert_tame(pagella(&["run", "Hi", &format!("--no-such{WILD}")]).error(2));
}

/// An adapter of rank 2 for one linear of the demo model, as PEFT writes it.
fn write_adapter(dir: &Path) {
    let config = json!({
        "peft_type": "LORA", "r": 2, "lora_alpha": 2, "target_modules": ["q_proj"],
        "base_model_name_or_path": "demo", "bias": "none",
    });
    std::fs::write(dir.join("adapter_config.json"), config.to_string()).unwrap();
    let base = "base_model.model.model.layers.0.self_attn.q_proj";
    let half = |shape: [usize; 2], from: usize| json!({ "dtype": "F32", "shape": shape, "data_offsets": [from, from + 3072] });
    let header = json!({
        format!("{base}.lora_A.weight"): half([2, 384], 0),
        format!("{base}.lora_B.weight"): half([384, 2], 3072),
    });
    let mut header = header.to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header);
    file.resize(file.len() + 6144, 0);
    std::fs::write(dir.join("adapter_model.safetensors"), file).unwrap();
}

#[test]
fn a_draft_model_and_adapters_count() {
    let dir = tempfile::tempdir().unwrap();
    write_adapter(dir.path());
    // Of a cache that is long enough to count for more than what the process varies.
    let common = ["inspect", "demo", "--device", "cpu", "--cache-tokens", "1048576", "--json"];
    let found = |args: &[&str]| pagella(&[&common[..], args].concat()).json();
    let peak = |found: &Value| found["predicted"]["peak_bytes"].as_u64().unwrap();
    let alone = found(&[]);
    assert_eq!((&alone["draft"], &alone["adapters"]), (&Value::Null, &json!([])));
    let both = found(&["--lora", text(dir.path()), "--draft", "demo-draft"]);
    assert_eq!(both["adapters"][0]["bytes"], json!(6144));
    assert!(both["draft"]["weights_bytes"].as_u64().unwrap() > 0, "{both}");
    let token = both["draft"]["kv_bytes_per_token"].as_u64().unwrap();
    let more = peak(&both).abs_diff(peak(&alone) + (token << 20));
    assert!(token > 0 && more < (token << 20) / 4, "{} {}", peak(&alone), peak(&both));
    let draft = ["inspect", "demo", "--draft", "demo-draft", "--lora", text(dir.path())];
    let shown = pagella(&draft).out;
    assert!(shown.contains("draft model") && shown.contains("adapter"), "{shown}");
    std::fs::remove_file(dir.path().join("adapter_model.safetensors")).unwrap();
    let error = pagella(&["inspect", "demo", "--lora", text(dir.path())]).error(1).to_owned();
    assert!(error.contains("adapter_model"), "{error}");
}
