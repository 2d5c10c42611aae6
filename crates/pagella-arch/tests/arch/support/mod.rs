//! The reference cases of `testdata/families`, read for tests.

pub mod config;

use std::path::{Path, PathBuf};

use pagella_arch::{ModelSpec, SpecOptions, load_spec};
use serde_json::{Map, Value};

/// A model that transformers has run.
pub struct Case {
    pub name: String,
    pub spec: ModelSpec,
    /// State-dict name → shape.
    pub tensors: Map<String, Value>,
}

/// Every case, in order of name.
pub fn cases() -> Vec<Case> {
    let root = testdata().join("families");
    let entries = std::fs::read_dir(&root).expect("testdata/families exists");
    let mut dirs: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
    dirs.retain(|dir| dir.join("expected.safetensors").exists());
    dirs.sort();
    dirs.into_iter().map(|dir| read_case(&dir)).collect()
}

/// `testdata` of the workspace.
pub fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata")
}

fn read_case(dir: &Path) -> Case {
    let bytes = std::fs::read(dir.join("expected.safetensors")).expect("readable");
    let (length, rest) = bytes.split_at(8);
    let length = u64::from_le_bytes(length.try_into().expect("8 bytes")) as usize;
    let header: Value = serde_json::from_slice(&rest[..length]).expect("a safetensors header");
    let metadata = |key: &str| header["__metadata__"][key].as_str().expect("stated").to_owned();
    let context = metadata("context").parse().expect("a number");
    let options = SpecOptions { context: Some(context), ..SpecOptions::default() };
    Case {
        name: dir.file_name().expect("named").to_string_lossy().into_owned(),
        spec: load_spec(dir, &options).expect("a valid config"),
        tensors: serde_json::from_str(&metadata("tensors")).expect("a map of shapes"),
    }
}
