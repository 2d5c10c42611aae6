//! Bodies of requests as types.
//!
//! A part is a struct of fields that belong together: serde fills it, schemars describes it, and how its
//! fields are checked follows from that description. A [`Body`] is a tuple of parts. Where two parts
//! have a field of the same name, the first one gets it.

use std::any::TypeId;
use std::borrow::Cow;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::{LazyLock, PoisonError, RwLock};

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::field::fields_of;
use super::{Effect, Field, Rules, missing, out_of_range, unsupported, wrong_type};
use crate::wire::error::{ApiError, Code};

/// Names under which other servers take serialized tensors. Refused even where unknown names are not:
/// whoever sends one means it to be the input.
const TENSORS: [&str; 6] = [
    "prompt_embeds",
    "prompt_embed",
    "input_embeds",
    "inputs_embeds",
    "image_embeds",
    "soft_prompt",
];
/// Most fields of a body: several times as many as there are.
const FIELDS_MAX: usize = 1024;

/// The values of a part, by the first spelling of their fields.
type Values = Map<String, Value>;

/// The fields of a part, by its description.
fn fields<P: JsonSchema, R: Rules>() -> Vec<Field> {
    let settings =
        SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let schema = P::json_schema(&mut settings.into_generator());
    schema.as_object().map(fields_of::<R>).unwrap_or_default()
}

/// What a route reads.
pub trait Body: Sized + 'static {
    /// The fields of every part.
    fn fields<R: Rules>() -> Vec<Vec<Field>>;

    /// The description of every part.
    fn schemas(generator: &mut SchemaGenerator) -> Vec<Schema>;

    /// Every part from its own values, which were checked.
    fn from_values(values: Vec<Values>) -> Result<Self, ApiError>;

    /// How it is read.
    fn table<R: Rules>() -> &'static Table {
        static TABLES: LazyLock<RwLock<HashMap<TypeId, &'static Table>>> =
            LazyLock::new(RwLock::default);
        let known = TABLES
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&TypeId::of::<(Self, R)>())
            .copied();
        known.unwrap_or_else(|| {
            let mut tables = TABLES.write().unwrap_or_else(PoisonError::into_inner);
            // One per type of body, for as long as the process lives.
            tables
                .entry(TypeId::of::<(Self, R)>())
                .or_insert_with(|| Box::leak(Box::new(Table::new(Self::fields::<R>()))))
        })
    }

    /// Reads a body. `null` is the same as absent, and so is an empty value of a field that may be
    /// left out. A spelling whose value asks for nothing gives way to another that does.
    fn read<R: Rules>(body: Map<String, Value>) -> Result<Given<Self>, ApiError> {
        let table = Self::table::<R>();
        let (values, unknown) = table.sort(body)?;
        Ok(Given { body: Self::from_values(values)?, unknown, table })
    }
}

/// A body that was read, and what was left over.
pub struct Given<B> {
    pub body: B,
    /// Names that no part has, and those without effect that ask for something.
    pub unknown: Vec<String>,
    table: &'static Table,
}

impl<B> Given<B> {
    /// The error for a name that was left over.
    pub fn refuse_unknown(&self, name: &str) -> ApiError {
        if self.table.field(name).is_some() {
            return unsupported(name, "it has no effect yet, leave it out");
        }
        ApiError::unknown_field(name, self.table.fields().flat_map(Field::spellings))
    }
}

/// The fields of a body, by all of their spellings.
pub struct Table {
    parts: Vec<Vec<Field>>,
    /// Part and place in it.
    places: HashMap<String, (usize, usize)>,
}

impl Table {
    fn new(parts: Vec<Vec<Field>>) -> Self {
        let mut places = HashMap::new();
        for (part, fields) in parts.iter().enumerate() {
            for (idx, field) in fields.iter().enumerate() {
                for name in field.spellings() {
                    places.entry(name.to_owned()).or_insert((part, idx));
                }
            }
        }
        Table { parts, places }
    }

    /// Every field, of all parts.
    pub fn fields(&self) -> impl Iterator<Item = &Field> {
        self.parts.iter().flatten()
    }

    /// The field that a spelling means.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.places.get(name).map(|(part, idx)| &self.parts[*part][*idx])
    }

    /// The values of every part under their first spelling, checked, and the names that are left.
    fn sort(&self, body: Map<String, Value>) -> Result<(Vec<Values>, Vec<String>), ApiError> {
        if body.len() > FIELDS_MAX {
            let message = format!("the body has {} fields: send at most {FIELDS_MAX}", body.len());
            return Err(ApiError::new(Code::OutOfRange, message));
        }
        let is_tensor = |(name, value): &(&String, &Value)| {
            TENSORS.contains(&name.as_str()) && !value.is_null() && self.field(name).is_none()
        };
        if let Some((name, _)) = body.iter().find(is_tensor) {
            return Err(unsupported(name, "send text or token ids"));
        }
        let mut values = vec![Map::new(); self.parts.len()];
        let (mut unknown, mut sent) = (Vec::new(), Vec::new());
        for (name, value) in body {
            let Some(&(part, idx)) = self.places.get(&name) else {
                unknown.push(name);
                continue;
            };
            let field = &self.parts[part][idx];
            if field.is_absent(&value) || field.asks_for_nothing(&value) {
                continue;
            }
            match field.effect {
                Effect::Used => {}
                Effect::Refused => return Err(unsupported(name, "leave it out")),
                Effect::Ignored => {
                    unknown.push(name);
                    continue;
                }
            }
            let value = field.check(&name, value)?;
            put(&mut values[part], field, &name, value, &sent)?;
            sent.push(name);
        }
        for (fields, values) in self.parts.iter().zip(&values) {
            let lacks = |field: &&Field| field.required && !values.contains_key(&field.name);
            if let Some(field) = fields.iter().find(lacks) {
                return Err(missing(&field.name));
            }
        }
        Ok((values, unknown))
    }
}

/// Adds a value, unless another spelling has said something else.
fn put(
    values: &mut Values,
    field: &Field,
    name: &str,
    value: Value,
    sent: &[String],
) -> Result<(), ApiError> {
    match values.get(&field.name) {
        Some(other) if *other == value || field.is_neutral(&value) => Ok(()),
        Some(other) if !field.is_neutral(other) => {
            let other = sent.iter().find(|one| *one != name && field.is_called(one));
            let other = other.unwrap_or(&field.name);
            let message = format!("{name} and {other} have different values: give one");
            Err(ApiError::field(Code::ConflictingParameters, name, message))
        }
        _ => {
            values.insert(field.name.clone(), value);
            Ok(())
        }
    }
}

/// A part, or a value within one, from JSON; errors say where it is wrong.
pub fn typed<T: DeserializeOwned>(value: Value) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        refused(&path, &error.into_inner().to_string())
    })
}

/// The same of the value of a field.
pub fn typed_at<T: DeserializeOwned>(field: &str, value: Value) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = match error.path().to_string().as_str() {
            "." => field.to_owned(),
            inner => format!("{field}.{inner}"),
        };
        refused(&path, &error.into_inner().to_string())
    })
}

/// What serde says, in the words of all other errors.
fn refused(path: &str, said: &str) -> ApiError {
    let quoted = |text: &str| text.split('`').nth(1).unwrap_or_default().to_owned();
    if said.starts_with("missing field") {
        let name = quoted(said);
        return missing(&if path == "." { name } else { format!("{path}.{name}") });
    }
    let Some((problem, expected)) = said.rsplit_once(", expected ") else {
        return ApiError::field(Code::InvalidType, path, format!("{path}: {said}"));
    };
    if problem.starts_with("unknown variant") {
        let expected = expected.replace('`', "");
        let expected = expected.strip_prefix("one of ").unwrap_or(&expected);
        let message = format!("{path} must be one of {expected}");
        return ApiError::field(Code::UnsupportedValue, path, message);
    }
    if problem.starts_with("invalid value") {
        return out_of_range(path, expected);
    }
    let integers = ["i32", "i64", "u32", "u64", "usize"];
    wrong_type(
        path,
        match expected {
            "a boolean" => "true or false",
            "f32" | "f64" => "a number",
            "a sequence" => "a list",
            "a map" => "an object",
            kind if kind.starts_with("struct ") => "an object",
            kind if integers.contains(&kind) => "an integer",
            kind => kind,
        },
    )
}

/// The values of a part as they were written, checked, for whoever reads them later.
pub struct AsWritten<P> {
    /// By the first spelling of their fields.
    pub values: Values,
    part: PhantomData<P>,
}

impl<'de, P> Deserialize<'de> for AsWritten<P> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Map::deserialize(from).map(|values| AsWritten { values, part: PhantomData })
    }
}

impl<P: JsonSchema> JsonSchema for AsWritten<P> {
    fn schema_name() -> Cow<'static, str> {
        P::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        P::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        P::json_schema(generator)
    }
}

/// What routes read that refuse whatever is asked of them, or that have no fields.
impl Body for () {
    fn fields<R: Rules>() -> Vec<Vec<Field>> {
        Vec::new()
    }

    fn schemas(_: &mut SchemaGenerator) -> Vec<Schema> {
        Vec::new()
    }

    fn from_values(_: Vec<Values>) -> Result<Self, ApiError> {
        Ok(())
    }
}

macro_rules! bodies {
    ($(($($part:ident),+))+) => {$(
        impl<$($part: DeserializeOwned + JsonSchema + 'static),+> Body for ($($part,)+) {
            fn fields<R: Rules>() -> Vec<Vec<Field>> {
                vec![$(fields::<$part, R>()),+]
            }

            fn schemas(generator: &mut SchemaGenerator) -> Vec<Schema> {
                vec![$(generator.subschema_for::<$part>()),+]
            }

            fn from_values(values: Vec<Values>) -> Result<Self, ApiError> {
                let mut values = values.into_iter().map(Value::Object);
                let mut next = || values.next().unwrap_or_default();
                Ok(($(typed::<$part>(next())?,)+))
            }
        }
    )+};
}

bodies! { (A) (A, B) (A, B, C) (A, B, C, D) (A, B, C, D, E) (A, B, C, D, E, F) (A, B, C, D, E, F, G) }

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize, JsonSchema, PartialEq)]
    #[serde(rename_all = "lowercase")]
    enum Mode {
        A,
        B,
    }

    #[derive(Debug, Deserialize, JsonSchema, PartialEq)]
    struct Inner {
        on: Option<bool>,
        mode: Option<Mode>,
        n: usize,
    }

    #[derive(Debug, Deserialize, JsonSchema, PartialEq)]
    struct Own {
        #[schemars(range(min = -1, max = 100), extend("x-aliases" = ["n_predict", "max_length"]))]
        max_tokens: Option<i64>,
        #[schemars(range(min = 0.0, max = 1.0))]
        top_p: Option<f64>,
        #[serde(default)]
        echo: bool,
        #[schemars(length(max = 8))]
        user: Option<String>,
        mode: Option<Mode>,
        inner: Option<Inner>,
        list: Option<Vec<String>>,
    }

    #[derive(Debug, Deserialize, JsonSchema, PartialEq)]
    struct Other {
        need: Value,
        user: Option<String>,
    }

    fn read(body: Value) -> Result<Own, ApiError> {
        let Value::Object(map) = body else { panic!() };
        Ok(<(Own,)>::read::<()>(map)?.body.0)
    }

    fn refused(body: Value) -> (Code, String) {
        let error = read(body).err().unwrap();
        (error.code, error.param.unwrap())
    }

    #[test]
    fn aliases_mean_the_same_and_must_agree() {
        assert_eq!(read(json!({"n_predict": 5.0})).unwrap().max_tokens, Some(5));
        assert!(read(json!({"n_predict": 5, "max_tokens": 5})).is_ok());
    }

    #[test]
    fn spellings_that_conflict_are_both_named() {
        for (first, second) in
            [("n_predict", "max_tokens"), ("max_tokens", "n_predict"), ("n_predict", "max_length")]
        {
            let error = read(json!({ first: 5, "top_p": 1, second: 6 })).err().unwrap();
            assert_eq!(error.code, Code::ConflictingParameters);
            let named = |name: &str| error.message.contains(name);
            assert!(named(first) && named(second), "{}", error.message);
        }
    }

    #[test]
    fn types_and_ranges_are_checked_and_null_is_absent() {
        for nothing in [json!(""), json!([]), json!({}), json!(null)] {
            let body = json!({"top_p": nothing, "user": nothing, "mode": nothing, "list": nothing,
                "inner": nothing, "max_tokens": nothing});
            assert_eq!(read(body).unwrap(), read(json!({})).unwrap(), "{nothing}");
        }
        for value in [json!("1"), json!(1.5), json!(true), json!([1]), json!({"a": 1})] {
            let expected = (Code::InvalidType, "max_tokens".to_owned());
            assert_eq!(refused(json!({ "max_tokens": value })), expected, "{value}");
        }
        for value in [json!(-2), json!(101), json!(u64::MAX)] {
            assert_eq!(refused(json!({ "max_tokens": value })).0, Code::OutOfRange, "{value}");
        }
        assert_eq!(refused(json!({"top_p": 1.01})).0, Code::OutOfRange);
        assert_eq!(refused(json!({"user": "123456789"})).0, Code::OutOfRange);
        assert_eq!(refused(json!({"mode": "c"})).0, Code::UnsupportedValue);
        assert_eq!(refused(json!({"echo": 1})).0, Code::InvalidType);
        assert_eq!(refused(json!({"list": {"a": 1}})).0, Code::InvalidType);
    }

    #[test]
    fn what_is_wrong_within_a_field_is_found_by_its_path() {
        for (body, code, path) in [
            (json!({"inner": {"on": 1, "n": 1}}), Code::InvalidType, "inner.on"),
            (json!({"inner": {"on": true}}), Code::MissingParameter, "inner.n"),
            (json!({"inner": {"n": "1"}}), Code::InvalidType, "inner.n"),
            (json!({"inner": {"n": -1}}), Code::OutOfRange, "inner.n"),
            (json!({"inner": {"n": 1, "mode": "c"}}), Code::UnsupportedValue, "inner.mode"),
            (json!({"inner": [1]}), Code::InvalidType, "inner"),
            (json!({"list": ["a", 5]}), Code::InvalidType, "list[1]"),
        ] {
            assert_eq!(refused(body.clone()), (code, path.to_owned()), "{body}");
        }
        let error = read(json!({"inner": {"n": 1, "mode": "c"}})).unwrap_err();
        assert_eq!(error.message, "inner.mode must be one of a or b");
    }

    #[test]
    fn the_first_part_gets_a_field_and_what_must_be_there_is_missed() {
        let body = json!({"need": [], "user": "u"});
        let (own, other) =
            <(Own, Other)>::read::<()>(body.as_object().unwrap().clone()).unwrap().body;
        assert_eq!((own.user.as_deref(), other.user), (Some("u"), None));
        assert_eq!(other.need, json!([]));
        let body = json!({"need": null}).as_object().unwrap().clone();
        let error = <(Own, Other)>::read::<()>(body).err().unwrap();
        assert_eq!((error.code, error.param.as_deref()), (Code::MissingParameter, Some("need")));
    }

    #[test]
    fn unknown_names_are_remembered() {
        let body = json!({"max_token": 1, "top_p": 0.5}).as_object().unwrap().clone();
        let given = <(Own,)>::read::<()>(body).unwrap();
        assert_eq!(given.unknown, ["max_token"]);
        assert!(given.refuse_unknown("max_token").message.contains("max_tokens"));
    }
}
