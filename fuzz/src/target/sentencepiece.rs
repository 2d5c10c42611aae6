//! A SentencePiece `.model`, then encoding and decoding with what it gave.

use pagella_text::Tokenizer;

use crate::round_trip;

pub fn run(data: &[u8]) {
    if let Ok(tokenizer) = Tokenizer::from_sentencepiece_bytes(data) {
        round_trip::check(&tokenizer);
    }
}

/// Kinds of piece, as the format numbers them.
const NORMAL: u8 = 1;
const UNKNOWN: u8 = 2;
const CONTROL: u8 = 3;
const USER_DEFINED: u8 = 4;
const BYTE: u8 = 6;

/// Two small vocabularies, one for each way of segmenting that models use.
pub fn seeds() -> Vec<Vec<u8>> {
    const UNIGRAM: u8 = 1;
    const BPE: u8 = 2;
    vec![model(UNIGRAM), model(BPE), Vec::new()]
}

/// A vocabulary as a protobuf message: pieces (field 1), trainer (2), normalizer (3).
fn model(kind: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut add =
        |text: &str, score: f32, kind: u8| field(&mut bytes, 1, &piece(text, score, kind));
    add("<unk>", 0.0, UNKNOWN);
    add("<s>", 0.0, CONTROL);
    add("</s>", 0.0, CONTROL);
    add("<tool>", 0.0, USER_DEFINED);
    for byte in 0..=255_u8 {
        add(&format!("<0x{byte:02X}>"), 0.0, BYTE);
    }
    for (idx, text) in ["\u{2581}", "a", "b", "\u{2581}a", "ab", "\u{e9}"].iter().enumerate() {
        add(text, -(idx as f32), NORMAL);
    }
    // Trainer: model kind (field 3), byte fallback (35).
    field(&mut bytes, 2, &[3 << 3, kind, 0x98, 0x02, 1]);
    // Normalizer: name (1), dummy prefix (3), no removal of extra spaces (4), escaping (5).
    let normalizer = [b"\x0a\x08identity".as_slice(), &[3 << 3, 1, 4 << 3, 0, 5 << 3, 1]].concat();
    field(&mut bytes, 3, &normalizer);
    bytes
}

/// One piece: text (field 1), score (2), kind (3).
fn piece(text: &str, score: f32, kind: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    field(&mut bytes, 1, text.as_bytes());
    bytes.push((2 << 3) | 5);
    bytes.extend(score.to_le_bytes());
    bytes.extend([3 << 3, kind]);
    bytes
}

/// A field of bytes; all of ours are shorter than 128.
fn field(message: &mut Vec<u8>, number: u8, content: &[u8]) {
    message.extend([(number << 3) | 2, content.len() as u8]);
    message.extend(content);
}
