//! Methods of Python strings, lists and dictionaries that templates call.

use std::sync::{PoisonError, RwLock};

use minijinja::value::{ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;

use super::budget::{Budget, size};
use super::python;
use super::twin::Twins;

/// Longest run of digits in a format string; longer ones ask for absurd widths.
const FORMAT_DIGITS_MAX: usize = 4;

/// String methods whose first argument is looked for in the string.
const SEARCHING: [&str; 16] = [
    "count",
    "endswith",
    "find",
    "index",
    "lstrip",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "startswith",
    "strip",
];

/// Calls `value.name(args)`.
pub(super) fn call(
    budget: &Budget,
    twins: &RwLock<Twins>,
    state: &mut State<'_, '_>,
    value: &Value,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    budget.charge(size(value))?;
    budget.charge_values(args)?;
    let spelled = spell_args(twins, value, name, args);
    let args = spelled.as_deref().unwrap_or(args);
    let result = match (value.as_str(), name, args) {
        (Some(_), "replace", [from, to, ..]) => {
            check_replace(budget, value, from, to)?;
            unknown_method_callback(state, value, name, args)?
        }
        (Some(_), "join", [list]) => {
            check_join(budget, list, Some(value))?;
            unknown_method_callback(state, value, name, args)?
        }
        (Some(text), "format", _) => {
            let wide =
                text.split(|c: char| !c.is_ascii_digit()).any(|d| d.len() > FORMAT_DIGITS_MAX);
            if wide || text.len() > 4096 {
                return Err(Error::new(ErrorKind::InvalidOperation, "the format is too wide"));
            }
            unknown_method_callback(state, value, name, args)?
        }
        (Some(text), _, _) => match string_method(text, name, args)? {
            Some(result) => result,
            None => unknown_method_callback(state, value, name, args)?,
        },
        (None, "copy", []) if matches!(value.kind(), ValueKind::Map | ValueKind::Seq) => {
            value.clone()
        }
        _ => unknown_method_callback(state, value, name, args)?,
    };
    budget.charge(size(&result))?;
    Ok(result)
}

/// Arguments that are searched for in content are spelled as content spells them.
fn spell_args(
    twins: &RwLock<Twins>,
    value: &Value,
    name: &str,
    args: &[Value],
) -> Option<Vec<Value>> {
    let twins = twins.read().unwrap_or_else(PoisonError::into_inner);
    if !SEARCHING.contains(&name) || !value.as_str().is_some_and(|text| twins.occur_in(text)) {
        return None;
    }
    let spell = |arg: &Value| match (arg.as_str(), arg.kind()) {
        // Sets of characters to strip: both spellings of each.
        (Some(text), _) if name.ends_with("strip") => {
            Value::from(format!("{text}{}", twins.spell(text)))
        }
        (Some(text), _) => Value::from(twins.spell(text)),
        (None, ValueKind::Seq) => arg.try_iter().map_or_else(
            |_| arg.clone(),
            |items| {
                items.map(|i| i.as_str().map_or(i.clone(), |t| twins.spell(t).into())).collect()
            },
        ),
        _ => arg.clone(),
    };
    let mut spelled: Vec<Value> = args.to_vec();
    if let Some(first) = spelled.first_mut() {
        *first = spell(first);
    }
    Some(spelled)
}

/// String methods the compatibility layer does not know.
fn string_method(text: &str, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    Ok(Some(match name {
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            let first = name == "partition";
            let cut = if first { text.split_once(separator) } else { text.rsplit_once(separator) };
            let parts = match cut {
                Some((before, after)) => [before, separator, after],
                None if first => [text, "", ""],
                None => ["", "", text],
            };
            parts.into_iter().map(Value::from).collect::<Vec<_>>().into()
        }
        "rsplit" if !args.is_empty() => {
            let (separator, limit): (&str, Option<i64>) = from_args(args)?;
            if separator.is_empty() {
                return Err(Error::new(ErrorKind::InvalidOperation, "empty separator"));
            }
            let mut parts: Vec<Value> = match limit.and_then(|n| usize::try_from(n).ok()) {
                Some(n) => text.rsplitn(n.saturating_add(1), separator).map(Value::from).collect(),
                None => text.rsplit(separator).map(Value::from).collect(),
            };
            parts.reverse();
            parts.into()
        }
        _ => return Ok(None),
    }))
}

/// Pays for the text that replacing will build.
pub(super) fn check_replace(
    budget: &Budget,
    text: &Value,
    from: &Value,
    to: &Value,
) -> Result<(), Error> {
    let (Some(text), Some(from)) = (text.as_str(), from.as_str()) else { return Ok(()) };
    let places = if from.is_empty() { text.len() + 1 } else { text.matches(from).count() };
    budget.build(places.saturating_mul(size(to)).saturating_add(text.len()))
}

/// Pays for the text that joining will build.
pub(super) fn check_join(
    budget: &Budget,
    list: &Value,
    separator: Option<&Value>,
) -> Result<(), Error> {
    if !matches!(list.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map) {
        return Ok(());
    }
    let separator = separator.map_or(0, size);
    let mut total = 0usize;
    for item in list.try_iter()? {
        // Lists inside the list are written out, strings are copied.
        let len = match item.as_str() {
            Some(text) => text.len(),
            None => python::to_str(budget, &item)?.len(),
        };
        total = total.saturating_add(len).saturating_add(separator);
    }
    budget.build(total)
}
