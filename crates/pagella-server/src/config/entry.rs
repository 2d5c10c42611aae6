//! One row of the table: a key, what it may hold and what it sets.

use toml::Value;

use super::given::Given;
use crate::Settings;

/// What a key may hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// A whole number.
    Int { min: i64, max: i64 },
    /// A number.
    Float { min: f64, max: f64 },
    /// A time, not negative.
    Seconds,
    /// A text.
    Text,
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// `true`, `false` or `"auto"`.
    Toggle,
    /// A list of texts.
    Texts,
    /// A list of some of these texts.
    Names(&'static [&'static str]),
    /// Names and values.
    Table,
    /// Something that is not built: only these values, as TOML, change nothing.
    Neutral(&'static [&'static str]),
    /// Of other programs; whatever it says changes nothing here.
    Inert,
}

/// What a row does with its value.
#[derive(Clone, Copy)]
pub(super) enum Set {
    Plain(fn(&mut Settings, &Given)),
    Checked(fn(&mut Settings, &Given) -> Result<(), String>),
    Nothing,
}

/// One row.
#[derive(Clone, Copy)]
pub struct Entry {
    /// The section it stands in.
    pub section: &'static str,
    /// Its name there.
    pub key: &'static str,
    /// What it is for, in one sentence.
    pub doc: &'static str,
    /// Its default as TOML; empty where it is left open.
    pub default: &'static str,
    /// Takes effect while the server runs.
    pub live: bool,
    /// A further name as a flag.
    pub flag: Option<&'static str>,
    pub(super) kind: Kind,
    pub(super) set: Set,
}

/// A row whose value is set as it is.
pub(super) const fn entry(
    path: (&'static str, &'static str),
    kind: Kind,
    default: &'static str,
    doc: &'static str,
    set: fn(&mut Settings, &Given),
) -> Entry {
    let (section, key) = path;
    Entry { section, key, doc, default, live: false, flag: None, kind, set: Set::Plain(set) }
}

/// A row whose value is looked at once more.
pub(super) const fn checked(
    path: (&'static str, &'static str),
    kind: Kind,
    default: &'static str,
    doc: &'static str,
    set: fn(&mut Settings, &Given) -> Result<(), String>,
) -> Entry {
    let (section, key) = path;
    Entry { section, key, doc, default, live: false, flag: None, kind, set: Set::Checked(set) }
}

/// A row for something that is not built. The first value is the default.
pub(super) const fn unbuilt(
    section: &'static str,
    key: &'static str,
    neutral: &'static [&'static str],
    doc: &'static str,
) -> Entry {
    let kind = Kind::Neutral(neutral);
    Entry { section, key, doc, default: "", live: false, flag: None, kind, set: Set::Nothing }
}

/// A row that is accepted for the sake of old files.
pub(super) const fn inert(section: &'static str, key: &'static str, doc: &'static str) -> Entry {
    let kind = Kind::Inert;
    Entry { section, key, doc, default: "", live: false, flag: None, kind, set: Set::Nothing }
}

impl Entry {
    pub(super) const fn live(mut self) -> Self {
        self.live = true;
        self
    }

    pub(super) const fn flag(mut self, name: &'static str) -> Self {
        self.flag = Some(name);
        self
    }

    /// `section.key`.
    pub fn path(&self) -> String {
        format!("{}.{}", self.section, self.key)
    }

    /// The name of its environment variable, after the prefix.
    pub fn variable(&self) -> String {
        format!("{}_{}", self.section, self.key).to_uppercase()
    }

    /// Whether a flag may be given without a value.
    pub fn is_switch(&self) -> bool {
        matches!(self.kind, Kind::Bool)
    }

    /// Whether it is a list, so that a flag may be repeated.
    pub fn is_list(&self) -> bool {
        matches!(self.kind, Kind::Texts | Kind::Names(_))
    }

    /// Whether it stands for something that works.
    pub fn is_built(&self) -> bool {
        !matches!(self.kind, Kind::Neutral(_) | Kind::Inert)
    }

    /// A value from text, as environment variables and flags have it.
    pub fn parse(&self, text: &str) -> Result<Value, String> {
        let as_toml = || toml::from_str::<toml::Table>(&format!("x = {text}")).ok()?.remove("x");
        let text = text.trim();
        Ok(match self.kind {
            Kind::Text | Kind::OneOf(_) => Value::String(text.to_owned()),
            Kind::Toggle if text == "auto" => Value::String(text.to_owned()),
            Kind::Texts | Kind::Names(_) if text.starts_with('[') => {
                as_toml().ok_or("the list is not closed, or not one of texts")?
            }
            Kind::Texts | Kind::Names(_) => {
                let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
                Value::Array(parts.map(|part| Value::String(part.to_owned())).collect())
            }
            _ => as_toml().unwrap_or_else(|| Value::String(text.to_owned())),
        })
    }

    /// The value if it is of the row's kind. An empty text leaves open what may be left open.
    pub fn read(&self, value: &Value) -> Result<Given, String> {
        let optional = self.default.is_empty();
        if optional && value.as_str() == Some("") {
            return Ok(Given::Unset);
        }
        let number = value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64));
        match self.kind {
            Kind::Bool => value.as_bool().map(Given::Bool).ok_or("true or false".to_owned()),
            Kind::Int { min, max } => match value.as_integer() {
                Some(number) if (min..=max).contains(&number) => Ok(Given::Int(number)),
                _ if max == i64::MAX => Err(format!("a whole number, at least {min}")),
                _ => Err(format!("a whole number from {min} to {max}")),
            },
            Kind::Float { min, max } => match number {
                Some(number) if (min..=max).contains(&number) => Ok(Given::Float(number)),
                _ => Err(format!("a number from {min} to {max}")),
            },
            Kind::Seconds => match number {
                Some(number) if (0.0..=1e9).contains(&number) => Ok(Given::Float(number)),
                _ => Err("a number of seconds".to_owned()),
            },
            Kind::Text => match value.as_str() {
                Some(text) => Ok(Given::Text(text.to_owned())),
                None => Err("a text".to_owned()),
            },
            Kind::OneOf(known) => match value.as_str() {
                Some(text) if known.contains(&text) => Ok(Given::Text(text.to_owned())),
                _ => Err(format!("one of {}", known.join(", "))),
            },
            Kind::Toggle => match (value.as_bool(), value.as_str()) {
                (Some(on), _) => Ok(Given::Bool(on)),
                (_, Some("auto")) => Ok(Given::Unset),
                _ => Err("true, false or \"auto\"".to_owned()),
            },
            Kind::Texts => texts(value, None),
            Kind::Names(known) => texts(value, Some(known)),
            Kind::Table => match serde_json::to_value(value) {
                Ok(serde_json::Value::Object(map)) => Ok(Given::Table(map)),
                _ => Err("a table of names and values".to_owned()),
            },
            Kind::Inert => Ok(Given::Unset),
            Kind::Neutral(neutral) => {
                let same = |text: &&str| self.parse(text).is_ok_and(|known| same(&known, value));
                match neutral.iter().any(&same) {
                    true => Ok(Given::Unset),
                    false => Err(format!("left out: {} is not built", self.path())),
                }
            }
        }
    }

    /// Sets what the row stands for.
    pub(super) fn apply(&self, settings: &mut Settings, given: &Given) -> Result<(), String> {
        match self.set {
            Set::Plain(set) => {
                set(settings, given);
                Ok(())
            }
            Set::Checked(set) => set(settings, given),
            Set::Nothing => Ok(()),
        }
    }
}

/// Whether two values say the same, `1` and `1.0` alike.
fn same(known: &Value, value: &Value) -> bool {
    let number = |value: &Value| value.as_float().or_else(|| value.as_integer().map(|n| n as f64));
    known == value || number(known).is_some_and(|known| Some(known) == number(value))
}

fn texts(value: &Value, known: Option<&[&str]>) -> Result<Given, String> {
    let one = std::slice::from_ref(value);
    let list = value.as_array().map_or(one, Vec::as_slice);
    let texts: Option<Vec<String>> =
        list.iter().map(|text| text.as_str().map(str::to_owned)).collect();
    match (texts, known) {
        (Some(texts), None) => Ok(Given::Texts(texts)),
        (Some(texts), Some(known)) if texts.iter().all(|text| known.contains(&text.as_str())) => {
            Ok(Given::Texts(texts))
        }
        (_, Some(known)) => Err(format!("a list of some of {}", known.join(", "))),
        (None, None) => Err("a list of texts".to_owned()),
    }
}
