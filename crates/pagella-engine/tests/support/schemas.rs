//! Random JSON schemas from a seed, and a validator for the keywords they use.
//!
//! Included by tests that let something write JSON under a schema and check what was written. The
//! validator is written from the standard, apart from the code under test.

use serde_json::{Map, Value, json};

/// A small generator of random numbers (splitmix64).
#[derive(Debug, Clone)]
pub struct Rng(pub u64);

impl Rng {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// One of the elements.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

const NAMES: [&str; 8] = ["name", "id", "größe", "a b", "tags", "x", "quote\"d", "value_2"];
const PATTERNS: [&str; 5] = ["^[a-c]+$", "^\\d{2,4}$", "^(yes|no)$", "^x[0-9]y", "^é{1,2}ü?$"];

/// A schema nested at most `depth` deep. Every schema made this way can be satisfied.
pub fn random_schema(rng: &mut Rng, depth: usize) -> Value {
    let leaf = depth == 0;
    match rng.below(if leaf { 7 } else { 11 }) {
        0 => json!({"type": "boolean"}),
        1 => json!({"type": "null"}),
        2 => string_schema(rng),
        3 => integer_schema(rng),
        4 => json!({"type": "number", "minimum": -5, "maximum": 10.5}),
        5 => json!({"enum": ["red", "dark red", 7, -1.5, null, true, ["a", {"b": 1}]]}),
        6 => json!({"const": {"kind": *rng.pick(&NAMES), "n": [1, 2, "€"]}}),
        7 => {
            let options: Vec<Value> =
                (0..2 + rng.below(2)).map(|_| random_schema(rng, depth - 1)).collect();
            json!({"anyOf": options})
        }
        8 => array_schema(rng, depth),
        _ => object_schema(rng, depth),
    }
}

fn string_schema(rng: &mut Rng) -> Value {
    let low = rng.below(4);
    match rng.below(4) {
        0 => json!({"type": "string", "pattern": *rng.pick(&PATTERNS), "description": "a text"}),
        1 => json!({"type": "string", "enum": ["", "one", "two \"quoted\"", "drei\n"]}),
        2 => json!({"type": "string", "minLength": low, "maxLength": low + rng.below(6)}),
        _ => json!({"type": "string", "maxLength": 12}),
    }
}

fn integer_schema(rng: &mut Rng) -> Value {
    let low = rng.below(2000) as i64 - 1000;
    let high = low + rng.below(500) as i64;
    match rng.below(4) {
        0 => json!({"type": "integer", "minimum": low, "maximum": high}),
        1 => json!({"type": "integer", "exclusiveMinimum": low, "maximum": high + 1}),
        2 => json!({"type": ["integer", "null"], "minimum": 0, "maximum": 99}),
        _ => json!({"type": "integer", "minimum": low, "maximum": low + 70, "multipleOf": 7}),
    }
}

fn array_schema(rng: &mut Rng, depth: usize) -> Value {
    let items = random_schema(rng, depth - 1);
    let low = rng.below(3);
    match rng.below(3) {
        0 => json!({"type": "array", "items": items, "minItems": low, "maxItems": low + 2}),
        1 => {
            let first = random_schema(rng, depth - 1);
            json!({"type": "array", "prefixItems": [first], "items": items,
                "minItems": 1, "maxItems": 3})
        }
        _ => json!({"type": "array", "items": items, "maxItems": 2}),
    }
}

fn object_schema(rng: &mut Rng, depth: usize) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for _ in 0..1 + rng.below(4) {
        let name = *rng.pick(&NAMES);
        properties.insert(name.into(), random_schema(rng, depth - 1));
        if rng.below(2) == 0 && !required.contains(&name) {
            required.push(name);
        }
    }
    json!({"type": "object", "properties": properties, "required": required,
        "additionalProperties": false})
}

/// Checks a value against a schema made of the keywords above; `Err` says what is wrong.
pub fn validate(schema: &Value, value: &Value) -> Result<(), String> {
    let bad = |why: &str| Err(format!("{value} does not satisfy {why} of {schema}"));
    let number = |keyword: &str| schema.get(keyword).and_then(Value::as_f64);
    let count = |keyword: &str| schema.get(keyword).and_then(Value::as_u64).map(|n| n as usize);
    if let Some(expected) = schema.get("type") {
        let names = expected.as_array().map_or(std::slice::from_ref(expected), Vec::as_slice);
        if !names.iter().any(|name| has_type(value, name.as_str().unwrap_or(""))) {
            return bad("type");
        }
    }
    if schema.get("const").is_some_and(|expected| expected != value) {
        return bad("const");
    }
    if schema["enum"].as_array().is_some_and(|values| !values.contains(value)) {
        return bad("enum");
    }
    if let Some(options) = schema["anyOf"].as_array()
        && !options.iter().any(|option| validate(option, value).is_ok())
    {
        return bad("anyOf");
    }
    match value {
        Value::Number(_) => {
            let n = value.as_f64().unwrap_or(f64::NAN);
            let fits = number("minimum").is_none_or(|low| n >= low)
                && number("exclusiveMinimum").is_none_or(|low| n > low)
                && number("maximum").is_none_or(|high| n <= high)
                && number("multipleOf").is_none_or(|step| n % step == 0.0);
            if fits { Ok(()) } else { bad("a bound") }
        }
        Value::String(text) => {
            let length = text.chars().count();
            if count("minLength").is_some_and(|low| length < low)
                || count("maxLength").is_some_and(|high| length > high)
            {
                return bad("the length");
            }
            match schema["pattern"].as_str() {
                Some(pattern) if !matches_pattern(pattern, text) => bad("pattern"),
                _ => Ok(()),
            }
        }
        Value::Array(items) => validate_array(schema, items),
        Value::Object(map) => validate_object(schema, map),
        _ => Ok(()),
    }
}

/// JSON schema patterns are those of ECMAScript, where `\d` means ASCII digits only.
fn matches_pattern(pattern: &str, text: &str) -> bool {
    let pattern = pattern.replace("\\d", "[0-9]");
    regex::Regex::new(&pattern).unwrap().is_match(text)
}

fn has_type(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.as_f64().is_some_and(|n| n.fract() == 0.0),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}

fn validate_array(schema: &Value, items: &[Value]) -> Result<(), String> {
    let count = |keyword: &str| schema.get(keyword).and_then(Value::as_u64).map(|n| n as usize);
    if count("minItems").is_some_and(|low| items.len() < low)
        || count("maxItems").is_some_and(|high| items.len() > high)
    {
        return Err(format!("{} items do not suit {schema}", items.len()));
    }
    let prefix = schema["prefixItems"].as_array().map_or(&[][..], Vec::as_slice);
    for (index, item) in items.iter().enumerate() {
        let item_schema = prefix.get(index).or(schema.get("items"));
        if let Some(item_schema) = item_schema {
            validate(item_schema, item)?;
        }
    }
    Ok(())
}

/// Also checks that properties come in the order of the schema, which is promised.
fn validate_object(schema: &Value, map: &Map<String, Value>) -> Result<(), String> {
    for name in schema["required"].as_array().into_iter().flatten() {
        if !map.contains_key(name.as_str().unwrap_or("")) {
            return Err(format!("{name} is missing in {map:?}"));
        }
    }
    let Some(properties) = schema["properties"].as_object() else { return Ok(()) };
    let mut order = properties.keys();
    for (name, value) in map {
        match properties.get(name) {
            Some(property) => {
                validate(property, value)?;
                if !order.any(|known| known == name) {
                    return Err(format!("{name:?} is out of order in {map:?}"));
                }
            }
            None if schema["additionalProperties"] == false => {
                return Err(format!("{name:?} is not a property of {schema}"));
            }
            None => {}
        }
    }
    Ok(())
}
