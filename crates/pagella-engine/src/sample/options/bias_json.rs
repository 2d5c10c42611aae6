//! Biases in JSON, of which the infinite ones are strings.

use std::collections::BTreeMap;

use serde::de::Error;
use serde::ser::{SerializeMap, Serializer};
use serde_json::Value;

/// Reads the map.
pub fn read(value: Value) -> serde_json::Result<BTreeMap<u32, f32>> {
    let map: BTreeMap<String, Value> = serde_json::from_value(value)?;
    let number = |value: &Value| match value.as_str() {
        Some("-inf") => Some(f32::NEG_INFINITY),
        Some("inf") => Some(f32::INFINITY),
        _ => value.as_f64().map(|number| number as f32),
    };
    let pair = |(key, value): (String, Value)| {
        let id = key.parse().map_err(|_| Error::custom(format!("{key:?} is not a token id")))?;
        let bias = number(&value).ok_or_else(|| {
            Error::custom(format!("bias {value} is neither a number nor \"inf\" nor \"-inf\""))
        })?;
        Ok((id, bias))
    };
    map.into_iter().map(pair).collect()
}

/// Writes the map.
pub fn serialize<S: Serializer>(map: &BTreeMap<u32, f32>, to: S) -> Result<S::Ok, S::Error> {
    let mut out = to.serialize_map(Some(map.len()))?;
    for (id, bias) in map {
        match *bias {
            f32::INFINITY => out.serialize_entry(&id.to_string(), "inf")?,
            f32::NEG_INFINITY => out.serialize_entry(&id.to_string(), "-inf")?,
            bias => out.serialize_entry(&id.to_string(), &bias)?,
        }
    }
    out.end()
}
