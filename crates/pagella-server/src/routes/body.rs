//! Bodies of chat and completions, whole or one piece of a stream. They are written from what they
//! borrow: a stream sends one for every token.

use serde::{Serialize, Serializer};
use serde_json::Value;

/// What an answer, or a piece of one, says.
#[derive(Serialize)]
pub struct Body<'a, C> {
    pub id: &'a str,
    pub object: &'static str,
    /// Seconds since 1970.
    pub created: u64,
    pub model: &'a str,
    pub system_fingerprint: &'a str,
    pub choices: &'a [C],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_progress: Option<Value>,
    #[serde(skip_serializing_if = "Counts::are_absent")]
    pub usage: Counts,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timings: Option<Value>,
}

/// Counts, where they have a place.
#[derive(Default)]
pub enum Counts {
    /// No field.
    #[default]
    Absent,
    /// They come later: null.
    Later,
    /// These.
    Told(Value),
}

impl Counts {
    fn are_absent(&self) -> bool {
        matches!(self, Counts::Absent)
    }
}

impl Serialize for Counts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Counts::Told(counts) => counts.serialize(serializer),
            Counts::Absent | Counts::Later => serializer.serialize_none(),
        }
    }
}
