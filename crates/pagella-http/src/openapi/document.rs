//! The document, put together.

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::errors;
use crate::Application;
use crate::route::{Access, AnswerKind, BodyRule, BodySchema, Route};

/// What is said of all routes together.
pub struct Interface {
    /// Whose it is.
    pub title: &'static str,
    /// What holds for every route.
    pub about: &'static str,
    /// Groups of routes, in reading order, and what they are for.
    pub tags: &'static [(&'static str, &'static str)],
    /// Shapes of answers, and of what is read without a type, written by hand: a JSON object.
    pub schemas: &'static str,
}

/// The document for a server whose paths begin with `base`.
pub fn document<A: Application>(interface: &Interface, base: &str) -> Value {
    let mut schemas: Map<String, Value> =
        serde_json::from_str(interface.schemas).expect("the schemas are a JSON object");
    let settings = SchemaSettings::draft2020_12();
    let settings =
        settings.with(|settings| settings.definitions_path = "/components/schemas".into());
    let mut generator = settings.into_generator();
    let mut paths = Map::new();
    for route in A::routes() {
        if let Some(body) = &route.body {
            schemas.insert(body.name.to_owned(), body_schema(&mut generator, body));
        }
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.to_ascii_lowercase()] = describe(route);
    }
    for (name, mut part) in generator.take_definitions(true) {
        allow_nulls(&mut part);
        let before = schemas.insert(name, part);
        debug_assert!(before.is_none(), "two schemas have the same name");
    }
    let tags =
        interface.tags.iter().map(|(name, about)| json!({ "name": name, "description": about }));
    let server = if base.is_empty() { "/" } else { base };
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": interface.title,
            "version": env!("CARGO_PKG_VERSION"),
            "description": interface.about,
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

/// A body: a list, or an object with its parts by reference.
fn body_schema(generator: &mut SchemaGenerator, body: &BodySchema) -> Value {
    let parts: Vec<Value> = (body.parts)(generator).into_iter().map(Value::from).collect();
    match parts.as_slice() {
        [] => json!({ "type": "object" }),
        [list] if list["type"] == "array" => list.clone(),
        _ => json!({ "type": "object", "allOf": parts }),
    }
}

/// `null` is the same as absent, for what may be absent.
fn allow_nulls(part: &mut Value) {
    let required = part.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let Some(Value::Object(properties)) = part.get_mut("properties") else { return };
    for (name, property) in properties.iter_mut() {
        if required.contains(&json!(name)) {
            continue;
        }
        let Value::Object(property) = property else { continue };
        property.retain(|key, value| key != "default" || !value.is_null());
        let is_null =
            |value: &Value| value.is_null() || *value == "null" || value["type"] == "null";
        if let Some(reference) = property.shift_remove("$ref") {
            property.insert("anyOf".into(), json!([{ "$ref": reference }, { "type": "null" }]));
        } else if let Some(kind) = property.get_mut("type") {
            match kind {
                Value::String(one) => *kind = json!([one, "null"]),
                Value::Array(list) if !list.iter().any(is_null) => list.push("null".into()),
                _ => {}
            }
        }
        for (key, null) in [
            ("enum", Value::Null),
            ("anyOf", json!({ "type": "null" })),
            ("oneOf", json!({ "type": "null" })),
        ] {
            if let Some(Value::Array(list)) = property.get_mut(key)
                && !list.iter().any(is_null)
            {
                list.push(null);
            }
        }
    }
}

fn describe<A>(route: &Route<A>) -> Value {
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
fn parameters<A>(route: &Route<A>) -> Vec<Value> {
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

fn answer<A>(route: &Route<A>) -> Value {
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
