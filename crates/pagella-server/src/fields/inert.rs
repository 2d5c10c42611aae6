//! Fields that are known and change nothing: what clients send out of habit, and what is not built.

use std::borrow::Cow;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use super::{Effect, Field, FieldKind, Part};

/// A field without effect.
#[derive(Clone, Copy)]
pub struct Inert {
    name: &'static str,
    aliases: &'static [&'static str],
    effect: Effect,
    about: &'static str,
}

impl Inert {
    /// Accepted without a word.
    pub const fn accepted(name: &'static str) -> Self {
        Inert { name, aliases: &[], effect: Effect::Used, about: "Accepted, without effect" }
    }

    /// Named in the answer, unless it is empty, false or one of these numbers.
    pub const fn ignored(name: &'static str, off: &'static [f64], about: &'static str) -> Self {
        Inert { name, aliases: &[], effect: Effect::Ignored(off), about }
    }

    /// Refused, unless it is empty, false or one of these numbers.
    pub const fn unbuilt(name: &'static str, off: &'static [f64], about: &'static str) -> Self {
        Inert { name, aliases: &[], effect: Effect::Refused(off), about }
    }

    /// With other spellings.
    pub const fn or(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }
}

/// A list of such fields.
pub trait InertList: 'static {
    /// What its description is called.
    const NAME: &'static str;
    const FIELDS: &'static [Inert];
}

/// Such fields as a part of a body. Nothing is kept of them.
pub struct NoEffect<L>(PhantomData<L>);

impl<'de, L> Deserialize<'de> for NoEffect<L> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        serde::de::IgnoredAny::deserialize(from).map(|_| NoEffect(PhantomData))
    }
}

impl<L: InertList> JsonSchema for NoEffect<L> {
    fn schema_name() -> Cow<'static, str> {
        L::NAME.into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let property = |inert: &Inert| {
            let mut property = json!({ "description": inert.about });
            if !inert.aliases.is_empty() {
                property["x-aliases"] = json!(inert.aliases);
            }
            (inert.name.to_owned(), property)
        };
        let properties: Map<String, Value> = L::FIELDS.iter().map(property).collect();
        json_schema!({ "type": "object", "properties": properties })
    }
}

impl<L: InertList> Part for NoEffect<L> {
    fn fields() -> Vec<Field> {
        let field = |inert: &Inert| Field {
            aliases: inert.aliases.iter().map(|alias| (*alias).to_owned()).collect(),
            effect: inert.effect,
            ..Field::new(inert.name, FieldKind::Any)
        };
        L::FIELDS.iter().map(field).collect()
    }
}
