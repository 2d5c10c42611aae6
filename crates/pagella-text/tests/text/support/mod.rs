//! Fixtures shared by the tests of this crate.
#![allow(dead_code)]

use std::path::PathBuf;

use pagella_text::Tokenizer;

/// All tokenizer fixtures, and whether every text can be written and read back exactly.
pub const FIXTURES: &[(&str, bool)] = &[
    ("byte-level", true),
    ("byte-level-nfc", false),
    ("spm-bpe", true),
    ("spm-unigram", true),
    ("spm-unigram-rules", false),
    ("llama-legacy", true),
    // Its rule cannot tell a leading space of the text from the one it adds.
    ("llama-first", false),
    ("unigram-rules", false),
    ("demo", true),
];

/// A path inside `testdata`.
pub fn testdata(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(path)
}

/// The tokenizer of a fixture.
pub fn load(name: &str) -> Tokenizer {
    let dir = match name {
        "demo" => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../models/demo"),
        _ => testdata("tokenizer").join(name),
    };
    Tokenizer::from_dir(&dir).expect(name)
}

/// All fixtures, loaded.
pub fn load_all() -> Vec<(&'static str, Tokenizer)> {
    FIXTURES.iter().map(|(name, _)| (*name, load(name))).collect()
}
