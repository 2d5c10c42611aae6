//! Adapters as llama.cpp has them: by number, with the scales of the default set.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use crate::adapters::{self, ADAPTERS_MAX, Which, entries, unknown};
use crate::call::{Call, Reply};
use crate::fields::{Body, Field, Rules, missing, out_of_range};
use crate::routes::model::current;
use crate::wire::error::ApiError;

/// Most entries of a list.
const LISTED_MAX: usize = 256;

/// A list of numbers and scales.
pub struct AdapterScales;

impl Body for AdapterScales {
    fn fields<R: Rules>() -> Vec<Vec<Field>> {
        Vec::new()
    }

    fn schemas(_: &mut SchemaGenerator) -> Vec<Schema> {
        vec![json_schema!({
            "type": "array",
            "maxItems": LISTED_MAX,
            "items": {
                "type": "object",
                "required": ["id", "scale"],
                "properties": {
                    "id": { "type": "integer", "minimum": 0 },
                    "scale": { "type": "number", "minimum": -8, "maximum": 8 },
                },
            },
        })]
    }

    fn from_values(_: Vec<Map<String, Value>>) -> Result<Self, ApiError> {
        Ok(AdapterScales)
    }
}

/// `GET /lora-adapters`: the scale of one that is not of the default set is 0.
pub async fn list(call: Call) -> Result<Reply, ApiError> {
    let model = current(&call)?;
    let list = model.adapters.list();
    let seen = list.iter().filter(|adapter| adapter.is_seen_by(&call.caller.key, &model));
    let one = |adapter: &adapters::LoadedAdapter| {
        let scale = if adapter.load.is_default { adapter.load.scaling_shown() } else { 0.0 };
        json!({ "id": adapter.number, "path": adapter.load.name, "scale": scale })
    };
    Reply::json(&seen.map(one).collect::<Vec<Value>>())
}

/// `POST /lora-adapters`: makes those of a list the default set; what is not listed has the scale 0.
pub async fn set(mut call: Call) -> Result<Reply, ApiError> {
    let list = call.list().await?;
    let model = current(&call)?;
    let listed = entries("body", &Value::Array(list), LISTED_MAX)?.unwrap_or_default();
    let loaded = model.adapters.list();
    let mut scales = Vec::with_capacity(listed.len());
    for entry in &listed {
        let Which::Number(number) = entry.which else {
            return Err(missing(&format!("{}.id", entry.at)));
        };
        if loaded.iter().all(|adapter| adapter.number != number) {
            return Err(unknown(&format!("{}.id", entry.at)));
        }
        let scale = entry.scale.ok_or_else(|| missing(&format!("{}.scale", entry.at)))?;
        scales.push((number, scale));
    }
    if scales.iter().filter(|(_, scale)| *scale != 0.0).count() > ADAPTERS_MAX {
        return Err(out_of_range("body", &format!("a list of at most {ADAPTERS_MAX} that count")));
    }
    call.app.blocking.run(move || adapters::set_default(&model, &scales)).await?;
    Reply::json(&json!({ "success": true }))
}
