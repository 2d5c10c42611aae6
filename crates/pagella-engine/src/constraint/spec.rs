//! What a request asks for, and how much work it may cost.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A constraint as plain data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ConstraintSpec {
    /// One JSON value that validates against the schema (draft 2020-12, and older spellings of it).
    ///
    /// Properties come in the order of the schema. Whitespace is fixed: `", "` between items and
    /// `": "` after keys, none elsewhere, so a weak model cannot loop in it. An object under the
    /// root's `"x-guidance"` changes that: `item_separator` and `key_separator` (regular
    /// expressions), `whitespace_flexible` (bool). `coerce_one_of` (bool) there reads `oneOf` as
    /// `anyOf` where the options are not evidently exclusive; without it such a schema is refused.
    JsonSchema(Value),
    /// Any JSON object, with the whitespace of [`Self::JsonSchema`].
    JsonObject,
    /// The whole output matches the regular expression, in the syntax of the `regex` crate.
    Regex(String),
    /// A context-free grammar in llguidance's variant of the Lark syntax; rule `start`.
    Lark(String),
    /// A context-free grammar in the GBNF syntax of llama.cpp; rule `root`.
    Gbnf(String),
    /// The output is exactly one of the options. Where one option begins another, ending and
    /// continuing compete.
    Choice {
        /// What may be written.
        options: Vec<String>,
        /// Whether letters may differ in case.
        #[serde(default)]
        case_insensitive: bool,
    },
    /// The output begins with one of the strings; what follows is free.
    Prefix(Vec<String>),
    /// The output is free until it contains `trigger`; from then on it follows `then`. The name of
    /// a special token is a trigger too.
    Lazy {
        /// Text, or a special token, after which the constraint begins.
        trigger: String,
        /// What must follow.
        then: Box<ConstraintSpec>,
    },
    /// The output is free, unless it begins with one of the texts, white space before it apart: then
    /// it follows `then`, from the beginning.
    Opening {
        /// What `then` begins with.
        texts: Vec<String>,
        /// What the output follows.
        then: Box<ConstraintSpec>,
    },
    /// All of them at once.
    All(Vec<ConstraintSpec>),
    /// One of them.
    Any(Vec<ConstraintSpec>),
    /// A Lark grammar in which the rule `json_0` is a value of the first schema, `json_1` one of the
    /// second, and so on, `input_0` the first of the inputs, and `special_7` is the special token with
    /// id 7.
    Composed {
        /// The grammar; rule `start`.
        lark: String,
        /// Schemas, as in [`Self::JsonSchema`].
        schemas: Vec<Value>,
        /// Ids of special tokens.
        specials: Vec<u32>,
        /// Texts with rules of their own, and whether each stands inside a JSON string.
        inputs: Vec<(InputRule, bool)>,
    },
}

/// What a text inside of a larger output must look like.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum InputRule {
    /// As in [`ConstraintSpec::Lark`].
    Lark(String),
    /// As in [`ConstraintSpec::Regex`].
    Regex(String),
}

impl ConstraintSpec {
    /// What messages call it.
    pub(super) fn what(&self) -> &'static str {
        match self {
            Self::JsonSchema(_) | Self::JsonObject => "JSON schema",
            Self::Regex(_) => "regular expression",
            Self::Lark(_) | Self::Composed { .. } => "Lark grammar",
            Self::Gbnf(_) => "GBNF grammar",
            Self::Choice { .. } => "choice",
            Self::Prefix(_) => "prefix",
            Self::Lazy { .. } | Self::Opening { .. } => "lazy constraint",
            Self::All(_) | Self::Any(_) => "combination of constraints",
        }
    }
}

/// How large a constraint may be and how much work it may cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConstraintLimits {
    /// Bytes of a schema or grammar.
    pub text_bytes_max: usize,
    /// Bytes of a regular expression, also of each `pattern` inside a schema.
    pub regex_bytes_max: usize,
    /// Levels of arrays and objects in a schema, of brackets in a grammar or regular expression.
    pub nesting_max: usize,
    /// Rules and terminals of a grammar.
    pub rules_max: usize,
    /// Strings of a choice or prefix.
    pub strings_max: usize,
    /// Constraints inside lazy ones and combinations.
    pub parts_max: usize,
    /// Work on regular expressions while compiling; about 50 000 a millisecond.
    pub compile_fuel: u64,
    /// Symbols of a compiled grammar.
    pub grammar_symbols_max: usize,
    /// Time until compiling is given up.
    pub compile_time: Duration,
    /// Work on regular expressions for one mask; about 14 000 a millisecond.
    pub mask_fuel: u64,
    /// Parser items for one mask; about 20 000 a millisecond.
    pub mask_items_max: usize,
    /// Automaton states kept for one constraint, at one to two KiB each.
    pub states_max: usize,
}

impl ConstraintLimits {
    /// What a state of an automaton takes, in bytes; between one and two KiB.
    const STATE_BYTES: usize = 1342;
    /// Work on regular expressions in a millisecond, while a mask is computed.
    const MASK_FUEL_PER_MS: u64 = 14_000;
    /// Parser items in a millisecond.
    const MASK_ITEMS_PER_MS: usize = 20_000;

    /// With so many bytes for a compiled constraint.
    pub fn with_memory(mut self, bytes: usize) -> Self {
        self.states_max = (bytes / Self::STATE_BYTES).max(1);
        self
    }

    /// With so much work for one mask as about this time allows. Work is counted, not time, so the
    /// same constraint does the same on every machine; half of it is for each kind of work.
    pub fn with_mask_time(mut self, time: Duration) -> Self {
        let half_ms = time.as_secs_f64() * 1e3 / 2.0;
        self.mask_fuel = ((half_ms * Self::MASK_FUEL_PER_MS as f64) as u64).max(1);
        self.mask_items_max = ((half_ms * Self::MASK_ITEMS_PER_MS as f64) as usize).max(1);
        self
    }
}

impl Default for ConstraintLimits {
    fn default() -> Self {
        Self {
            text_bytes_max: 1 << 20,
            regex_bytes_max: 64 << 10,
            nesting_max: 96,
            rules_max: 4096,
            strings_max: 10_000,
            parts_max: 16,
            compile_fuel: 1_000_000,
            grammar_symbols_max: 500_000,
            compile_time: Duration::from_secs(2),
            mask_fuel: 200_000,
            mask_items_max: 100_000,
            states_max: 50_000,
        }
    }
}
