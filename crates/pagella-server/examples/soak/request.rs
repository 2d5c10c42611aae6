//! What clients ask: prompts short and long, some with the same beginning, greedy and drawn.

use serde_json::{Value, json};

/// One request, always the same.
pub struct Ask {
    pub path: &'static str,
    pub body: Value,
}

impl Ask {
    /// The request for a stream.
    pub fn streamed(&self) -> String {
        let mut body = self.body.clone();
        body["stream"] = true.into();
        body.to_string()
    }
}

/// Every request: answers of 32 to 352 tokens. All have seeds, so each has one answer.
pub fn asks() -> Vec<Ask> {
    let topics = ["arrays", "bridges", "the sea", "map()", "loops", "a clock", "types", "rain"];
    let long = "The method returns a new array with the results. ".repeat(12);
    let mut asks = Vec::new();
    for (idx, topic) in topics.iter().enumerate() {
        let tokens = 32 + 48 * (idx % 4);
        let drawn = json!({ "max_tokens": tokens, "seed": idx, "temperature": 0.9 });
        let greedy = json!({ "max_tokens": 2 * tokens, "seed": 0, "temperature": 0 });
        asks.push(chat(&format!("Tell me about {topic}."), &drawn));
        asks.push(chat(&format!("{long}What about {topic}?"), &greedy));
        asks.push(completion(&format!("Once upon a time, {topic}"), &drawn));
        asks.push(completion(&format!("{long}{topic}"), &greedy));
    }
    asks
}

fn with(mut body: Value, options: &Value) -> Value {
    if let (Some(body), Some(options)) = (body.as_object_mut(), options.as_object()) {
        body.extend(options.clone());
    }
    body
}

fn chat(text: &str, options: &Value) -> Ask {
    let body = json!({ "messages": [{ "role": "user", "content": text }] });
    Ask { path: "/v1/chat/completions", body: with(body, options) }
}

fn completion(text: &str, options: &Value) -> Ask {
    Ask { path: "/v1/completions", body: with(json!({ "prompt": text }), options) }
}
