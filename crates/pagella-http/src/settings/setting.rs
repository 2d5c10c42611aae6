//! One setting as everything but the server sees it: what it is called, what it may be, what it sets.

use std::fmt;
use std::ops::RangeInclusive;

use toml::Value;

use super::Settings;
use super::value::{Notation, Number, SettingValue, read_word, toml_or_text, write_word};

type Read<T> = Box<dyn Fn(&Value) -> Result<T, String> + Send + Sync>;
type Set = Box<dyn Fn(&mut Settings, &Value) -> Result<(), String> + Send + Sync>;

/// One key.
pub struct Setting {
    /// The section it stands in.
    pub section: &'static str,
    /// Its name there.
    pub key: &'static str,
    /// What it is for, in one sentence without a full stop.
    pub doc: &'static str,
    /// Its default as a text; empty where it is left open.
    pub default: String,
    /// Takes effect while the server runs.
    pub live: bool,
    /// A further name as a flag.
    pub flag: Option<&'static str>,
    /// One of those that people look for first.
    pub common: bool,
    /// Stands for something that works.
    pub built: bool,
    /// A short name of its environment variable.
    short_variable: Option<&'static str>,
    notation: Notation,
    set: Set,
}

impl fmt::Debug for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Setting({})", self.path())
    }
}

impl Setting {
    /// A key for something that is not built: sets nothing, and refuses what `accept` does not like.
    pub(super) fn unbuilt(
        (section, key): (&'static str, &'static str),
        accept: impl Fn(&Value) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Setting {
            section,
            key,
            doc: "",
            default: String::new(),
            live: false,
            flag: None,
            common: false,
            built: false,
            short_variable: None,
            notation: Notation::Toml,
            set: Box::new(move |_, value| accept(value)),
        }
    }

    /// `section.key`.
    pub fn path(&self) -> String {
        format!("{}.{}", self.section, self.key)
    }

    /// Whether this is its environment variable, without the prefix.
    pub fn is_variable(&self, name: &str) -> bool {
        self.short_variable == Some(name)
            || format!("{}_{}", self.section, self.key).to_uppercase() == name
    }

    /// Whether a flag may be given without a value.
    pub fn is_switch(&self) -> bool {
        self.notation == Notation::Switch
    }

    /// Whether it is a list, so that a flag may be repeated.
    pub fn is_list(&self) -> bool {
        self.notation == Notation::List
    }

    /// A value from text, as environment variables and flags have it.
    pub fn parse(&self, text: &str) -> Result<Value, String> {
        let text = text.trim();
        let as_text = |text: &str| Value::String(text.to_owned());
        match self.notation {
            Notation::Text => Ok(as_text(text)),
            Notation::Switch | Notation::Toml => Ok(toml_or_text(text)),
            Notation::List if text.starts_with('[') => match toml_or_text(text) {
                Value::String(_) => Err("the list is not closed, or not one of texts".to_owned()),
                list => Ok(list),
            },
            Notation::List => {
                let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
                Ok(Value::Array(parts.map(as_text).collect()))
            }
        }
    }

    /// The default as a file has it, unless it is left open.
    pub(crate) fn default_value(&self) -> Option<Value> {
        if self.default.is_empty() { None } else { self.parse(&self.default).ok() }
    }

    /// Sets what it stands for; the error says what the value must be.
    pub fn set(&self, settings: &mut Settings, value: &Value) -> Result<(), String> {
        (self.set)(settings, value)
    }

    /// Whether it can have this value; the error says what it must be.
    pub(crate) fn check(&self, value: &Value) -> Result<(), String> {
        self.set(&mut Settings::default(), value)
    }
}

/// A setting while it is declared: its type is known, and options can be added.
pub(crate) struct Row<T: 'static> {
    setting: Setting,
    place: fn(&mut Settings) -> &mut T,
    read: Read<T>,
}

impl<T: SettingValue> Row<T> {
    /// A setting that is read as its type is.
    pub fn new(
        section: &'static str,
        key: &'static str,
        doc: &'static str,
        default: &T,
        place: fn(&mut Settings) -> &mut T,
    ) -> Self {
        let default = match default.write() {
            Value::String(text) => text,
            other => other.to_string(),
        };
        let unbuilt = Setting::unbuilt((section, key), |_| Ok(()));
        let doc = doc.trim_ascii();
        let setting = Setting { doc, default, built: true, notation: T::NOTATION, ..unbuilt };
        Row { setting, place, read: Box::new(T::read) }
    }

    /// Stands in another section of files than its field does in the settings.
    pub fn section(mut self, section: &'static str) -> Self {
        self.setting.section = section;
        self
    }

    /// Its key, where the field has another name.
    pub fn key(mut self, key: &'static str) -> Self {
        self.setting.key = key;
        self
    }

    /// Takes effect while the server runs.
    pub fn live(mut self) -> Self {
        self.setting.live = true;
        self
    }

    /// Has a further name as a flag.
    pub fn flag(mut self, name: &'static str) -> Self {
        self.setting.flag = Some(name);
        self
    }

    /// Has a short name as an environment variable, after the prefix.
    pub fn variable(mut self, name: &'static str) -> Self {
        self.setting.short_variable = Some(name);
        self
    }

    /// Is one of those that people look for first.
    pub fn common(mut self) -> Self {
        self.setting.common = true;
        self
    }

    /// Is read in its own way, not in that of its type.
    pub fn by(self, read: impl Fn(&Value) -> Result<T, String> + Send + Sync + 'static) -> Self {
        Row { read: Box::new(read), ..self }
    }

    /// Is looked at once more after it was read.
    pub fn check(self, check: fn(&T) -> Result<(), String>) -> Self {
        let Row { setting, place, read } = self;
        Row {
            setting,
            place,
            read: Box::new(move |value| read(value).and_then(|read| check(&read).map(|()| read))),
        }
    }

    /// Has a word for every value.
    pub fn words(mut self, words: &'static [(&'static str, T)]) -> Self
    where
        T: Copy + PartialEq + Send + Sync,
    {
        self.setting.notation = Notation::Text;
        self.setting.default = write_word(words, (self.place)(&mut Settings::default()));
        self.by(|value| read_word(words, value))
    }

    /// The setting as others see it.
    pub fn finish(self) -> Setting {
        let Row { setting, place, read } = self;
        let set = move |settings: &mut Settings, value: &Value| {
            *place(settings) = read(value)?;
            Ok(())
        };
        Setting { set: Box::new(set), ..setting }
    }
}

impl<T: Number<Bound: Send + Sync + 'static>> Row<T> {
    /// Lies within a range.
    pub fn within(self, range: RangeInclusive<T::Bound>) -> Self {
        self.by(move |value| T::read_within(value, &range))
    }
}

impl<T: Number<Bound = i64>> Row<T> {
    /// Is a number of at least this.
    pub fn at_least(self, min: i64) -> Self {
        self.within(min..=i64::MAX)
    }
}

impl Row<String> {
    /// Is one of these texts.
    pub fn one_of(self, known: &'static [&'static str]) -> Self {
        self.by(|value| match value.as_str() {
            Some(text) if known.contains(&text) => Ok(text.to_owned()),
            _ => Err(format!("one of {}", known.join(", "))),
        })
    }
}

impl Row<Vec<String>> {
    /// Has items of these texts.
    pub fn some_of(self, known: &'static [&'static str]) -> Self {
        self.by(|value| match Vec::<String>::read(value) {
            Ok(texts) if texts.iter().all(|text| known.contains(&text.as_str())) => Ok(texts),
            _ => Err(format!("a list of some of {}", known.join(", "))),
        })
    }
}
