//! Every generation parameter, once: name, other spellings, type, range, values that mean "off", help,
//! the step that uses it, and how it is set.
//!
//! [`SAMPLING`] is the table of [`SampleOptions`], from which that struct is made as well; [`VARIANTS`]
//! are spellings with a meaning of their own; [`JOB`] and [`CONSTRAINTS`] are what a request says besides.
//! Range checks, the
//! server's fields and their description, flags of the command line, `/set`, the page's panel and the
//! table in the documentation follow from these rows.

mod job;
mod sampling;
mod setting;
mod variant;

use std::fmt;

use serde_json::{Value, json};

use crate::JobOptions;
use crate::sample::Step;

pub use job::{CONSTRAINTS, JOB};
pub use sampling::{SAMPLING, SampleOptions};
pub(crate) use setting::Setting;
pub use variant::VARIANTS;

/// What a value may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ParamKind {
    /// A finite number within these.
    Number(f64, f64),
    /// A whole number within these.
    Integer(i64, i64),
    /// True or false.
    Flag,
    /// True or false, or 0, 1 or 2 of which 0 is false.
    Switch,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Texts.
    Texts,
    /// Token ids.
    Ids,
    /// A JSON value.
    Json,
    /// A text in some notation.
    Code,
}

/// How a value gets to where it is used. Scalars travel as `f64`: flags as 0 and 1, words by their place.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// A scalar of [`SampleOptions`].
    Sampling {
        /// Reads it.
        get: fn(&SampleOptions) -> f64,
        /// Writes it.
        set: fn(&mut SampleOptions, f64),
    },
    /// Another way to say a parameter of [`SampleOptions`].
    Variant {
        /// That parameter.
        of: &'static str,
        /// Writes it.
        set: fn(&mut SampleOptions, f64),
    },
    /// A scalar of [`JobOptions`].
    Job {
        /// Writes it.
        set: fn(&mut JobOptions, f64),
    },
    /// Something that is no scalar, or that needs a vocabulary, limits or another parameter: whoever
    /// makes the job reads it. In a file it is JSON.
    Caller {
        /// Reads it from JSON, where it is a field of [`SampleOptions`].
        read: Option<fn(&mut SampleOptions, Value) -> serde_json::Result<()>>,
    },
}

/// Where parameters stand together, in reading order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamGroup {
    /// How long the text becomes.
    Length,
    /// What most people change.
    Basic,
    /// Cuts.
    Truncation,
    /// Temperatures that move.
    Temperature,
    /// Penalties on what was written before.
    Penalties,
    /// Penalties on repeated phrases.
    Dry,
    /// Exclusion of top choices.
    Xtc,
    /// Steps that steer toward a target.
    Target,
    /// Where the text ends and what it does not contain.
    Stops,
    /// What the text looks like.
    Constraints,
    /// Draws, guidance, the order of steps.
    Seed,
    /// Guesses, which change the time and not the text.
    Drafting,
}

impl ParamGroup {
    /// All of them, with a name for programs and a title for people.
    pub const ALL: &[(ParamGroup, &'static str, &'static str)] = &[
        (ParamGroup::Length, "length", "Length"),
        (ParamGroup::Basic, "basic", "Basic"),
        (ParamGroup::Truncation, "truncation", "Truncation"),
        (ParamGroup::Temperature, "temperature", "Temperature variants"),
        (ParamGroup::Penalties, "penalties", "Penalties"),
        (ParamGroup::Dry, "dry", "DRY"),
        (ParamGroup::Xtc, "xtc", "XTC"),
        (ParamGroup::Target, "target", "Mirostat and adaptive"),
        (ParamGroup::Stops, "stops", "Stops and bans"),
        (ParamGroup::Constraints, "constraints", "Constraints"),
        (ParamGroup::Seed, "seed", "Seed and guidance"),
        (ParamGroup::Drafting, "drafting", "Drafting"),
    ];

    /// The name for programs.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(group, ..)| *group == self).map_or("", |(_, name, _)| name)
    }
}

/// One generation parameter.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// Its name in files, flags and settings.
    pub name: &'static str,
    /// Its first name in requests, where that is another.
    pub wire_name: Option<&'static str>,
    /// Other spellings that mean the same, in whatever dialect.
    pub aliases: &'static [&'static str],
    /// Type and range.
    pub kind: ParamKind,
    /// What clients may ask for, where that is less than the type allows.
    pub asked: Option<(f64, f64)>,
    /// Values that mean the same as the default: the setting does nothing.
    pub off: &'static [f64],
    /// Everything below 0 means that, too.
    pub negative_is_off: bool,
    /// What people call its default, where that is not "off"; empty where it is a value like others.
    pub off_word: &'static str,
    /// What it does, in one line.
    pub help: &'static str,
    /// Where it stands.
    pub group: ParamGroup,
    /// The step that uses it; `None` where it is no single one.
    pub step: Option<Step>,
    /// The parameter without which it does nothing.
    pub needs: Option<&'static str>,
    /// The range worth dragging through, and the least move.
    pub slider: Option<(f64, f64, f64)>,
    /// Whether people are offered it; files know it in any case.
    pub offered: bool,
    /// How it is set.
    pub place: Place,
}

/// Why a value is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParamError {
    /// It has another type; what is expected.
    Type(String),
    /// It is out of range; what is allowed.
    Range(String),
}

impl fmt::Display for ParamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParamError::Type(expected) | ParamError::Range(expected) => {
                write!(f, "must be {expected}")
            }
        }
    }
}

impl Param {
    /// A row of which only the type and the place are known.
    pub(crate) const fn of(kind: ParamKind, group: ParamGroup) -> Self {
        Param {
            name: "",
            wire_name: None,
            aliases: &[],
            kind,
            asked: None,
            off: &[],
            negative_is_off: false,
            off_word: "off",
            help: "",
            group,
            step: None,
            needs: None,
            slider: None,
            offered: true,
            place: Place::Caller { read: None },
        }
    }

    pub(crate) const fn on_wire(mut self, name: &'static str) -> Self {
        self.wire_name = Some(name);
        self
    }

    pub(crate) const fn or(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    pub(crate) const fn off(mut self, values: &'static [f64]) -> Self {
        self.off = values;
        self
    }

    pub(crate) const fn off_below_zero(mut self) -> Self {
        self.negative_is_off = true;
        self
    }

    pub(crate) const fn off_word(mut self, word: &'static str) -> Self {
        self.off_word = word;
        self
    }

    pub(crate) const fn asked(mut self, min: f64, max: f64) -> Self {
        self.asked = Some((min, max));
        self
    }

    pub(crate) const fn by(mut self, step: Step) -> Self {
        self.step = Some(step);
        self
    }

    pub(crate) const fn with(mut self, other: &'static str) -> Self {
        self.needs = Some(other);
        self
    }

    pub(crate) const fn slider(mut self, min: f64, max: f64, step: f64) -> Self {
        self.slider = Some((min, max, step));
        self
    }

    pub(crate) const fn hidden(mut self) -> Self {
        self.offered = false;
        self
    }

    pub(crate) const fn named(mut self, name: &'static str, help: &'static str) -> Self {
        self.name = name;
        self.help = help;
        self
    }

    pub(crate) const fn at(mut self, place: Place) -> Self {
        self.place = place;
        self
    }

    /// The first name in requests.
    pub const fn wire(&self) -> &'static str {
        match self.wire_name {
            Some(name) => name,
            None => self.name,
        }
    }

    /// Whether a spelling is one of this parameter.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.wire_name == Some(name) || self.aliases.contains(&name)
    }

    /// The help without the blanks of a comment.
    pub fn help_line(&self) -> &'static str {
        self.help.trim()
    }

    /// The value that does nothing, of a scalar.
    pub fn default(&self) -> Option<f64> {
        match self.place {
            Place::Sampling { get, .. } => Some(get(&SampleOptions::default())),
            _ => self.off.first().copied(),
        }
    }

    /// Whether a scalar means that the setting does nothing.
    pub fn is_off(&self, number: f64) -> bool {
        self.off.contains(&number) || (self.negative_is_off && number < 0.0)
    }

    fn does_nothing(&self, number: f64) -> bool {
        // Compared as the type that settings have.
        self.is_off(number) || self.default().unwrap_or(0.0) as f32 == number as f32
    }

    /// Whether a value, as clients send it, is the same as its absence would be without any other
    /// recommendation: the default, one of the values that mean "off", or nothing at all.
    pub fn is_neutral(&self, value: &Value) -> bool {
        match value {
            Value::Null => true,
            Value::String(text) => {
                let words = match self.kind {
                    ParamKind::Choice(words) => words,
                    _ => return text.is_empty(),
                };
                text.is_empty() || words.iter().position(|word| word == text) == Some(0)
            }
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => map.is_empty(),
            Value::Bool(on) => self.does_nothing(f64::from(*on)),
            Value::Number(number) => {
                number.as_f64().is_some_and(|number| self.does_nothing(number))
            }
        }
    }

    /// The scalar of a JSON value: of the right type, within what clients may ask, and the default where
    /// it means "off".
    pub fn scalar(&self, value: &Value) -> Result<f64, ParamError> {
        let number = match (self.kind, value) {
            (ParamKind::Flag | ParamKind::Switch, Value::Bool(on)) => return Ok(f64::from(*on)),
            (ParamKind::Choice(words), Value::String(text)) => {
                let place = words.iter().position(|word| word == text);
                return place
                    .map(|place| place as f64)
                    .ok_or_else(|| ParamError::Range(format!("one of {}", words.join(", "))));
            }
            (ParamKind::Number(..) | ParamKind::Integer(..) | ParamKind::Switch, value) => {
                value.as_f64()
            }
            _ => None,
        };
        let number = number.ok_or_else(|| ParamError::Type(self.type_name().to_owned()))?;
        self.number(number)
    }

    /// The same for a number, as a flag or a setting gives it.
    pub fn number(&self, number: f64) -> Result<f64, ParamError> {
        if matches!(self.kind, ParamKind::Integer(..) | ParamKind::Switch) && number.fract() != 0.0
        {
            return Err(ParamError::Type(self.type_name().to_owned()));
        }
        if self.is_off(number) {
            return Ok(self.default().unwrap_or(number));
        }
        let (min, max) = self.range().unwrap_or((0.0, 1.0));
        let (min, max) = self.asked.unwrap_or((min, max));
        if !(min..=max).contains(&number) {
            return Err(ParamError::Range(self.allowed()));
        }
        let switch = self.kind == ParamKind::Switch;
        Ok(if switch { f64::from(number > 0.0) } else { number })
    }

    /// Lowest and highest scalar; `None` for what is none.
    pub fn range(&self) -> Option<(f64, f64)> {
        match self.kind {
            ParamKind::Number(min, max) => Some((min, max)),
            ParamKind::Integer(min, max) => Some((min as f64, max as f64)),
            ParamKind::Flag => Some((0.0, 1.0)),
            ParamKind::Switch => Some((0.0, 2.0)),
            ParamKind::Choice(words) => Some((0.0, words.len() as f64 - 1.0)),
            _ => None,
        }
    }

    /// The range and the values that mean "off", for people.
    pub fn allowed(&self) -> String {
        let (min, max) = self.asked.or(self.range()).unwrap_or((0.0, 0.0));
        let range = match self.kind {
            ParamKind::Choice(words) => return format!("one of {}", words.join(", ")),
            ParamKind::Integer(_, i64::MAX) => format!("at least {min}"),
            _ => format!("from {min} to {max}"),
        };
        let outside: Vec<String> = self
            .off
            .iter()
            .filter(|off| !(min..=max).contains(*off))
            .map(|off| format!("{off}"))
            .chain(self.negative_is_off.then(|| "below 0".to_owned()))
            .collect();
        if outside.is_empty() { range } else { format!("{range}, or {}: off", outside.join(", ")) }
    }

    /// The type, for people.
    pub fn type_name(&self) -> &'static str {
        match self.kind {
            ParamKind::Number(..) => "a number",
            ParamKind::Integer(..) => "an integer",
            ParamKind::Flag => "true or false",
            ParamKind::Switch => "0, 1, 2, true or false",
            ParamKind::Choice(_) => "a word",
            ParamKind::Texts => "a list of texts",
            ParamKind::Ids => "a list of token ids",
            ParamKind::Json => "JSON",
            ParamKind::Code => "a text",
        }
    }

    /// What people call this value; `None` where it is said as a number.
    pub fn word(&self, number: f64) -> Option<&'static str> {
        let off = self.needs.is_none() || self.off_word != "off";
        (off && self.off.contains(&number)).then_some(self.off_word).filter(|word| !word.is_empty())
    }

    /// A scalar as JSON has it.
    pub fn to_json(&self, number: f64) -> Value {
        match self.kind {
            ParamKind::Flag | ParamKind::Switch => json!(number > 0.0),
            ParamKind::Choice(words) => json!(words.get(number as usize)),
            ParamKind::Integer(..) => json!(number as i64),
            // Shortest digits that give the same f32: 0.1, not 0.10000000149.
            _ => (number as f32).to_string().parse::<f64>().map_or(Value::Null, |n| json!(n)),
        }
    }
}

/// All rows that requests know, in reading order.
pub fn all() -> impl Iterator<Item = &'static Param> {
    SAMPLING.iter().chain(VARIANTS).chain(JOB).chain(CONSTRAINTS)
}

/// The row of [`SampleOptions`] with this name.
pub fn sampling(name: &str) -> Option<&'static Param> {
    SAMPLING.iter().find(|param| param.is_called(name))
}

#[cfg(test)]
mod tests;
