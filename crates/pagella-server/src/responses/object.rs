//! The object that a response is, at any moment of its life.

use serde_json::{Map, Value, json};

use crate::generate::usage::Usage;
use crate::routes::streamed;
use crate::wire::error::ApiError;

/// A response. What the request said stays; status, output and counts change.
#[derive(Clone)]
pub struct Object {
    /// Its id.
    pub id: String,
    value: Map<String, Value>,
}

impl Object {
    /// A response that has not begun.
    pub fn new(request_id: &str, model: &str, echo: Map<String, Value>) -> Self {
        let id = format!("resp_{request_id}");
        let mut value = Map::new();
        for (name, first) in [
            ("id", id.as_str().into()),
            ("object", "response".into()),
            ("created_at", streamed::now().into()),
            ("completed_at", Value::Null),
            ("status", "queued".into()),
            ("model", model.into()),
            ("output", json!([])),
            ("error", Value::Null),
            ("incomplete_details", Value::Null),
            ("usage", Value::Null),
        ] {
            value.insert(name.into(), first);
        }
        value.extend(echo);
        Object { id, value }
    }

    /// Says how tokens are chosen.
    pub fn sampled_with(&mut self, temperature: f32, top_p: f32) {
        self.value.insert("temperature".into(), temperature.into());
        self.value.insert("top_p".into(), top_p.into());
    }

    /// Says which adapters it is computed with.
    pub fn adapted_by(&mut self, adapter: Option<&str>) {
        self.value.extend(adapter.map(|adapter| ("adapter".to_owned(), adapter.into())));
    }

    /// Changes the status.
    pub fn set_status(&mut self, status: &str) {
        self.value.insert("status".into(), status.into());
        if !matches!(status, "queued" | "in_progress") {
            self.value.insert("completed_at".into(), streamed::now().into());
        }
    }

    /// Items that are complete.
    pub fn set_output(&mut self, output: Vec<Value>) {
        self.value.insert("output".into(), Value::Array(output));
    }

    /// Items so far.
    pub fn output(&self) -> &[Value] {
        self.value.get("output").and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// Why it ended early.
    pub fn set_incomplete(&mut self, reason: &str) {
        self.value.insert("incomplete_details".into(), json!({ "reason": reason }));
    }

    /// Why it failed.
    pub fn set_error(&mut self, error: &ApiError) {
        let error = json!({ "code": error.code.name(), "message": error.message });
        self.value.insert("error".into(), error);
    }

    /// Counts.
    pub fn set_usage(&mut self, usage: &Usage) {
        self.value.insert("usage".into(), usage.responses());
    }

    /// The object as it is sent.
    pub fn value(&self) -> Value {
        Value::Object(self.value.clone())
    }
}
