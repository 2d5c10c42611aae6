//! Directories: which files count, who wins, what is refused.

use super::*;
use crate::safetensors::write::{TensorData, write_file};
use crate::unsupported::refuse_unsupported;

/// Writes one F16 vector per name, filled with `byte`.
fn write_shard(dir: &Path, file: &str, names: &[&str], byte: u8) {
    let data = [byte; 8];
    let tensors: Vec<_> = names
        .iter()
        .map(|name| TensorData {
            name: (*name).to_owned(),
            dtype: Dtype::F16,
            shape: vec![4],
            data: &data,
        })
        .collect();
    write_file(&dir.join(file), &tensors).unwrap();
}

fn write_index(dir: &Path, entries: &[(&str, &str)]) {
    let map: serde_json::Map<_, _> =
        entries.iter().map(|(name, file)| ((*name).to_owned(), (*file).into())).collect();
    let index = serde_json::json!({ "metadata": { "total_size": 1 }, "weight_map": map });
    fs::write(dir.join("model.safetensors.index.json"), index.to_string()).unwrap();
}

fn first_byte(checkpoint: &Checkpoint, name: &str) -> u8 {
    checkpoint.require(name).unwrap().data[0]
}

#[test]
fn all_shards_make_one_map() {
    let dir = tempfile::tempdir().unwrap();
    write_shard(dir.path(), "b.safetensors", &["z", "y"], 1);
    write_shard(dir.path(), "a.safetensors", &["x"], 2);
    write_shard(dir.path(), ".hidden.safetensors", &["x", "hidden"], 3);
    fs::write(dir.path().join("config.json"), "{}").unwrap();
    let checkpoint = Checkpoint::open(dir.path(), &[]).unwrap();
    assert_eq!(checkpoint.names().collect::<Vec<_>>(), ["x", "y", "z"]);
    assert_eq!((first_byte(&checkpoint, "x"), first_byte(&checkpoint, "y")), (2, 1));
    assert_eq!(checkpoint.total_bytes(), 24);
    assert_eq!(checkpoint.tensor("x").unwrap().file, dir.path().join("a.safetensors"));
    assert!(checkpoint.contains("z") && !checkpoint.contains("hidden"));
    let error = checkpoint.require("model.norm.weight").unwrap_err().to_string();
    assert!(error.contains("`model.norm.weight`"), "{error}");
    let x = checkpoint.tensor("x").unwrap();
    checkpoint.release(&x);
    assert_eq!(x.data, [2; 8]);
}

#[test]
fn names_are_renamed_while_headers_are_read() {
    let dir = tempfile::tempdir().unwrap();
    write_shard(dir.path(), "a.safetensors", &["h.0.attn.bias", "branch.h.0"], 1);
    let renames = [
        Rename { from: "h.", to: "model.layers.", anchored: true },
        Rename { from: ".attn.", to: ".self_attn.", anchored: false },
    ];
    let checkpoint = Checkpoint::open(dir.path(), &renames).unwrap();
    assert_eq!(
        checkpoint.names().collect::<Vec<_>>(),
        ["branch.h.0", "model.layers.0.self_attn.bias"]
    );
}

#[test]
fn two_names_that_become_one_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    write_shard(dir.path(), "a.safetensors", &["wte.weight", "embed.weight"], 1);
    let renames = [Rename { from: "wte.", to: "embed.", anchored: true }];
    assert_eq!(Checkpoint::open(dir.path(), &renames).unwrap_err().code(), "duplicate_tensor");
}

#[test]
fn a_tensor_in_two_files_is_refused_unless_a_true_index_decides() {
    let dir = tempfile::tempdir().unwrap();
    write_shard(dir.path(), "a.safetensors", &["x", "y"], 1);
    write_shard(dir.path(), "b.safetensors", &["y", "z"], 2);
    let refused = || {
        let error = Checkpoint::open(dir.path(), &[]).unwrap_err();
        assert_eq!(error.code(), "duplicate_tensor");
        let message = error.to_string();
        let named = ["`y`", "a.safetensors", "b.safetensors"].iter().all(|s| message.contains(s));
        assert!(named, "{message}");
    };
    refused();
    write_index(dir.path(), &[("x", "a.safetensors"), ("y", "b.safetensors")]);
    assert_eq!(first_byte(&Checkpoint::open(dir.path(), &[]).unwrap(), "y"), 2);
    write_index(dir.path(), &[("y", "a.safetensors"), ("z", "b.safetensors")]);
    assert_eq!(first_byte(&Checkpoint::open(dir.path(), &[]).unwrap(), "y"), 1);
    // Stale, untrue, silent and broken indexes decide nothing.
    write_index(dir.path(), &[("y", "a.safetensors"), ("w", "model-00001-of-00003.safetensors")]);
    refused();
    write_index(dir.path(), &[("y", "a.safetensors"), ("x", "b.safetensors")]);
    refused();
    write_index(dir.path(), &[("x", "a.safetensors")]);
    refused();
    fs::write(dir.path().join("model.safetensors.index.json"), "{").unwrap();
    refused();
}

#[test]
fn an_index_decides_among_three_files_and_by_stored_names() {
    let dir = tempfile::tempdir().unwrap();
    for (file, byte) in [("a.safetensors", 1), ("b.safetensors", 2), ("c.safetensors", 3)] {
        write_shard(dir.path(), file, &["old.x"], byte);
    }
    let renames = [Rename { from: "old.", to: "new.", anchored: true }];
    for (file, byte) in [("a.safetensors", 1), ("b.safetensors", 2), ("c.safetensors", 3)] {
        write_index(dir.path(), &[("old.x", file)]);
        assert_eq!(first_byte(&Checkpoint::open(dir.path(), &renames).unwrap(), "new.x"), byte);
    }
}

#[test]
fn a_stale_index_does_not_matter_without_duplicates() {
    let dir = tempfile::tempdir().unwrap();
    write_shard(dir.path(), "output.safetensors", &["x"], 1);
    write_index(dir.path(), &[("x", "model-00001-of-00002.safetensors"), ("gone", "nowhere")]);
    assert!(Checkpoint::open(dir.path(), &[]).unwrap().contains("x"));
}

#[test]
fn directories_without_safetensors_say_what_is_there_instead() {
    for (file, code, text) in [
        ("README.md", "no_safetensors", "holds no *.safetensors"),
        ("model.Q4_K_M.gguf", "unsupported_format", "GGUF"),
        ("pytorch_model.bin", "unsupported_format", "pickle"),
        ("consolidated.00.pth", "unsupported_format", "pickle"),
        ("model.pt", "unsupported_format", "pickle"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(file), "").unwrap();
        for error in [
            Checkpoint::open(dir.path(), &[]).unwrap_err(),
            refuse_unsupported(dir.path(), None).unwrap_err(),
        ] {
            assert_eq!(error.code(), code, "{file}");
            assert!(error.to_string().contains(text), "{error}");
        }
    }
}

#[test]
fn paths_that_are_no_model_directory_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(Checkpoint::open(&dir.path().join("missing"), &[]).unwrap_err().code(), "io");
    let file = dir.path().join("a.safetensors");
    write_shard(dir.path(), "a.safetensors", &["x"], 1);
    assert_eq!(Checkpoint::open(&file, &[]).unwrap_err().code(), "not_a_directory");
    fs::create_dir(dir.path().join("b.safetensors")).unwrap();
    let error = Checkpoint::open(dir.path(), &[]).unwrap_err();
    assert!(error.to_string().contains("b.safetensors"), "{error}");
}

#[test]
fn a_configuration_that_announces_another_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    write_shard(dir.path(), "a.safetensors", &["x"], 1);
    let config = serde_json::json!({ "quant_method": "hqq", "bits": 4 });
    let error = refuse_unsupported(dir.path(), Some(&config)).unwrap_err().to_string();
    assert!(error.contains("HQQ") && error.contains("EXL2"), "{error}");
    let config = serde_json::json!({ "quant_method": "gptq", "bits": 4 });
    refuse_unsupported(dir.path(), Some(&config)).unwrap();
}
