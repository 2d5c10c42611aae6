//! The document as a page for people: plain HTML, no script.

use std::fmt::Write;

use serde_json::{Map, Value};

/// Longest chain of references that is followed.
const DEPTH_MAX: usize = 4;

/// Text as HTML shows it.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            _ => escaped.push(c),
        }
    }
    escaped
}

/// Text in which backquotes mark code.
fn prose(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let parts = parts.map(|(i, part)| match i % 2 {
        0 => escape(part),
        _ => format!("<code>{}</code>", escape(part)),
    });
    parts.collect()
}

/// The page of a document, which looks as the style of this name in the folder `ui` says.
pub fn page(document: &Value, style: &str) -> String {
    let info = &document["info"];
    let title = escape(text(info, "title"));
    let mut body = String::new();
    let _ = write!(body, "<h1>{title}</h1><p>{}</p>", prose(text(info, "description")));
    let _ = write!(body, "<p>For programs: <a href=\"openapi.json\">openapi.json</a></p>");
    for tag in list(&document["tags"]) {
        let name = text(tag, "name");
        let about = prose(text(tag, "description"));
        let _ = write!(body, "<h2 id=\"{0}\">{0}</h2><p>{about}</p>", escape(name));
        for (path, operations) in object(&document["paths"]) {
            for (method, operation) in object(operations) {
                if list(&operation["tags"]).iter().any(|tag| tag == name) {
                    write_operation(&mut body, document, path, method, operation);
                }
            }
        }
    }
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}: interface</title>\n\
         <link rel=\"stylesheet\" href=\"ui/{style}\">\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )
}

fn write_operation(out: &mut String, document: &Value, path: &str, method: &str, op: &Value) {
    let _ = write!(
        out,
        "<details><summary><b>{}</b> <code>{}</code> <span>{}</span></summary>",
        method.to_uppercase(),
        escape(path),
        prose(text(op, "summary")),
    );
    let public = list(&op["security"]).is_empty();
    let key = if public { "No key needed." } else { "Needs a key." };
    let _ = write!(out, "<p>{key} {}</p>", prose(text(op, "description")));
    for parameter in list(&op["parameters"]) {
        let place = text(parameter, "in");
        let rows = [(text(parameter, "name").to_owned(), merged(parameter, &parameter["schema"]))];
        write_fields(out, place, rows.into_iter());
    }
    let schema = &op["requestBody"]["content"]["application/json"]["schema"];
    let mut fields = Map::new();
    gather(document, schema, 0, &mut fields);
    if !fields.is_empty() {
        write_fields(out, "body", fields.into_iter());
    }
    let statuses = object(&op["responses"]).map(|(status, _)| status.as_str());
    let statuses: Vec<&str> = statuses.collect();
    let _ = write!(out, "<p>Answers: {}</p></details>", escape(&statuses.join(", ")));
}

fn merged(parameter: &Value, schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Some(map) = schema.as_object_mut() {
        map.insert("description".into(), parameter["description"].clone());
    }
    schema
}

/// The properties of a schema and of those it refers to.
fn gather(document: &Value, schema: &Value, depth: usize, fields: &mut Map<String, Value>) {
    if depth > DEPTH_MAX {
        return;
    }
    if let Some(reference) = schema["$ref"].as_str() {
        let target = document.pointer(reference.trim_start_matches('#'));
        return gather(document, target.unwrap_or(&Value::Null), depth + 1, fields);
    }
    for (name, property) in object(&schema["properties"]) {
        // What narrows a shared field has no words of its own.
        if property.get("description").is_some() || !fields.contains_key(name) {
            fields.insert(name.clone(), property.clone());
        }
    }
    for part in list(&schema["allOf"]) {
        gather(document, part, depth + 1, fields);
    }
}

fn write_fields(out: &mut String, place: &str, fields: impl Iterator<Item = (String, Value)>) {
    let _ = write!(
        out,
        "<table><thead><tr><th>{}</th><th>type</th><th></th></tr></thead>",
        escape(place)
    );
    for (name, schema) in fields {
        let aliases: Vec<&str> =
            list(&schema["x-aliases"]).iter().filter_map(Value::as_str).collect();
        let also = match aliases.is_empty() {
            true => String::new(),
            false => format!(" Also <code>{}</code>.", escape(&aliases.join(", "))),
        };
        let _ = write!(
            out,
            "<tr><td><code>{}</code></td><td>{}</td><td>{}{also}</td></tr>",
            escape(&name),
            escape(&shape(&schema)),
            prose(text(&schema, "description")),
        );
    }
    out.push_str("</table>");
}

/// Type and range in a few words.
fn shape(schema: &Value) -> String {
    if let Some(options) = schema["anyOf"].as_array() {
        let shapes = options.iter().map(shape).filter(|shape| shape != "null");
        return shapes.collect::<Vec<_>>().join(" or ");
    }
    let mut words = match &schema["type"] {
        Value::String(kind) => kind.clone(),
        Value::Array(kinds) => {
            let kinds = kinds.iter().filter_map(Value::as_str).filter(|kind| *kind != "null");
            kinds.collect::<Vec<_>>().join(" or ")
        }
        _ => "any".to_owned(),
    };
    if let Some(options) = schema["enum"].as_array() {
        let options = options.iter().filter_map(Value::as_str);
        words = options.collect::<Vec<_>>().join(", ");
    }
    match (&schema["minimum"], &schema["maximum"]) {
        (Value::Null, Value::Null) => {}
        (min, Value::Null) => words.push_str(&format!(" from {min}")),
        (Value::Null, max) => words.push_str(&format!(" up to {max}")),
        (min, max) => words.push_str(&format!(" from {min} to {max}")),
    }
    words
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn object(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nothing_in_the_document_is_markup() {
        assert_eq!(
            prose("a <b> `c & \"d\"` e"),
            "a &lt;b&gt; <code>c &amp; &quot;d&quot;</code> e"
        );
    }

    #[test]
    fn shapes_are_said_in_few_words() {
        let range = json!({ "type": ["integer", "null"], "minimum": 0, "maximum": 20 });
        assert_eq!(shape(&range), "integer from 0 to 20");
        let either = json!({ "anyOf": [{ "type": "string" }, range, { "type": "null" }] });
        assert_eq!(shape(&either), "string or integer from 0 to 20");
        assert_eq!(shape(&json!({ "type": "string", "enum": ["a", "b", null] })), "a, b");
    }
}
