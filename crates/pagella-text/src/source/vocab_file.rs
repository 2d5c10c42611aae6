//! The `model` section of `tokenizer.json` as written, in one pass without an intermediate tree.
//! Vocabularies have hundreds of thousands of entries; duplicates are kept so they can be reported.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};

/// The `model` object; fields of all model types side by side.
#[derive(Deserialize)]
pub(super) struct ModelFile {
    #[serde(rename = "type")]
    pub kind: Option<String>,
    pub vocab: VocabFile,
    #[serde(default)]
    pub merges: Option<Vec<Merge>>,
    #[serde(default)]
    pub unk_token: Option<String>,
    #[serde(default)]
    pub unk_id: Option<u64>,
    #[serde(default)]
    pub continuing_subword_prefix: Option<String>,
    #[serde(default)]
    pub end_of_word_suffix: Option<String>,
    #[serde(default)]
    pub fuse_unk: Option<bool>,
    #[serde(default)]
    pub byte_fallback: Option<bool>,
    #[serde(default)]
    pub ignore_merges: Option<bool>,
}

/// BPE writes a map from piece to id, Unigram a list of pieces and scores.
pub(super) enum VocabFile {
    Ids(Vec<(String, u64)>),
    Scores(Vec<(String, f64)>),
}

impl<'de> Deserialize<'de> for VocabFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = VocabFile;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map from token to id, or a list of [token, score]")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<VocabFile, A::Error> {
                let mut ids = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    ids.push(entry);
                }
                Ok(VocabFile::Ids(ids))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<VocabFile, A::Error> {
                let mut scores = Vec::new();
                while let Some(entry) = seq.next_element()? {
                    scores.push(entry);
                }
                Ok(VocabFile::Scores(scores))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

/// One merge: `"a b"` in older files, `["a", "b"]` in newer ones.
pub(super) struct Merge(pub String, pub String);

impl<'de> Deserialize<'de> for Merge {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Merge;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a merge such as \"a b\" or [\"a\", \"b\"]")
            }

            fn visit_str<E: serde::de::Error>(self, s: &str) -> Result<Merge, E> {
                match s.split_once(' ') {
                    Some((a, b)) if !b.contains(' ') => Ok(Merge(a.into(), b.into())),
                    _ => Err(E::custom(format!("merge {s:?} must be two tokens and a space"))),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Merge, A::Error> {
                let short = || serde::de::Error::custom("a merge needs two tokens");
                let a = seq.next_element()?.ok_or_else(short)?;
                let b = seq.next_element()?.ok_or_else(short)?;
                if seq.next_element::<String>()?.is_some() {
                    return Err(serde::de::Error::custom("a merge has only two tokens"));
                }
                Ok(Merge(a, b))
            }
        }
        deserializer.deserialize_any(Reader)
    }
}
