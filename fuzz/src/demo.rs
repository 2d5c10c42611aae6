//! Files of the demo model, from which seeds are cut.

use std::path::PathBuf;

use serde_json::Value;

/// The bytes of a file of the demo model.
pub fn read(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../models/demo").join(name);
    std::fs::read(&path).unwrap_or_else(|err| panic!("cannot read {}: {err}", path.display()))
}

/// A JSON file of the demo model.
pub fn json(name: &str) -> Value {
    serde_json::from_slice(&read(name)).unwrap_or_else(|err| panic!("{name}: {err}"))
}
