//! As much of a schema as can be enforced, for those who asked for help and not for a guarantee.
//!
//! Every keyword narrows what is allowed, so a schema without some of them allows more, and never
//! something else.

use serde_json::{Map, Value, json};

use super::value::check_value;
use super::{Holds, ROOT_ONLY, escaped, holds, is_neutral, refers, schemas_in, target};
use crate::constraint::ConstraintLimits;

/// The schema without what cannot be enforced, and pointers to that. What only describes is gone too.
pub fn enforceable(schema: &Value, limits: &ConstraintLimits) -> (Value, Vec<String>) {
    let mut dropped = Vec::new();
    let mut walk = Walk { root: schema, limits, dropped: &mut dropped, chooses: false, levels: 0 };
    let mut kept = walk.schema(schema, "");
    if let (true, Value::Object(map)) = (walk.chooses, &mut kept) {
        map.insert("x-guidance".into(), json!({ "coerce_one_of": true }));
    }
    (kept, dropped)
}

struct Walk<'a> {
    root: &'a Value,
    limits: &'a ConstraintLimits,
    dropped: &'a mut Vec<String>,
    /// There is a `oneOf`, whose options may overlap now.
    chooses: bool,
    /// Levels of schemas around this one.
    levels: usize,
}

impl Walk<'_> {
    fn schema(&mut self, schema: &Value, pointer: &str) -> Value {
        let map = match schema {
            Value::Object(map) if self.levels < self.limits.nesting_max => map,
            Value::Bool(_) => return schema.clone(),
            _ => {
                self.dropped.push(pointer.to_owned());
                return Value::Bool(true);
            }
        };
        self.levels += 1;
        let mut kept = Map::new();
        for (keyword, value) in map {
            let here = format!("{pointer}/{}", escaped(keyword));
            let describes = match holds(keyword) {
                // It says what options must have, where they are written out.
                Some(Holds::Note) if keyword == "discriminator" => false,
                Some(Holds::Note) => true,
                Some(Holds::Address) => !refers(schema),
                _ => is_neutral(keyword, value),
            };
            if describes || (pointer.is_empty() && ROOT_ONLY.contains(&keyword.as_str())) {
                continue;
            }
            self.chooses |= keyword == "oneOf";
            match self.keyword(keyword, value, &here) {
                Some(value) => {
                    kept.insert(keyword.clone(), value);
                }
                None => self.dropped.push(here),
            }
        }
        self.levels -= 1;
        Value::Object(kept)
    }

    /// What is left of a keyword's value; `None` if nothing of it can be enforced.
    fn keyword(&mut self, keyword: &str, value: &Value, here: &str) -> Option<Value> {
        match holds(keyword)? {
            Holds::Note if keyword == "discriminator" => Some(value.clone()),
            Holds::Note | Holds::Address => None,
            Holds::Nullable => value.is_boolean().then(|| value.clone()),
            Holds::Value => {
                check_value(here, keyword, value, self.limits).ok()?;
                if keyword == "$ref" {
                    target(self.root, value, here).ok()?;
                }
                Some(value.clone())
            }
            Holds::Named => {
                let mut named = Map::new();
                for (name, schema) in value.as_object()? {
                    let at = format!("{here}/{}", escaped(name));
                    named.insert(name.clone(), self.schema(schema, &at));
                }
                Some(Value::Object(named))
            }
            kind @ (Holds::Schema | Holds::Schemas | Holds::SchemaOrSchemas) => {
                let schemas = schemas_in(kind, here, value).ok()?;
                let kept = schemas.into_iter().map(|(at, schema)| self.schema(schema, &at));
                let mut kept: Vec<Value> = kept.collect();
                if value.is_array() { Some(Value::Array(kept)) } else { kept.pop() }
            }
        }
    }
}
