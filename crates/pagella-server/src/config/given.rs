//! A value that has the kind of its row.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::settings::Toggle;

/// A value that was checked against its row, so what it is asked for is what it is. Something else
/// gives the empty value of that kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Given {
    /// Left open.
    Unset,
    /// Yes or no.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// A text.
    Text(String),
    /// Texts.
    Texts(Vec<String>),
    /// Names and values.
    Table(Map<String, Value>),
}

impl Given {
    pub fn bool(&self) -> bool {
        matches!(self, Given::Bool(true))
    }

    pub fn int(&self) -> i64 {
        if let Given::Int(number) = self { *number } else { 0 }
    }

    /// A count; rows that are counted have no negative numbers.
    pub fn count(&self) -> usize {
        usize::try_from(self.int()).unwrap_or(0)
    }

    /// A count, or nothing.
    pub fn maybe_count(&self) -> Option<usize> {
        matches!(self, Given::Int(_)).then(|| self.count())
    }

    pub fn float(&self) -> f64 {
        match self {
            Given::Float(number) => *number,
            Given::Int(number) => *number as f64,
            _ => 0.0,
        }
    }

    pub fn seconds(&self) -> Duration {
        Duration::try_from_secs_f64(self.float()).unwrap_or_default()
    }

    pub fn text(&self) -> String {
        self.maybe_text().unwrap_or_default()
    }

    /// A text, or nothing.
    pub fn maybe_text(&self) -> Option<String> {
        if let Given::Text(text) = self { Some(text.clone()) } else { None }
    }

    pub fn path(&self) -> PathBuf {
        PathBuf::from(self.text())
    }

    /// A path, or nothing.
    pub fn maybe_path(&self) -> Option<PathBuf> {
        self.maybe_text().map(PathBuf::from)
    }

    pub fn texts(&self) -> Vec<String> {
        if let Given::Texts(texts) = self { texts.clone() } else { Vec::new() }
    }

    pub fn table(&self) -> Map<String, Value> {
        if let Given::Table(table) = self { table.clone() } else { Map::new() }
    }

    pub fn toggle(&self) -> Toggle {
        match self {
            Given::Bool(true) => Toggle::On,
            Given::Bool(false) => Toggle::Off,
            _ => Toggle::Auto,
        }
    }
}
