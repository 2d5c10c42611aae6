//! Fields that are known and change nothing: what clients send out of habit, and what is not built.

use std::borrow::Cow;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

/// A field without effect, of which there is something to say.
#[derive(Clone, Copy)]
pub struct Inert {
    name: &'static str,
    aliases: &'static [&'static str],
    effect: &'static str,
    /// Numbers that ask for nothing, beside 0.
    off: &'static [f64],
    about: &'static str,
}

impl Inert {
    /// Named in the answer, unless it asks for nothing.
    pub const fn ignored(name: &'static str, off: &'static [f64], about: &'static str) -> Self {
        Inert { name, aliases: &[], effect: "ignored", off, about }
    }

    /// Refused, unless it asks for nothing.
    pub const fn unbuilt(name: &'static str, off: &'static [f64], about: &'static str) -> Self {
        Inert { name, aliases: &[], effect: "refused", off, about }
    }

    /// With other spellings.
    pub const fn or(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    fn property(&self) -> Value {
        let mut property = json!({ "description": self.about, "x-effect": self.effect });
        if !self.off.is_empty() {
            property["x-off"] = json!(self.off);
        }
        if !self.aliases.is_empty() {
            property["x-aliases"] = json!(self.aliases);
        }
        property
    }
}

/// A list of such fields.
pub trait InertList: 'static {
    /// What its description is called.
    const NAME: &'static str;
    /// Accepted without a word; names with blanks between them.
    const ACCEPTED: &'static str = "";
    /// Refused unless false, zero or empty; names with blanks between them.
    const UNBUILT: &'static str = "";
    /// All others.
    const OTHERS: &'static [Inert] = &[];
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
        let accepted = L::ACCEPTED
            .split_whitespace()
            .map(|name| (name.to_owned(), json!({ "description": "Accepted, without effect" })));
        let unbuilt = L::UNBUILT.split_whitespace().map(|name| {
            let about = "Not supported unless false, zero or empty";
            (name.to_owned(), json!({ "description": about, "x-effect": "refused" }))
        });
        let others = L::OTHERS.iter().map(|inert| (inert.name.to_owned(), inert.property()));
        let properties: Map<String, Value> = accepted.chain(unbuilt).chain(others).collect();
        json_schema!({ "type": "object", "properties": properties })
    }
}
