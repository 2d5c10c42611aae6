//! The document, put together.

use serde_json::{Map, Value, json};

use super::errors;
use super::parameters::{Notes, properties};
use crate::chat::{CONVERSATION, REASONING, TOOLS};
use crate::fields::Param;
use crate::generate::params::{GENERATION, INERT, SAMPLING, SHAPE};
use crate::model::{CONVERSATION as MODEL_CONVERSATION, FOREIGN, OPTIONS};
use crate::route::{Access, AnswerKind, BodyRule, BodySchema, Route};
use crate::router::ROUTES;

/// Tables that several routes share: each is one schema, to which theirs refer.
pub const SHARED: &[(&str, &[Param])] = &[
    ("Conversation", CONVERSATION),
    ("Tools", TOOLS),
    ("Reasoning", REASONING),
    ("Generation", GENERATION),
    ("Sampling", SAMPLING),
    ("Shape", SHAPE),
    ("Inert", INERT),
    ("LoadOptions", OPTIONS),
    ("ForeignOptions", FOREIGN),
    ("ConversationOptions", MODEL_CONVERSATION),
];

/// Groups of routes, in reading order, and what they are for.
pub const TAGS: &[(&str, &str)] = &[
    ("generation", "Text from the model, in the forms that clients of others expect"),
    ("tokens", "Text to token ids and back"),
    ("models", "Which model answers, loading others, fetching them"),
    ("settings", "Templates, presets of sampling, adapters"),
    ("ollama", "The forms of Ollama"),
    ("llamacpp", "The forms of llama.cpp's server, beside those under tokens and models"),
    ("kobold", "The forms of KoboldAI and KoboldCpp, where the operator chose them"),
    ("operation", "What the server is doing"),
    ("page", "The built-in page"),
];

/// Shapes of answers, written by hand.
const SCHEMAS: &str = include_str!("schemas.json");

const ABOUT: &str = "An inference engine's HTTP interface. Fields that a route does not know are \
    named in the header `x-ignored-fields`; with the header `x-strict: 1` they are refused. `null` \
    for an optional field is the same as leaving it out. Other spellings of a field, which mean the \
    same, stand under `x-aliases`. Answers that come piece by piece are documented as \
    `text/event-stream`, the JSON of one event under `x-sse-events`, or as `application/x-ndjson`, the \
    JSON of one line under `x-lines`.";

/// The document for a server whose paths begin with `base`.
pub fn document(base: &str) -> Value {
    let notes = Notes::read();
    let mut schemas: Map<String, Value> =
        serde_json::from_str(SCHEMAS).expect("schemas.json is a JSON object");
    for (name, table) in SHARED {
        let properties = properties(&notes, name, table, &[]);
        schemas.insert((*name).to_owned(), json!({ "type": "object", "properties": properties }));
    }
    let mut paths = Map::new();
    for route in ROUTES {
        if let Some(body) = &route.body {
            schemas.insert(body.name.to_owned(), body_schema(&notes, body));
        }
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.to_ascii_lowercase()] = describe(route);
    }
    let tags = TAGS.iter().map(|(name, about)| json!({ "name": name, "description": about }));
    let server = if base.is_empty() { "/" } else { base };
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Pagella",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": server }],
        "tags": tags.collect::<Vec<_>>(),
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": errors::responses(),
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer" },
                "apiKey": { "type": "apiKey", "in": "header", "name": "x-api-key" },
                "adminKey": { "type": "apiKey", "in": "header", "name": "x-admin-key" },
            },
        },
    })
}

/// The document as text, as it is kept in the repository.
pub fn text() -> String {
    format!("{:#}\n", document(""))
}

fn same(a: &[Param], b: &[Param]) -> bool {
    a.iter().map(|param| param.name).eq(b.iter().map(|param| param.name))
}

/// The schema that a table is part of: a shared one, or that of the body.
pub fn schema_of(body: &BodySchema, table: &[Param]) -> &'static str {
    let shared = SHARED.iter().find(|(_, shared)| same(shared, table));
    shared.map_or(body.name, |(name, _)| name)
}

/// A body: shared tables by reference, its own in place.
fn body_schema(notes: &Notes, body: &BodySchema) -> Value {
    let mut parts = Vec::new();
    let mut own = Map::new();
    for table in body.tables {
        match SHARED.iter().find(|(name, _)| *name == schema_of(body, table)) {
            Some((name, shared)) => {
                parts.push(json!({ "$ref": format!("#/components/schemas/{name}") }));
                let needed = shared.iter().filter(|param| body.required.contains(&param.name));
                own.extend(
                    needed
                        .filter_map(|param| Some((param.name.to_owned(), narrowed(notes, param)?))),
                );
            }
            None => {
                let properties = properties(notes, body.name, table, body.required);
                own.extend(properties.as_object().cloned().unwrap_or_default());
            }
        }
    }
    let mut schema = json!({ "type": "object", "properties": own });
    if !body.required.is_empty() {
        schema["required"] = json!(body.required);
    }
    if !parts.is_empty() {
        schema["allOf"] = Value::Array(parts);
    }
    schema
}

/// A shared field that must be there in this body: not null.
fn narrowed(notes: &Notes, param: &Param) -> Option<Value> {
    let kind = notes.of("", param.name)?.get("type")?;
    Some(json!({ "type": kind }))
}

fn describe(route: &Route) -> Value {
    let mut described = json!({
        "tags": [route.tag],
        "operationId": route.id,
        "summary": route.summary,
    });
    if route.access == Access::Admin {
        described["description"] = "Needs the key of an administrator.".into();
    }
    let parameters = parameters(route);
    if !parameters.is_empty() {
        described["parameters"] = Value::Array(parameters);
    }
    if let Some(body) = &route.body {
        let schema = json!({ "$ref": format!("#/components/schemas/{}", body.name) });
        described["requestBody"] = json!({
            "required": !body.optional,
            "content": { "application/json": { "schema": schema } },
        });
    }
    let mut responses = Map::new();
    let status = if matches!(route.answer, AnswerKind::Upgrade) { "101" } else { "200" };
    responses.insert(status.into(), answer(route));
    responses.extend(errors::of(route));
    described["responses"] = Value::Object(responses);
    described["security"] = match route.access {
        Access::Public => json!([]),
        // Where it listens decides whether a key is asked for.
        Access::Metrics | Access::Docs => json!([{}, { "bearer": [] }, { "adminKey": [] }]),
        _ => json!([{ "bearer": [] }, { "apiKey": [] }, { "adminKey": [] }]),
    };
    if route.body_rule() == BodyRule::Generation {
        described["x-body-limit"] = "generation".into();
    }
    described
}

/// What stands in the path and behind the question mark.
fn parameters(route: &Route) -> Vec<Value> {
    let open = route.path.split('/').filter_map(|segment| {
        let name = segment.strip_prefix('{')?.strip_suffix('}')?;
        Some(json!({
            "name": name, "in": "path", "required": true,
            "schema": { "type": "string", "minLength": 1 },
        }))
    });
    let query = route.query.iter().map(|query| {
        let schema: Value = serde_json::from_str(query.schema).unwrap_or(Value::Bool(true));
        json!({
            "name": query.name, "in": "query", "description": query.about,
            "required": query.required, "schema": schema,
        })
    });
    open.chain(query).collect()
}

fn answer(route: &Route) -> Value {
    let mut content = Map::new();
    match route.answer {
        AnswerKind::Upgrade => return json!({ "description": route.summary }),
        AnswerKind::Json(name) => {
            let schema = json!({ "$ref": format!("#/components/schemas/{name}") });
            content.insert("application/json".into(), json!({ "schema": schema }));
        }
        AnswerKind::Other(kinds) => {
            let text = json!({ "schema": { "type": "string" } });
            content.extend(kinds.iter().map(|kind| ((*kind).to_owned(), text.clone())));
        }
    }
    if let Some(event) = route.events {
        let event = json!({ "$ref": format!("#/components/schemas/{event}") });
        let data = json!({ "type": "string", "contentMediaType": "application/json" });
        let shape = json!({
            "type": "object", "required": ["data"], "properties": { "data": data },
        });
        let events = json!({ "schema": shape, "x-sse-events": event });
        content.insert("text/event-stream".into(), events);
    }
    if let Some(line) = route.lines {
        let line = json!({ "$ref": format!("#/components/schemas/{line}") });
        let lines = json!({ "schema": { "type": "string" }, "x-lines": line });
        content.insert("application/x-ndjson".into(), lines);
    }
    json!({ "description": route.summary, "content": content })
}
