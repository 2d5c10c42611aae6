//! What can be wrong with a model's configuration, one variant per remedy.
//!
//! Text taken from a file is shortened by [`excerpt`] before it enters an error, so a hostile file
//! can neither flood a log nor smuggle control characters into it.

use std::path::PathBuf;

use serde_json::Value;

/// Longest piece of a file's own text that an error repeats, in characters.
const EXCERPT_CHARS_MAX: usize = 80;

/// Why a configuration could not be turned into a [`crate::ModelSpec`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "a field that its name says all of needs no words")]
pub enum ArchError {
    /// A configuration file could not be read.
    #[error("cannot read {}: {source}: point to a model directory that holds it", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A configuration file is larger than any real one.
    #[error(
        "{file} has {bytes} bytes, more than the {max} a configuration may have: \
         check that it is the right file"
    )]
    TooLarge {
        file: String,
        /// Its size, or one more than `max` when the size is unknown.
        bytes: u64,
        /// The limit.
        max: u64,
    },
    /// A configuration file is not JSON, or nested too deeply.
    #[error("{file} is not valid JSON: {source}: download the file again")]
    Json {
        file: String,
        /// Where and why parsing stopped.
        source: serde_json::Error,
    },
    /// A required key is absent or null.
    #[error(
        "{file}: no value for {keys}: the config is incomplete, take it from the original model"
    )]
    MissingKey {
        file: String,
        /// The names that were tried.
        keys: String,
    },
    /// A value has a type that cannot be meant.
    #[error("{file}: `{key}` must be {expected}, not {found}: correct the value")]
    WrongType {
        file: String,
        /// The key, with its path.
        key: String,
        /// What would be accepted.
        expected: &'static str,
        /// The value, shortened.
        found: String,
    },
    /// A number lies outside what the engine accepts.
    #[error("{file}: `{key}` is {value}, allowed is {min} to {max}: correct the value")]
    OutOfRange {
        file: String,
        /// The key, with its path.
        key: String,
        /// The number as written.
        value: String,
        /// Smallest allowed value.
        min: String,
        /// Largest allowed value.
        max: String,
    },
    /// Two values of one config contradict each other.
    #[error("{file}: {problem}: correct one of the values")]
    Inconsistent {
        file: String,
        /// The values and the rule they break.
        problem: String,
    },
    /// `architectures` is not a list of exactly one string.
    #[error(
        "{file}: `architectures` must hold exactly one string, not {found}: \
         take the config of the original model"
    )]
    Architectures {
        file: String,
        /// The value, shortened.
        found: String,
    },
    /// No family knows the architecture string.
    #[error(
        "{file}: unknown architecture {name}, which is none of the {known} families of docs/families.md: \
         if the model is a plain Llama under another name, try --assume-llama"
    )]
    UnknownArchitecture {
        file: String,
        /// The string in the file, shortened.
        name: String,
        /// How many families are known.
        known: usize,
    },
    /// The architecture is known to need something that is not here.
    #[error("{file}: {name} needs {missing}, which this engine does not have: use another model")]
    MissingBlock {
        file: String,
        /// The string in the file.
        name: &'static str,
        missing: &'static str,
    },
    /// The family is known, but the config asks for something it cannot do here.
    #[error(
        "{file}: {feature} is not supported for the {family} family: use another model or variant"
    )]
    Unsupported {
        file: String,
        family: &'static str,
        /// Key and value of the feature.
        feature: String,
    },
    /// The rotary scaling kind is not one we know.
    #[error(
        "{file}: `{key}` asks for rotary scaling {kind}, known are {known}: \
         update the engine or remove the scaling"
    )]
    UnknownRopeKind {
        file: String,
        /// The key that names the kind.
        key: String,
        /// The kind, shortened.
        kind: String,
        /// Every known kind.
        known: String,
    },
    /// An option of the user is outside its range.
    #[error("option {option} is {value}, allowed is {min} to {max}: choose a value in that range")]
    BadOption {
        option: &'static str,
        /// The value given.
        value: String,
        /// Smallest allowed value.
        min: String,
        /// Largest allowed value.
        max: String,
    },
}

impl ArchError {
    /// The file at fault, if it is one.
    pub fn file(&self) -> Option<String> {
        match self {
            Self::Read { path, .. } => Some(path.display().to_string()),
            Self::TooLarge { file, .. }
            | Self::Json { file, .. }
            | Self::MissingKey { file, .. }
            | Self::WrongType { file, .. }
            | Self::OutOfRange { file, .. }
            | Self::Inconsistent { file, .. }
            | Self::Architectures { file, .. }
            | Self::UnknownArchitecture { file, .. }
            | Self::MissingBlock { file, .. }
            | Self::Unsupported { file, .. }
            | Self::UnknownRopeKind { file, .. } => Some(file.clone()),
            Self::BadOption { .. } => None,
        }
    }
}

/// A JSON value as text for an error: escaped, and cut at [`EXCERPT_CHARS_MAX`] characters.
pub(crate) fn excerpt(value: &Value) -> String {
    let shown = match value {
        Value::Array(items) => format!("a list of {} values", items.len()),
        Value::Object(map) => format!("an object of {} keys", map.len()),
        // Cut before escaping too: escaping a huge string would copy all of it.
        Value::String(text) => Value::from(shorten(text)).to_string(),
        other => other.to_string(),
    };
    shorten(&shown)
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(EXCERPT_CHARS_MAX) {
        None => text.to_owned(),
        Some((cut, _)) => format!("{}…", &text[..cut]),
    }
}
