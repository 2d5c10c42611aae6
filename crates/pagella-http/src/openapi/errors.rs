//! Errors in the document: one response per status, with the codes that it can carry.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::route::{Access, AnswerKind, Route};
use crate::wire::error::{ApiError, Code, Dialect};

/// Statuses that health gives with its own body.
const HEALTH: &str = "Health";

const DIALECTS: &[Dialect] =
    &[Dialect::OpenAi, Dialect::Tabby, Dialect::Anthropic, Dialect::Ollama];

/// The name of a shared response.
fn name(status: u16, dialect: Dialect) -> String {
    match dialect {
        Dialect::OpenAi => format!("Error{status}"),
        Dialect::Tabby => format!("Error{status}Tabby"),
        Dialect::Anthropic => format!("Error{status}Anthropic"),
        Dialect::Ollama => format!("Error{status}Ollama"),
    }
}

/// The status that a code has in a dialect.
fn status(code: Code, dialect: Dialect) -> u16 {
    ApiError::new(code, "").status(dialect).as_u16()
}

/// One response per status and dialect.
pub fn responses() -> Value {
    let mut responses = Map::new();
    for &dialect in DIALECTS {
        let statuses: BTreeSet<u16> = Code::ALL.iter().map(|code| status(*code, dialect)).collect();
        for status in statuses {
            responses.insert(name(status, dialect), response(status, dialect));
        }
    }
    Value::Object(responses)
}

fn response(of: u16, dialect: Dialect) -> Value {
    let codes = Code::ALL.iter().copied().filter(|code| status(*code, dialect) == of);
    let codes: BTreeSet<&str> = codes.clone().map(Code::name).collect();
    let names = codes.iter().copied().collect::<Vec<_>>().join(", ");
    let errors = Code::ALL.iter().filter(|code| status(**code, dialect) == of);
    let values = errors.map(|code| ApiError::new(*code, "").value(dialect, ""));
    let kinds: BTreeSet<String> =
        values.filter_map(|value| value["error"]["type"].as_str().map(str::to_owned)).collect();
    let mut inner = json!({ "type": { "enum": kinds } });
    if dialect != Dialect::Anthropic {
        inner["code"] = json!({ "enum": codes });
    }
    let narrowed = json!({ "properties": { "error": { "properties": inner } } });
    let schema = match dialect {
        Dialect::OpenAi => "#/components/schemas/Error",
        Dialect::Tabby => "#/components/schemas/ErrorWithDetail",
        Dialect::Anthropic => "#/components/schemas/AnthropicError",
        Dialect::Ollama => "#/components/schemas/OllamaError",
    };
    let reference = json!({ "$ref": schema });
    let schema = match dialect {
        // An error there is a sentence and nothing else.
        Dialect::Ollama => reference,
        _ => json!({ "allOf": [reference, narrowed] }),
    };
    json!({ "description": names, "content": { "application/json": { "schema": schema } } })
}

/// The errors that a route can give, by status.
pub fn of<A>(route: &Route<A>) -> Map<String, Value> {
    // A foreign host name, an address that is too long, a defect.
    let mut statuses = vec![403, 414, 500];
    if route.access != Access::Public {
        statuses.extend([401, 429]);
    }
    if route.body.is_some() {
        statuses.extend([400, 408, 411, 413, 415]);
    }
    if !route.query.is_empty() {
        statuses.push(400);
    }
    if route.path.contains('{') {
        statuses.push(404);
    }
    statuses.extend(route.also);
    if route.dialect == Dialect::Anthropic {
        // What others call unavailable is overloaded there.
        let overloaded = status(Code::QueueFull, Dialect::Anthropic);
        statuses
            .iter_mut()
            .filter(|status| **status == 503)
            .for_each(|status| *status = overloaded);
    }
    statuses.sort_unstable();
    statuses.dedup();
    let reference = |status: u16| {
        let response = match route.answer {
            AnswerKind::Json(HEALTH) if status == 503 => json!({
                "description": "Not now; the body says why",
                "content": { "application/json": {
                    "schema": { "$ref": "#/components/schemas/Health" },
                }},
            }),
            _ => {
                json!({ "$ref": format!("#/components/responses/{}", name(status, route.dialect)) })
            }
        };
        (status.to_string(), response)
    };
    statuses.into_iter().map(reference).collect()
}
