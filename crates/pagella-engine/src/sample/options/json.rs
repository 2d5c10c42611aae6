//! Options from JSON, under every spelling that their table knows.

use std::fmt::Display;

use serde::de::{Deserialize, Deserializer, Error};
use serde_json::{Map, Value};

use crate::params::{self, Place, SampleOptions};

impl<'de> Deserialize<'de> for SampleOptions {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut options = SampleOptions::default();
        for (name, value) in Map::deserialize(from)? {
            options.set(&name, value).map_err(D::Error::custom)?;
        }
        Ok(options)
    }
}

impl SampleOptions {
    /// Takes a setting under any spelling; null is its default. An error names it.
    pub fn set(&mut self, name: &str, value: Value) -> Result<(), String> {
        let Some(param) = params::sampling(name) else {
            return Err(format!("{name:?} is no setting of sampling"));
        };
        let wrong = |problem: &dyn Display| format!("{name} {problem}");
        match param.place {
            Place::Sampling { set, .. } => {
                let absent = value.is_null();
                let scalar =
                    if absent { Ok(param.default().unwrap_or(0.0)) } else { param.scalar(&value) };
                set(self, scalar.map_err(|error| wrong(&error))?);
            }
            Place::Caller { read: Some(read) } => {
                read(self, value).map_err(|error| wrong(&error))?;
            }
            Place::Caller { read: None } | Place::Variant { .. } | Place::Job { .. } => {}
        }
        Ok(())
    }
}
