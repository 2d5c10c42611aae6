//! Errors in the document: one response per status, with the codes that it can carry.

use serde_json::{Map, Value, json};

use super::operation::{Answer, Operation};
use crate::router::{Access, BodyRule, Route};
use crate::wire::error::{Code, Dialect};

/// Statuses that health gives with its own body.
const HEALTH: &str = "Health";

/// The name of a shared response.
fn name(status: u16, dialect: Dialect) -> String {
    match dialect {
        Dialect::OpenAi => format!("Error{status}"),
        Dialect::Tabby => format!("Error{status}Tabby"),
    }
}

/// Every status that some code has.
fn statuses() -> Vec<u16> {
    let mut statuses: Vec<u16> = Code::ALL.iter().map(|code| code.status().as_u16()).collect();
    statuses.sort_unstable();
    statuses.dedup();
    statuses
}

/// One response per status and dialect.
pub fn responses() -> Value {
    let mut responses = Map::new();
    for status in statuses() {
        for dialect in [Dialect::OpenAi, Dialect::Tabby] {
            responses.insert(name(status, dialect), response(status, dialect));
        }
    }
    Value::Object(responses)
}

fn response(status: u16, dialect: Dialect) -> Value {
    let codes = Code::ALL.iter().filter(|code| code.status().as_u16() == status);
    let names: Vec<&str> = codes.clone().map(|code| code.name()).collect();
    let mut kinds: Vec<&str> = codes.map(|code| code.kind()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let narrowed = json!({ "properties": { "error": { "properties": {
        "code": { "enum": names }, "type": { "enum": kinds },
    }}}});
    let schema = match dialect {
        Dialect::OpenAi => "#/components/schemas/Error",
        Dialect::Tabby => "#/components/schemas/ErrorWithDetail",
    };
    json!({
        "description": names.join(", "),
        "content": { "application/json": { "schema": {
            "allOf": [{ "$ref": schema }, narrowed],
        }}},
    })
}

/// The errors that a route can give, by status.
pub fn of(route: &Route, operation: &Operation) -> Map<String, Value> {
    // A foreign host name, an address that is too long, a defect.
    let mut statuses = vec![403, 414, 500];
    if route.access != Access::Public {
        statuses.extend([401, 429]);
    }
    if route.body != BodyRule::None {
        statuses.extend([400, 408, 411, 413, 415]);
    }
    if !operation.query.is_empty() {
        statuses.push(400);
    }
    if route.path.contains('{') {
        statuses.push(404);
    }
    statuses.extend(operation.also);
    statuses.sort_unstable();
    statuses.dedup();
    let reference = |status: u16| {
        let response = match operation.answer {
            Answer::Json(HEALTH) if status == 503 => json!({
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
