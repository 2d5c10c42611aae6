//! The types that settings have: how a value of a file becomes one, and how a default is written.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Map;
use toml::Value;

/// Longest time that can be set, in seconds.
const SECONDS_MAX: f64 = 1e9;

/// How a text of the command line or the environment becomes a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notation {
    /// It is the value.
    Text,
    /// As in a file; what is not TOML is a text.
    Toml,
    /// As in a file; a flag without a value is a yes.
    Switch,
    /// Texts with commas between them, or as in a file.
    List,
}

/// A type that a setting can have.
pub(crate) trait SettingValue: Sized {
    /// How texts are taken.
    const NOTATION: Notation;

    /// Reads a value; the error says what it must be.
    fn read(value: &Value) -> Result<Self, String>;

    /// As a file has it. An empty text stands for a setting that is left open.
    fn write(&self) -> Value;
}

/// A type with an order, so that a setting can be held to a range.
pub(crate) trait Number: SettingValue {
    /// What ranges are made of.
    type Bound;

    /// Reads a value within a range.
    fn read_within(value: &Value, range: &RangeInclusive<Self::Bound>) -> Result<Self, String>;
}

/// What a list can consist of.
pub(crate) trait ListItem: Sized {
    /// Reads one; the error says what the list must be.
    fn read_item(text: &str) -> Result<Self, String>;

    /// As it is written.
    fn write_item(&self) -> String;

    /// What a list of it is called.
    fn expected() -> String {
        "a list of texts".to_owned()
    }
}

/// Types that files write as serde does.
macro_rules! plain {
    ($($type:ty, $notation:ident, $expected:literal;)+) => {$(
        impl SettingValue for $type {
            const NOTATION: Notation = Notation::$notation;

            fn read(value: &Value) -> Result<Self, String> {
                value.clone().try_into().map_err(|_| $expected.to_owned())
            }

            fn write(&self) -> Value {
                Value::try_from(self).unwrap_or_else(|_| Value::String(String::new()))
            }
        }
    )+};
}

plain! {
    bool, Switch, "true or false";
    String, Text, "a text";
    PathBuf, Text, "a text";
    SocketAddr, Text, "an address such as 127.0.0.1:9090";
    Map<String, serde_json::Value>, Toml, "a table of names and values";
    BTreeMap<String, String>, Toml, "a table of names and texts";
}

macro_rules! whole_number {
    ($($type:ty),+) => {$(
        impl SettingValue for $type {
            const NOTATION: Notation = Notation::Toml;

            fn read(value: &Value) -> Result<Self, String> {
                Self::read_within(value, &(0..=i64::try_from(<$type>::MAX).unwrap_or(i64::MAX)))
            }

            fn write(&self) -> Value {
                Value::Integer(i64::try_from(*self).unwrap_or(i64::MAX))
            }
        }

        impl Number for $type {
            type Bound = i64;

            fn read_within(value: &Value, range: &RangeInclusive<i64>) -> Result<Self, String> {
                let given = value.as_integer().filter(|number| range.contains(number));
                given.and_then(|number| <$type>::try_from(number).ok()).ok_or_else(|| {
                    let (min, max) = (range.start(), range.end());
                    match *max == i64::MAX {
                        true => format!("a whole number, at least {min}"),
                        false => format!("a whole number from {min} to {max}"),
                    }
                })
            }
        }
    )+};
}

whole_number!(u16, u32, u64, usize);

/// A text as a value of TOML, or as it is.
pub(crate) fn toml_or_text(text: &str) -> Value {
    let parsed = toml::from_str::<toml::Table>(&format!("x = {text}"));
    let value = parsed.ok().and_then(|mut table| table.remove("x"));
    value.unwrap_or_else(|| Value::String(text.to_owned()))
}

/// A number within a range, whole or not.
pub(crate) fn number_within(value: &Value, range: &RangeInclusive<f64>) -> Result<f64, String> {
    let number = value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64));
    number
        .filter(|number| range.contains(number))
        .ok_or_else(|| format!("a number from {} to {}", range.start(), range.end()))
}

impl SettingValue for f32 {
    const NOTATION: Notation = Notation::Toml;

    fn read(value: &Value) -> Result<Self, String> {
        Self::read_within(value, &(f64::from(f32::MIN)..=f64::from(f32::MAX)))
    }

    fn write(&self) -> Value {
        Value::Float(f64::from(*self))
    }
}

impl Number for f32 {
    type Bound = f64;

    fn read_within(value: &Value, range: &RangeInclusive<f64>) -> Result<Self, String> {
        number_within(value, range).map(|number| number as f32)
    }
}

/// In seconds.
impl SettingValue for Duration {
    const NOTATION: Notation = Notation::Toml;

    fn read(value: &Value) -> Result<Self, String> {
        Self::read_within(value, &(0.0..=SECONDS_MAX)).map_err(|_| "a number of seconds".to_owned())
    }

    fn write(&self) -> Value {
        match self.subsec_nanos() {
            0 => self.as_secs().write(),
            _ => Value::Float(self.as_secs_f64()),
        }
    }
}

impl Number for Duration {
    type Bound = f64;

    fn read_within(value: &Value, range: &RangeInclusive<f64>) -> Result<Self, String> {
        let seconds = number_within(value, range)?;
        Duration::try_from_secs_f64(seconds).map_err(|_| "a number of seconds".to_owned())
    }
}

/// An empty text leaves it open.
impl<T: SettingValue> SettingValue for Option<T> {
    const NOTATION: Notation = T::NOTATION;

    fn read(value: &Value) -> Result<Self, String> {
        if value.as_str() == Some("") { Ok(None) } else { T::read(value).map(Some) }
    }

    fn write(&self) -> Value {
        self.as_ref().map_or_else(|| Value::String(String::new()), T::write)
    }
}

impl<T: Number> Number for Option<T> {
    type Bound = T::Bound;

    fn read_within(value: &Value, range: &RangeInclusive<T::Bound>) -> Result<Self, String> {
        if value.as_str() == Some("") { Ok(None) } else { T::read_within(value, range).map(Some) }
    }
}

/// One text is a list of one.
impl<T: ListItem> SettingValue for Vec<T> {
    const NOTATION: Notation = Notation::List;

    fn read(value: &Value) -> Result<Self, String> {
        let items = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        items.iter().map(|item| T::read_item(item.as_str().ok_or_else(T::expected)?)).collect()
    }

    fn write(&self) -> Value {
        Value::Array(self.iter().map(|item| Value::String(item.write_item())).collect())
    }
}

impl ListItem for String {
    fn read_item(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }

    fn write_item(&self) -> String {
        self.clone()
    }
}

/// A value that is one of a few, each with its word.
pub(crate) trait Choice: Copy + PartialEq + 'static {
    /// The words, in the order in which messages name them.
    const WORDS: &[(&str, Self)];
}

/// The value that a word stands for.
pub(crate) fn read_word<T: Copy>(words: &[(&str, T)], value: &Value) -> Result<T, String> {
    let known = words.iter().find(|(word, _)| Some(*word) == value.as_str());
    known.map(|(_, choice)| *choice).ok_or_else(|| format!("one of {}", join_words(words)))
}

/// The word that stands for a value.
pub(crate) fn write_word<T: PartialEq>(words: &[(&str, T)], value: &T) -> String {
    words
        .iter()
        .find(|(_, known)| known == value)
        .map_or_else(String::new, |(word, _)| (*word).to_owned())
}

fn join_words<T>(words: &[(&str, T)]) -> String {
    words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ")
}

impl<T: Choice> SettingValue for T {
    const NOTATION: Notation = Notation::Text;

    fn read(value: &Value) -> Result<Self, String> {
        read_word(T::WORDS, value)
    }

    fn write(&self) -> Value {
        Value::String(write_word(T::WORDS, self))
    }
}

impl<T: Choice> ListItem for T {
    fn read_item(text: &str) -> Result<Self, String> {
        let known = T::WORDS.iter().find(|(word, _)| *word == text);
        known.map(|(_, choice)| *choice).ok_or_else(Self::expected)
    }

    fn write_item(&self) -> String {
        write_word(T::WORDS, self)
    }

    fn expected() -> String {
        format!("a list of some of {}", join_words(T::WORDS))
    }
}
