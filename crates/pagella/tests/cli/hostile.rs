//! Damaged and hostile model directories: exit code 1, one sentence, no panic.

use std::path::Path;

use crate::support::{Said, demo_copy, pagella, text};

/// Damages a copy of the demo model and looks at what `run` says.
fn damaged(damage: impl FnOnce(&Path)) -> Said {
    let dir = demo_copy();
    damage(dir.path());
    let said = pagella(&["run", "Hi", "--max-new-tokens", "2", "-m", text(dir.path())]);
    assert_eq!(said.err.trim_end().lines().count(), 1, "{}", said.err);
    assert_eq!(said.out, "");
    said
}

fn replace(dir: &Path, file: &str, from: &str, to: &str) {
    let path = dir.join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{file} does not contain {from}");
    std::fs::write(path, text.replacen(from, to, 1)).unwrap();
}

#[test]
fn truncated_weights() {
    let said = damaged(|dir| {
        let path = dir.join("output.safetensors");
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
    });
    assert!(said.error(1).contains("output.safetensors"), "{}", said.err);
}

#[test]
fn a_header_that_claims_more_than_there_is() {
    for length in [u64::MAX, 1 << 40, 0] {
        damaged(|dir| {
            let path = dir.join("output.safetensors");
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[..8].copy_from_slice(&length.to_le_bytes());
            std::fs::write(path, bytes).unwrap();
        })
        .error(1);
    }
}

#[test]
fn weights_that_are_something_else() {
    for contents in [&b""[..], b"GGUF\x03\0\0\0", b"PK\x03\x04pickle", &[0xff; 4096]] {
        damaged(|dir| std::fs::write(dir.join("output.safetensors"), contents).unwrap()).error(1);
    }
    damaged(|dir| std::fs::remove_file(dir.join("output.safetensors")).unwrap()).error(1);
}

#[test]
fn configurations_that_cannot_be_meant() {
    for (from, to) in [
        ("\"hidden_size\": 384", "\"hidden_size\": 0"),
        ("\"hidden_size\": 384", "\"hidden_size\": 1e300"),
        ("\"hidden_size\": 384", "\"hidden_size\": -384"),
        ("\"hidden_size\": 384", "\"hidden_size\": 512"),
        ("\"num_hidden_layers\": 8", "\"num_hidden_layers\": 4000000000"),
        ("\"num_hidden_layers\": 8", "\"num_hidden_layers\": 9"),
        ("\"num_key_value_heads\": 2", "\"num_key_value_heads\": 5"),
        ("\"vocab_size\": 4096", "\"vocab_size\": 100"),
        ("\"vocab_size\": 4096", "\"vocab_size\": null"),
        ("\"max_position_embeddings\": 2048", "\"max_position_embeddings\": 99999999999999"),
        ("\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": \"x\""),
        ("LlamaForCausalLM", "NoSuchModelForCausalLM"),
        ("\"exl2\"", "\"vptq\""),
        ("{", "[["),
    ] {
        let dir = demo_copy();
        replace(dir.path(), "config.json", from, to);
        let said = pagella(&["run", "Hi", "--max-new-tokens", "2", "-m", text(dir.path())]);
        let error = said.error(1);
        assert!(error.len() < 600, "{to}: {error}");
    }
}

#[test]
fn a_config_nested_beyond_reason() {
    damaged(|dir| {
        let deep = "[".repeat(100_000);
        std::fs::write(dir.join("config.json"), format!("{{\"a\": {deep}")).unwrap();
    })
    .error(1);
}

#[test]
fn tokenizers_that_do_not_belong() {
    damaged(|dir| std::fs::write(dir.join("tokenizer.json"), "{}").unwrap()).error(1);
    damaged(|dir| std::fs::write(dir.join("tokenizer.json"), [0xff, 0xfe]).unwrap()).error(1);
    damaged(|dir| std::fs::remove_file(dir.join("tokenizer.json")).unwrap()).error(1);
    let said = damaged(|dir| {
        replace(dir, "tokenizer.json", "\"id\": 5", "\"id\": 500000");
        replace(dir, "tokenizer.json", "\"<|pad|>\": 5", "\"<|pad|>\": 500000");
    });
    assert!(said.error(1).contains("500000"), "{}", said.err);
}

#[test]
fn templates_that_never_end_or_do_not_parse() {
    let endless =
        "{% for i in range(999999999) %}{% for j in range(999999999) %}x{% endfor %}{% endfor %}";
    for template in
        [endless, "{% for", "{{ raise_exception('no') }}", "{{ messages[99].content.x.y }}"]
    {
        damaged(|dir| std::fs::write(dir.join("chat_template.jinja"), template).unwrap()).error(1);
    }
}

#[test]
fn a_model_without_a_template_points_to_raw() {
    let dir = demo_copy();
    std::fs::write(dir.path().join("tokenizer_config.json"), "{}").unwrap();
    let model = text(dir.path());
    assert!(pagella(&["run", "Hi", "-m", model]).error(1).contains("--raw"));
    assert!(pagella(&["chat", model]).error(1).contains("no chat template"));
    let raw = pagella(&["run", "Hi", "--raw", "--json", "--max-new-tokens", "1", "-m", model]);
    assert_eq!(raw.json()["new_tokens"], 1);
}

#[test]
fn impossible_recommendations_are_refused() {
    damaged(|dir| {
        std::fs::write(dir.join("generation_config.json"), r#"{"temperature": -3}"#).unwrap();
    })
    .error(1);
}

#[test]
fn a_directory_of_directories() {
    damaged(|dir| {
        std::fs::remove_file(dir.join("output.safetensors")).unwrap();
        std::fs::create_dir(dir.join("output.safetensors")).unwrap();
    })
    .error(1);
}

#[test]
fn an_unknown_architecture_is_refused_unless_taken_for_llama() {
    let dir = demo_copy();
    replace(dir.path(), "config.json", "LlamaForCausalLM", "NovelForCausalLM");
    let args = ["run", "Hi", "--greedy", "--max-new-tokens", "4", "--json", "-m", text(dir.path())];
    let said = pagella(&args);
    assert!(said.error(1).contains("NovelForCausalLM"), "{}", said.err);
    assert!(said.err.contains("--assume-llama"), "{}", said.err);
    let taken = pagella(&[&args[..], &["--assume-llama"]].concat()).json();
    let demo = pagella(&["run", "Hi", "--greedy", "--max-new-tokens", "4", "--json"]).json();
    assert_eq!(taken["token_ids"], demo["token_ids"]);
}
