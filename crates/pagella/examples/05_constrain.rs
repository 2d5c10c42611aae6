//! An answer that is valid JSON: `cargo run --release --example 05_constrain`.

use pagella::Engine;
use serde_json::json;

fn main() -> Result<(), pagella::Error> {
    let engine = Engine::open("demo")?;
    let schema = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 30},
            "kind": {"enum": ["method", "property", "element"]},
            "stable": {"type": "boolean"},
        },
        "required": ["name", "kind", "stable"],
        "additionalProperties": false,
    });
    let answer = engine.complete("Array.prototype.map() as JSON: ").json_schema(schema).greedy();
    println!("{}", answer.max_tokens(80).text()?);
    Ok(())
}
