//! Damaged and hostile tokenizer files end in one clear error and never in a panic.
use crate::support::testdata;
use pagella_text::{TextError, Tokenizer};
use proptest::prelude::*;
use serde_json::{Value, json};

fn fixture() -> Value {
    let path = testdata("tokenizer/byte-level/tokenizer.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Loads the fixture with one field replaced.
fn with(pointer: &str, value: Value) -> Result<Tokenizer, TextError> {
    let mut file = fixture();
    *file.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = value;
    Tokenizer::from_json_bytes(file.to_string().as_bytes())
}

#[test]
fn wrong_fields_are_refused_by_name() {
    let cases = [
        ("/model", json!(null), "tokenizer.json"),
        ("/model/type", json!("WordPiece"), "WordPiece"),
        ("/model/type", json!("Unigram"), "model.vocab"),
        ("/model/vocab", json!(5), "tokenizer.json"),
        ("/model/vocab", json!({"a": -1}), "tokenizer.json"),
        ("/model/vocab", json!({"a": 1.5}), "tokenizer.json"),
        ("/model/vocab", json!({"a": 4000000000u32}), "4000000000"),
        ("/model/vocab", json!({"a": 1, "b": 1}), "claim id 1"),
        ("/model/merges", json!(["a"]), "merge"),
        ("/model/merges", json!(["a b c"]), "merge"),
        ("/model/merges", json!([["a", "nowhere"]]), "nowhere"),
        ("/model/merges", json!([["a", "b", "c"]]), "merge"),
        ("/added_tokens", json!([{"id": 1}]), "tokenizer.json"),
        ("/added_tokens", json!([{"id": 1, "content": ""}]), "is empty"),
        ("/added_tokens", json!([{"id": 9, "content": "<x>"}]), "claim id 9"),
        ("/added_tokens", json!([{"id": 9000000, "content": "<x>"}]), "9000000"),
        (
            "/added_tokens",
            json!([{"id": 900, "content": "<x>"}, {"id": 901, "content": "<x>"}]),
            "twice",
        ),
        ("/decoder", json!({"type": "CTC"}), "CTC"),
        (
            "/decoder",
            json!({"type": "Replace", "pattern": {"Regex": "a"}, "content": ""}),
            "decoder",
        ),
        ("/decoder", json!({"type": "Strip", "content": " ", "start": 0, "stop": 5}), "Strip"),
        ("/normalizer", json!({"type": "Nope"}), "Nope"),
        (
            "/normalizer",
            json!({"type": "Replace", "pattern": {"Regex": "("}, "content": "x"}),
            "normalizer",
        ),
        ("/normalizer", json!({"type": "Prepend", "prepend": "x".repeat(1 << 20)}), "multiply"),
        ("/normalizer", json!({"type": "Precompiled", "precompiled_charsmap": "////////"}), "trie"),
        ("/normalizer", json!({"type": "Precompiled", "precompiled_charsmap": "!"}), "base64"),
        ("/pre_tokenizer", json!({"type": "FixedLength", "length": 0}), "FixedLength"),
        (
            "/pre_tokenizer",
            json!({"type": "Sequence", "pretokenizers":
            vec![json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true}); 40]}),
            "multiply",
        ),
        ("/pre_tokenizer", json!({"type": "Split"}), "pre_tokenizer"),
    ];
    for (pointer, value, expected) in cases {
        let error = match with(pointer, value.clone()) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("{pointer} = {value} was accepted"),
        };
        assert!(error.contains(expected), "{pointer}: {error}");
    }
}

#[test]
fn a_duplicate_key_in_the_vocabulary_is_noticed() {
    let file = br#"{"model": {"type": "BPE", "vocab": {"a": 0, "a": 1}, "merges": []}}"#;
    assert!(matches!(Tokenizer::from_json_bytes(file), Err(TextError::DuplicateId { .. })));
}

#[test]
fn specials_inside_the_vocabulary_stay_out_of_reach() {
    // A unigram vocabulary in which the control token is the most probable piece of all.
    let file = json!({
        "added_tokens": [{"id": 1, "content": "<s>", "special": true}],
        "model": {"type": "Unigram", "unk_id": 0, "vocab":
            [["<unk>", 0.0], ["<s>", 0.0], ["<", -9.0], ["s", -9.0], [">", -9.0]]},
    });
    let tokenizer = Tokenizer::from_json_bytes(file.to_string().as_bytes()).unwrap();
    assert_eq!(tokenizer.encode_text("<s>").unwrap(), [2, 3, 4]);
    assert_eq!(tokenizer.encode_special("<s>").unwrap(), [1]);
    // A BPE vocabulary that returns whole words without merging.
    let file = json!({
        "added_tokens": [{"id": 3, "content": "ab", "special": true}],
        "model": {"type": "BPE", "ignore_merges": true,
            "vocab": {"a": 0, "b": 1, "abab": 2, "ab": 3}, "merges": ["a b", "ab ab"]},
    });
    let tokenizer = Tokenizer::from_json_bytes(file.to_string().as_bytes()).unwrap();
    assert_eq!(tokenizer.encode_text("ab").unwrap(), [0, 1]);
    assert_eq!(tokenizer.encode_special("abc").unwrap(), [3]);
}

#[test]
fn a_sentencepiece_file_cut_anywhere_is_an_error_or_a_tokenizer() {
    let data = std::fs::read(testdata("tokenizer/spm-bpe/tokenizer.model")).unwrap();
    for end in (0..data.len()).step_by(7) {
        if let Ok(tokenizer) = Tokenizer::from_sentencepiece_bytes(&data[..end]) {
            let _ = tokenizer.encode_text("The little page é");
        }
    }
    assert!(Tokenizer::from_sentencepiece_bytes(b"not a model").is_err());
    assert!(Tokenizer::from_sentencepiece_bytes(b"").is_err());
}

/// A piece of a SentencePiece file: text, score 0 and the number of its role.
fn piece(text: &str, role: u8) -> Vec<u8> {
    let mut message = vec![0x0A, text.len() as u8];
    message.extend(text.as_bytes());
    message.extend([0x15, 0, 0, 0, 0, 0x18, role]);
    [&[0x0A, message.len() as u8][..], &message].concat()
}

/// Byte fallback would reach the second one from plain text.
#[test]
fn a_second_unknown_piece_is_refused() {
    let one = [piece("<unk>", 2), piece("a", 1), piece("<0x70>", 6)].concat();
    assert!(Tokenizer::from_sentencepiece_bytes(&one).is_ok());
    let two = [piece("<unk>", 2), piece("a", 1), piece("<0x70>", 2)].concat();
    let error = Tokenizer::from_sentencepiece_bytes(&two).unwrap_err().to_string();
    assert!(error.contains("second unknown piece") && error.contains("<0x70>"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn random_bytes_never_panic(data in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Tokenizer::from_json_bytes(&data);
        let _ = Tokenizer::from_sentencepiece_bytes(&data);
    }

    #[test]
    fn damaged_sentencepiece_files_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        for name in ["spm-bpe", "spm-unigram-rules"] {
            let path = testdata("tokenizer").join(name).join("tokenizer.model");
            let mut data = std::fs::read(path).unwrap();
            for (at, byte) in &changes {
                let at = at.index(data.len());
                data[at] = *byte;
            }
            if let Ok(tokenizer) = Tokenizer::from_sentencepiece_bytes(&data) {
                let _ = tokenizer.encode_text("The little page, ﬁ ① é 小");
            }
        }
    }
}
