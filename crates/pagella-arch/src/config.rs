//! A configuration file as answers: "what is the hidden size", not "what does the JSON hold".
//!
//! Rules, for every question: names are tried in order; `a.b` descends into an object; null counts
//! as absent; an integer serves as a float and an integral float as an integer; anything else of
//! the wrong type is an error; numbers must lie in the given range. After all names failed at the
//! top level the same names are tried under `text_config`, so the top level wins.

use std::fmt::Display;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::error::{ArchError, excerpt};

/// Parsed file with its name for errors.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    file: String,
    /// Path of the object within the file, empty for the whole file.
    prefix: String,
    root: Map<String, Value>,
    text: Option<Map<String, Value>>,
}

impl Config {
    /// Parses `bytes`; nesting deeper than the 128 levels of `serde_json` is an error.
    pub fn parse(file: String, bytes: &[u8]) -> Result<Self, ArchError> {
        let value = match serde_json::from_slice(bytes) {
            Ok(value) => value,
            Err(source) => return Err(ArchError::Json { file, source }),
        };
        match value {
            Value::Object(mut root) => {
                let text = match root.remove("text_config") {
                    Some(Value::Object(text)) => Some(text),
                    None | Some(Value::Null) => None,
                    Some(other) => {
                        return Err(wrong_type(file, "text_config", "an object", &other));
                    }
                };
                Ok(Self { file, prefix: String::new(), root, text })
            }
            other => Err(wrong_type(file, "the file", "an object", &other)),
        }
    }

    /// A config that states nothing.
    pub fn empty(file: String) -> Self {
        Self { file, prefix: String::new(), root: Map::new(), text: None }
    }

    /// Takes a whole other file as the value of `name`, with a value for a key that it may lack.
    pub fn adopt(&mut self, name: &str, other: Config, (key, value): (&str, &str)) {
        let mut map = other.root;
        map.entry(key).or_insert_with(|| value.into());
        self.root.insert(name.to_owned(), map.into());
    }

    /// The first of `names` with a value, and that value.
    pub fn find<'a>(&'a self, names: &[&'a str]) -> Option<(&'a str, &'a Value)> {
        let in_map = |map| names.iter().find_map(|name| Some((*name, descend(map, name)?)));
        in_map(&self.root).or_else(|| self.text.as_ref().and_then(in_map))
    }

    /// A value of the text model's own object.
    pub fn in_text<'a>(&'a self, name: &str) -> Option<&'a Value> {
        self.text.as_ref().and_then(|text| descend(text, name))
    }

    /// Whether one of `names` is written as null and none has a value: "off", not "unknown".
    pub fn is_null(&self, names: &[&str]) -> bool {
        let null_in = |map: &Map<String, Value>| names.iter().any(|name| is_null_in(map, name));
        self.find(names).is_none()
            && (null_in(&self.root) || self.text.as_ref().is_some_and(null_in))
    }

    /// An unsigned integer.
    pub fn count(
        &self,
        names: &[&str],
        range: RangeInclusive<u64>,
    ) -> Result<Option<usize>, ArchError> {
        let Some((key, value)) = self.find(names) else {
            return Ok(None);
        };
        let range = range_i64(&range);
        let number = self.integer(key, value, range)?;
        // In range, hence not negative.
        Ok(usize::try_from(number).ok())
    }

    /// An unsigned integer, or a list of equal ones, one per layer.
    pub fn uniform_count(
        &self,
        names: &[&str],
        range: RangeInclusive<u64>,
    ) -> Result<Option<usize>, ArchError> {
        let Some((key, Value::Array(items))) = self.find(names) else {
            return self.count(names, range);
        };
        let Some(first) = items.first().filter(|first| items.iter().all(|item| item == *first))
        else {
            let problem = format!("`{}` differs from layer to layer", self.path(key));
            return Err(self.inconsistent(problem));
        };
        Ok(usize::try_from(self.integer(key, first, range_i64(&range))?).ok())
    }

    /// An unsigned integer that must be there.
    pub fn required_count(
        &self,
        names: &[&str],
        range: RangeInclusive<u64>,
    ) -> Result<usize, ArchError> {
        self.count(names, range)?.ok_or_else(|| self.missing(names))
    }

    /// A float.
    pub fn float(
        &self,
        names: &[&str],
        range: RangeInclusive<f64>,
    ) -> Result<Option<f64>, ArchError> {
        let found = self.find(names);
        found.map(|(key, value)| self.float_value(key, value, range)).transpose()
    }

    /// A float that must be there.
    pub fn required_float(
        &self,
        names: &[&str],
        range: RangeInclusive<f64>,
    ) -> Result<f64, ArchError> {
        self.float(names, range)?.ok_or_else(|| self.missing(names))
    }

    /// A list of floats, each in `range`.
    pub fn floats(
        &self,
        names: &[&str],
        range: RangeInclusive<f64>,
    ) -> Result<Option<Vec<f64>>, ArchError> {
        let Some((key, value)) = self.find(names) else {
            return Ok(None);
        };
        let items = value.as_array().ok_or_else(|| self.wrong(key, "a list of numbers", value))?;
        let read = |item| self.float_value(key, item, range.clone());
        items.iter().map(read).collect::<Result<Vec<_>, _>>().map(Some)
    }

    /// A boolean.
    pub fn flag(&self, names: &[&str]) -> Result<Option<bool>, ArchError> {
        match self.find(names) {
            None => Ok(None),
            Some((_, Value::Bool(flag))) => Ok(Some(*flag)),
            Some((key, other)) => Err(self.wrong(key, "true or false", other)),
        }
    }

    /// A string.
    pub fn text<'a>(&'a self, names: &[&'a str]) -> Result<Option<&'a str>, ArchError> {
        match self.find(names) {
            None => Ok(None),
            Some((_, Value::String(text))) => Ok(Some(text)),
            Some((key, other)) => Err(self.wrong(key, "a string", other)),
        }
    }

    /// A nested object, as a config of its own whose errors name the full path.
    pub fn object(&self, names: &[&str]) -> Result<Option<Config>, ArchError> {
        match self.find(names) {
            None => Ok(None),
            Some((key, Value::Object(map))) => Ok(Some(Config {
                file: self.file.clone(),
                prefix: format!("{}.", self.path(key)),
                root: map.clone(),
                text: None,
            })),
            Some((key, other)) => Err(self.wrong(key, "an object", other)),
        }
    }

    /// An integer value in `range`; `key` is for the error.
    pub fn integer(
        &self,
        key: &str,
        value: &Value,
        range: RangeInclusive<i64>,
    ) -> Result<i64, ArchError> {
        let out_of_range = || self.out_of_range(key, value, &range);
        let number = match value.as_i64() {
            Some(number) => number,
            None => match value.as_f64() {
                None => return Err(self.wrong(key, "an integer", value)),
                // Beyond 2^53 neighbouring integers share a float; no range here reaches that far.
                Some(float) if float.abs() > 9e15 => return Err(out_of_range()),
                Some(float) if float.fract() != 0.0 => {
                    return Err(self.wrong(key, "an integer", value));
                }
                Some(float) => float as i64,
            },
        };
        if range.contains(&number) { Ok(number) } else { Err(out_of_range()) }
    }

    /// The file, for errors built elsewhere.
    pub fn file(&self) -> String {
        self.file.clone()
    }

    /// `key` with the path of this object before it.
    pub fn path(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    /// Whether the object has no keys at all.
    pub fn is_empty(&self) -> bool {
        self.root.is_empty()
    }

    /// The error for a value of the wrong type.
    pub fn wrong(&self, key: &str, expected: &'static str, value: &Value) -> ArchError {
        wrong_type(self.file(), &self.path(key), expected, value)
    }

    /// The error for values that contradict each other.
    pub fn inconsistent(&self, problem: String) -> ArchError {
        ArchError::Inconsistent { file: self.file(), problem }
    }

    /// The error for a required key that is not there.
    pub fn missing(&self, names: &[&str]) -> ArchError {
        let quoted: Vec<_> = names.iter().map(|name| format!("`{}`", self.path(name))).collect();
        ArchError::MissingKey { file: self.file(), keys: quoted.join(" or ") }
    }

    fn float_value(
        &self,
        key: &str,
        value: &Value,
        range: RangeInclusive<f64>,
    ) -> Result<f64, ArchError> {
        match value.as_f64() {
            None => Err(self.wrong(key, "a number", value)),
            Some(number) if range.contains(&number) => Ok(number),
            Some(_) => Err(self.out_of_range(key, value, &range)),
        }
    }

    fn out_of_range<T: Display>(
        &self,
        key: &str,
        value: &Value,
        range: &RangeInclusive<T>,
    ) -> ArchError {
        ArchError::OutOfRange {
            file: self.file(),
            key: self.path(key),
            value: excerpt(value),
            min: range.start().to_string(),
            max: range.end().to_string(),
        }
    }
}

/// The value at a dotted path, unless it is null.
fn descend<'a>(map: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    let found = match path.split_once('.') {
        None => map.get(path),
        Some((head, rest)) => map.get(head)?.as_object().and_then(|inner| descend(inner, rest)),
    };
    found.filter(|value| !value.is_null())
}

/// Whether null is written at a dotted path.
fn is_null_in(map: &Map<String, Value>, path: &str) -> bool {
    match path.split_once('.') {
        None => map.get(path) == Some(&Value::Null),
        Some((head, rest)) => {
            map.get(head).and_then(Value::as_object).is_some_and(|inner| is_null_in(inner, rest))
        }
    }
}

fn range_i64(range: &RangeInclusive<u64>) -> RangeInclusive<i64> {
    let clamp = |bound: u64| i64::try_from(bound).unwrap_or(i64::MAX);
    clamp(*range.start())..=clamp(*range.end())
}

fn wrong_type(file: String, key: &str, expected: &'static str, value: &Value) -> ArchError {
    ArchError::WrongType { file, key: key.to_owned(), expected, found: excerpt(value) }
}
