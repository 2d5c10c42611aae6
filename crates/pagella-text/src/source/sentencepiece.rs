//! `tokenizer.model`, the format of SentencePiece, for its unigram and BPE vocabularies.
//! The file has scores instead of merges; BPE merges are recovered from them.

use std::collections::HashMap;

use base64::Engine;
use serde_json::{Value, json};

use super::parts::{AddedToken, ByteRule, ModelParts, NamedIds, Parts, check_id};
use super::protobuf::{Reader, Wire};
use super::stage;
use crate::error::TextError;

/// What SentencePiece writes for a space.
const SPACE: &str = "▁";
/// Longest piece whose merges are searched, in bytes; SentencePiece itself stops at 16 characters.
const PIECE_BYTES_MAX: usize = 4096;

/// The part a piece plays.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

struct Piece {
    text: String,
    score: f32,
    role: Role,
}

/// The trainer and normalizer settings that matter for encoding.
struct Settings {
    is_bpe: bool,
    byte_fallback: bool,
    charsmap: Vec<u8>,
    dummy_prefix: bool,
    collapse_spaces: bool,
    escape_spaces: bool,
    bos: i64,
    eos: i64,
    pad: i64,
}

/// Reads and checks a `tokenizer.model`.
pub(crate) fn parse(file: &str, data: &[u8]) -> Result<Parts, TextError> {
    let (pieces, settings) = read_model(file, data)?;
    check_id(file, "(last)", pieces.len() as u64)?;
    let mut unknown = pieces.iter().enumerate().filter(|(_, p)| p.role == Role::Unknown);
    let Some((unk, _)) = unknown.next() else {
        return Err(TextError::field(file, "pieces", "has no unknown piece"));
    };
    if let Some((_, second)) = unknown.next() {
        // Text reaches the unknown piece; a second one would be a special id that text can reach.
        let problem = format!("has a second unknown piece, {:?}", second.text);
        return Err(TextError::field(file, "pieces", problem));
    }
    if let Some(p) = pieces.iter().find(|p| p.text.len() > PIECE_BYTES_MAX) {
        let problem = format!("has {} bytes, more than {PIECE_BYTES_MAX}", p.text.len());
        return Err(TextError::field(file, "a piece", problem));
    }
    let added = (0u32..)
        .zip(&pieces)
        .filter(|(_, p)| matches!(p.role, Role::Unknown | Role::Control | Role::UserDefined))
        .map(|(id, p)| AddedToken::exact(id, p.text.clone(), p.role != Role::UserDefined))
        .collect();
    let named = |id: i64| {
        u32::try_from(id)
            .ok()
            .filter(|id| pieces.get(*id as usize).is_some_and(|p| p.role == Role::Control))
    };
    Ok(Parts {
        file: file.into(),
        added,
        normalizer: normalizer(file, &settings)?,
        pre_tokenizer: None,
        bytes: ByteRule {
            byte_level: false,
            byte_fallback: settings.byte_fallback,
            replace: vec![(SPACE.into(), " ".into())],
            strip_first_space: settings.dummy_prefix,
        },
        first_prefix: settings.dummy_prefix.then_some(SPACE),
        leading_special: None,
        wants_bos_by_default: true,
        unused: (0u32..)
            .zip(&pieces)
            .filter(|(_, p)| p.role == Role::Unused)
            .map(|(id, _)| id)
            .collect(),
        named: NamedIds {
            bos: named(settings.bos),
            eos: named(settings.eos),
            pad: named(settings.pad),
        },
        model: if settings.is_bpe {
            bpe(pieces, unk, &settings)
        } else {
            unigram(pieces, unk, &settings)
        },
    })
}

/// Pieces that text may turn into; the others keep their ids through the added tokens.
fn usable(role: Role) -> bool {
    matches!(role, Role::Normal | Role::UserDefined)
}

fn unigram(pieces: Vec<Piece>, unk: usize, settings: &Settings) -> ModelParts {
    ModelParts::Unigram {
        pieces: pieces.into_iter().map(|p| (p.text, f64::from(p.score))).collect(),
        unk_id: Some(unk),
        byte_fallback: settings.byte_fallback,
    }
}

/// Every way of cutting a piece into two pieces is a merge, ranked by the score of the whole.
fn bpe(pieces: Vec<Piece>, unk: usize, settings: &Settings) -> ModelParts {
    let ids: HashMap<&str, usize> = pieces
        .iter()
        .enumerate()
        .filter(|(_, p)| usable(p.role))
        .map(|(id, p)| (p.text.as_str(), id))
        .collect();
    let mut merges = Vec::new();
    for piece in pieces.iter().filter(|p| usable(p.role)) {
        for (cut, _) in piece.text.char_indices().skip(1) {
            let (left, right) = piece.text.split_at(cut);
            if let (Some(l), Some(r)) = (ids.get(left), ids.get(right)) {
                merges.push((piece.score, *l, *r));
            }
        }
    }
    merges.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
    let text = |id: usize| pieces[id].text.clone();
    ModelParts::Bpe {
        merges: merges.into_iter().map(|(_, l, r)| (text(l), text(r))).collect(),
        unk: Some(text(unk)),
        pieces: (0u32..).zip(&pieces).map(|(id, p)| (p.text.clone(), id)).collect(),
        continuing_prefix: None,
        word_suffix: None,
        fuse_unk: true,
        byte_fallback: settings.byte_fallback,
        ignore_merges: false,
    }
}

/// Character map, then white space, then the space mark; the dummy prefix is the pipeline's.
fn normalizer(file: &str, settings: &Settings) -> Result<Option<Value>, TextError> {
    let mut stages = Vec::new();
    if !settings.charsmap.is_empty() {
        stage::check_charsmap(file, &settings.charsmap)?;
        let map = base64::engine::general_purpose::STANDARD.encode(&settings.charsmap);
        stages.push(json!({"type": "Precompiled", "precompiled_charsmap": map}));
    }
    if settings.collapse_spaces {
        for (pattern, content) in [("^ +| +$", ""), (" {2,}", " ")] {
            stages.push(json!({
                "type": "Replace", "pattern": {"Regex": pattern}, "content": content
            }));
        }
    }
    if settings.escape_spaces {
        stages.push(json!({"type": "Replace", "pattern": {"String": " "}, "content": SPACE}));
    }
    let normalizer = json!({"type": "Sequence", "normalizers": stages});
    stage::check_stages(file, Some(&normalizer), None)?;
    Ok(Some(normalizer))
}

fn read_model(file: &str, data: &[u8]) -> Result<(Vec<Piece>, Settings), TextError> {
    let mut pieces = Vec::new();
    // Defaults of the format.
    let mut settings = Settings {
        is_bpe: false,
        byte_fallback: false,
        charsmap: Vec::new(),
        dummy_prefix: true,
        collapse_spaces: true,
        escape_spaces: true,
        bos: 1,
        eos: 2,
        pad: -1,
    };
    let mut fields = Reader::new(file, data);
    while let Some((field, value)) = fields.next_field()? {
        match (field, value) {
            (1, Wire::Bytes(m)) => pieces.push(read_piece(file, m)?),
            (2, Wire::Bytes(m)) => read_trainer(file, m, &mut settings)?,
            (3, Wire::Bytes(m)) => read_normalizer(file, m, &mut settings)?,
            _ => {}
        }
    }
    Ok((pieces, settings))
}

fn read_piece(file: &str, data: &[u8]) -> Result<Piece, TextError> {
    let mut piece = Piece { text: String::new(), score: 0.0, role: Role::Normal };
    let mut fields = Reader::new(file, data);
    while let Some((field, value)) = fields.next_field()? {
        match (field, value) {
            (1, Wire::Bytes(b)) => {
                let text = std::str::from_utf8(b);
                piece.text =
                    text.map_err(|_| TextError::field(file, "a piece", "is not UTF-8"))?.into();
            }
            (2, Wire::Fixed32(bits)) => piece.score = f32::from_bits(bits),
            (3, Wire::Varint(role)) => {
                piece.role = match role {
                    1 => Role::Normal,
                    2 => Role::Unknown,
                    3 => Role::Control,
                    4 => Role::UserDefined,
                    5 => Role::Unused,
                    6 => Role::Byte,
                    _ => return Err(TextError::field(file, "a piece", "has an unknown type")),
                }
            }
            _ => {}
        }
    }
    if !piece.score.is_finite() {
        return Err(TextError::field(
            file,
            format!("piece {:?}", piece.text),
            "has no finite score",
        ));
    }
    if piece.text.is_empty() {
        return Err(TextError::field(file, "a piece", "is empty"));
    }
    Ok(piece)
}

fn read_trainer(file: &str, data: &[u8], settings: &mut Settings) -> Result<(), TextError> {
    let mut fields = Reader::new(file, data);
    while let Some((field, value)) = fields.next_field()? {
        match (field, value) {
            (3, Wire::Varint(1)) => settings.is_bpe = false,
            (3, Wire::Varint(2)) => settings.is_bpe = true,
            (3, Wire::Varint(kind)) => {
                return Err(TextError::UnsupportedStage {
                    file: file.into(),
                    part: "a model",
                    kind: if kind == 3 { "WORD".into() } else { "CHAR".into() },
                    supported: "SentencePiece unigram or BPE",
                });
            }
            (35, Wire::Varint(v)) => settings.byte_fallback = v != 0,
            // Negative ids are written as ten-byte varints; -1 means "none".
            (41, Wire::Varint(v)) => settings.bos = v as i64,
            (42, Wire::Varint(v)) => settings.eos = v as i64,
            (43, Wire::Varint(v)) => settings.pad = v as i64,
            _ => {}
        }
    }
    Ok(())
}

fn read_normalizer(file: &str, data: &[u8], settings: &mut Settings) -> Result<(), TextError> {
    let mut fields = Reader::new(file, data);
    while let Some((field, value)) = fields.next_field()? {
        match (field, value) {
            (2, Wire::Bytes(map)) => settings.charsmap = map.to_vec(),
            (3, Wire::Varint(v)) => settings.dummy_prefix = v != 0,
            (4, Wire::Varint(v)) => settings.collapse_spaces = v != 0,
            (5, Wire::Varint(v)) => settings.escape_spaces = v != 0,
            _ => {}
        }
    }
    Ok(())
}
