//! The document says of every route what the route does.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{TAGS, document, page, text};
use crate::route::AnswerKind;
use crate::router::ROUTES;

#[test]
fn every_route_has_a_group_and_a_name_of_its_own() {
    for route in ROUTES {
        assert!(TAGS.iter().any(|(tag, _)| *tag == route.tag), "{}", route.tag);
    }
    let ids: BTreeSet<&str> = ROUTES.iter().map(|route| route.id).collect();
    assert_eq!(ids.len(), ROUTES.len(), "an id occurs twice");
}

#[test]
fn every_field_is_described() {
    let document = document("");
    let schemas = document["components"]["schemas"].as_object().unwrap();
    for route in ROUTES {
        let Some(body) = &route.body else { continue };
        let parts = schemas[body.name]["allOf"].as_array().cloned().unwrap_or_default();
        for part in &parts {
            let name = part["$ref"].as_str().unwrap().rsplit('/').next().unwrap();
            for (field, schema) in schemas[name]["properties"].as_object().unwrap() {
                assert!(schema["description"].is_string(), "{name}.{field}: say what it is");
            }
        }
    }
}

#[test]
fn references_lead_somewhere_and_no_schema_is_left_over() {
    let document = document("");
    let mut referred = BTreeSet::new();
    collect(&document, &mut referred);
    for reference in &referred {
        let found = document.pointer(reference.trim_start_matches('#'));
        assert!(found.is_some(), "{reference}");
    }
    for kind in ["schemas", "responses"] {
        let list = document["components"][kind].as_object().unwrap();
        for name in list.keys() {
            let reference = format!("#/components/{kind}/{name}");
            let used = referred.contains(&reference) || kind == "responses";
            assert!(used, "{reference} is not used");
        }
    }
    for route in ROUTES {
        if let AnswerKind::Json(name) = route.answer {
            assert!(document["components"]["schemas"].get(name).is_some(), "{name}");
        }
    }
}

fn collect(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            found.extend(map.get("$ref").and_then(Value::as_str).map(str::to_owned));
            map.values().for_each(|value| collect(value, found));
        }
        Value::Array(list) => list.iter().for_each(|value| collect(value, found)),
        _ => {}
    }
}

#[test]
fn queries_have_schemas_that_are_json() {
    for query in ROUTES.iter().flat_map(|route| route.query) {
        assert!(serde_json::from_str::<Value>(query.schema).is_ok(), "{}", query.name);
    }
}

#[test]
fn the_document_in_the_repository_is_this_one() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        kept == text(),
        "docs/openapi.json differs: run `cargo run -- export-openapi --output docs/openapi.json`"
    );
}

#[test]
fn the_page_names_every_route_and_nothing_outside() {
    let page = page("/base");
    for route in ROUTES {
        assert!(page.contains(route.path), "{}", route.path);
    }
    for forbidden in ["http:", "https:", "<script", " style=", "<style", "src="] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
}
