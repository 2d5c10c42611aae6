//! Values that JSON or other programs write differently from us.

use std::fmt;

use serde::de::{self, Deserializer, Visitor};

/// Reads a whole number that may be negative.
struct Whole;

impl Visitor<'_> for Whole {
    type Value = i64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number")
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<i64, E> {
        Ok(value)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<i64, E> {
        i64::try_from(value).map_err(|_| E::custom("the number is too large"))
    }

    fn visit_unit<E: de::Error>(self) -> Result<i64, E> {
        Ok(-1)
    }
}

/// A count where negative means off, i.e. 0.
pub fn count_or_negative<'de, D: Deserializer<'de>>(from: D) -> Result<usize, D::Error> {
    Ok(usize::try_from(from.deserialize_any(Whole)?).unwrap_or(0))
}

/// A range where negative or null means everything.
pub fn range_or_negative<'de, D: Deserializer<'de>>(from: D) -> Result<Option<usize>, D::Error> {
    Ok(usize::try_from(from.deserialize_any(Whole)?).ok())
}

/// Biases, of which the infinite ones are written as strings.
pub mod bias {
    use std::collections::BTreeMap;

    use serde::ser::{SerializeMap, Serializer};
    use serde::{Deserialize, Deserializer, de};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Value {
        Number(f32),
        Text(String),
    }

    /// Reads the map.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<u32, f32>, D::Error> {
        let map = BTreeMap::<String, Value>::deserialize(from)?;
        let number = |value| match value {
            Value::Number(number) => Ok(number),
            Value::Text(text) if text == "-inf" => Ok(f32::NEG_INFINITY),
            Value::Text(text) if text == "inf" => Ok(f32::INFINITY),
            Value::Text(text) => Err(de::Error::custom(format!(
                "bias {text:?} is neither a number nor \"inf\" nor \"-inf\""
            ))),
        };
        let id = |key: String| {
            key.parse().map_err(|_| de::Error::custom(format!("{key:?} is not a token id")))
        };
        map.into_iter().map(|(key, value)| Ok((id(key)?, number(value)?))).collect()
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
}
