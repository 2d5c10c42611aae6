//! Bodies of chat and completions, whole or one piece of a stream. They are written from what they
//! borrow: a stream sends one for every token.

use std::time::Instant;

use bytes::Bytes;
use pagella_engine::Record;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::adapters::Signature;
use crate::generate::request::Delivery;
use crate::generate::usage::Usage;
use crate::model::ServedModel;
use crate::wire::sse;

/// What an answer, or a piece of one, says.
#[derive(Serialize)]
pub struct CompletionBody<'a, C> {
    pub id: &'a str,
    pub object: &'static str,
    /// Seconds since 1970.
    pub created: u64,
    pub model: &'a str,
    pub system_fingerprint: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adapter: Option<&'a str>,
    pub choices: &'a [C],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_progress: Option<Value>,
    #[serde(skip_serializing_if = "UsageField::are_absent")]
    pub usage: UsageField,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timings: Option<Value>,
}

impl<'a, C: Serialize> CompletionBody<'a, C> {
    /// One without anything but choices.
    pub fn new(
        (id, created): (&'a str, u64),
        object: &'static str,
        (model, signature): (&'a ServedModel, &'a Signature),
        choices: &'a [C],
    ) -> Self {
        CompletionBody {
            id,
            object,
            created,
            model: &model.parts.id,
            system_fingerprint: &signature.fingerprint,
            adapter: signature.adapter.as_deref(),
            choices,
            prompt_progress: None,
            usage: UsageField::Absent,
            seed: None,
            timings: None,
        }
    }

    /// The end of a stream: a body of counts where they were asked for, and the mark.
    pub fn ends(self, delivery: &Delivery, usage: &Usage) -> Bytes {
        let mut bytes = Vec::new();
        if delivery.include_usage && !delivery.usage_in_choice {
            let timings = delivery.timings.then(|| usage.timings());
            let usage = UsageField::Told(usage.openai());
            sse::write_data(&mut bytes, &CompletionBody { usage, timings, ..self });
        }
        bytes.extend_from_slice(sse::DONE);
        Bytes::from(bytes)
    }
}

/// How far the prompt is.
pub fn progress(record: &Record, begun: Instant) -> Value {
    json!({
        "total": record.max_progress,
        "processed": record.curr_progress,
        "queue_position": record.queue_position,
        "time_ms": begun.elapsed().as_millis() as u64,
    })
}

/// Counts, where they have a place.
#[derive(Default)]
pub enum UsageField {
    /// No field.
    #[default]
    Absent,
    /// They come later: null.
    Later,
    /// These.
    Told(Value),
}

impl UsageField {
    fn are_absent(&self) -> bool {
        matches!(self, UsageField::Absent)
    }
}

impl Serialize for UsageField {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            UsageField::Told(counts) => counts.serialize(serializer),
            UsageField::Absent | UsageField::Later => serializer.serialize_none(),
        }
    }
}
