//! How Python writes values: `str`, `repr` and `json.dumps`, because published templates expect it.
//! Everything here is bounded in depth and pays for what it writes.

use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, Value};

use super::budget::{Budget, DEPTH_MAX};

/// Widest indentation of `tojson`.
const INDENT_MAX: usize = 64;

/// `str(value)`; an undefined value is empty, as Jinja has it.
pub(super) fn to_str(budget: &Budget, value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    match value.kind() {
        ValueKind::Undefined => {}
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default();
            budget.build(text.len())?;
            out.push_str(text);
        }
        _ => repr(budget, value, 0, &mut out)?,
    }
    Ok(out)
}

fn repr(budget: &Budget, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
    check_depth(budget, depth)?;
    budget.build(out.len().min(64))?;
    match value.kind() {
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => number(value, out),
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default();
            budget.build(out.len().saturating_add(text.len().saturating_mul(2)))?;
            quote(text, out);
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let (open, close) = if value.is_tuple() { ('(', ')') } else { ('[', ']') };
            out.push(open);
            for (i, item) in value.try_iter()?.enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                repr(budget, &item, depth + 1, out)?;
            }
            if value.is_tuple() && value.len() == Some(1) {
                out.push(',');
            }
            out.push(close);
        }
        ValueKind::Map => {
            out.push('{');
            for (i, key) in value.try_iter()?.enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                repr(budget, &key, depth + 1, out)?;
                out.push_str(": ");
                repr(budget, &value.get_item(&key)?, depth + 1, out)?;
            }
            out.push('}');
        }
        kind => {
            let problem = format!("a value of type {kind} cannot be written");
            return Err(Error::new(ErrorKind::InvalidOperation, problem));
        }
    }
    Ok(())
}

/// `repr` of a string: single quotes unless only those occur inside.
fn quote(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            c if c == quote => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\x{:02x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push(quote);
}

fn number(value: &Value, out: &mut String) {
    if value.is_integer() {
        return out.push_str(&value.to_string());
    }
    match f64::try_from(value.clone()) {
        Ok(x) => out.push_str(&float(x)),
        Err(_) => out.push_str(&value.to_string()),
    }
}

/// The shortest text that reads back as `x`, in Python's notation.
fn float(x: f64) -> String {
    if x.is_nan() {
        return "nan".into();
    }
    if x.is_infinite() {
        return if x > 0.0 { "inf".into() } else { "-inf".into() };
    }
    if x != 0.0 && !(1e-4..1e16).contains(&x.abs()) {
        let text = format!("{x:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, digits) = match exponent.strip_prefix('-') {
            Some(digits) => ('-', digits),
            None => ('+', exponent),
        };
        return format!("{mantissa}e{sign}{digits:0>2}");
    }
    let text = x.to_string();
    if text.contains('.') { text } else { text + ".0" }
}

/// Layout of `tojson`, with the defaults of Python's `json.dumps`.
struct Layout {
    indent: Option<String>,
    item: String,
    key: String,
    sort_keys: bool,
    ascii: bool,
}

/// The filter `tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
pub(super) fn to_json(budget: &Budget, value: &Value, kwargs: &Kwargs) -> Result<String, Error> {
    let indent = match kwargs.get::<Option<Value>>("indent")? {
        None => None,
        Some(v) if v.is_none() || v.is_undefined() => None,
        Some(v) => Some(indentation(&v)?),
    };
    let separators = kwargs.get::<Option<Vec<String>>>("separators")?;
    let (item, key) = match separators.as_deref() {
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => {
            let problem = "separators must be two strings";
            return Err(Error::new(ErrorKind::InvalidOperation, problem));
        }
        None => ((if indent.is_some() { "," } else { ", " }).into(), ": ".into()),
    };
    if item.len() + key.len() > INDENT_MAX {
        return Err(Error::new(ErrorKind::InvalidOperation, "separators are too long"));
    }
    let layout = Layout {
        indent,
        item,
        key,
        sort_keys: kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
        ascii: kwargs.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
    };
    kwargs.assert_all_used()?;
    let mut out = String::new();
    json(budget, value, &layout, 0, &mut out)?;
    Ok(out)
}

fn indentation(value: &Value) -> Result<String, Error> {
    let bad =
        || Error::new(ErrorKind::InvalidOperation, format!("indent is not 0 to {INDENT_MAX}"));
    match value.as_str() {
        Some(s) if s.len() <= INDENT_MAX => Ok(s.into()),
        Some(_) => Err(bad()),
        None => {
            let n = value.as_usize().filter(|n| *n <= INDENT_MAX).ok_or_else(bad)?;
            Ok(" ".repeat(n))
        }
    }
}

fn json(
    budget: &Budget,
    value: &Value,
    layout: &Layout,
    depth: usize,
    out: &mut String,
) -> Result<(), Error> {
    check_depth(budget, depth)?;
    budget.build(out.len().min(64))?;
    match value.kind() {
        ValueKind::None | ValueKind::Undefined => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => {
            let mut text = String::new();
            number(value, &mut text);
            out.push_str(match text.as_str() {
                "nan" => "NaN",
                "inf" => "Infinity",
                "-inf" => "-Infinity",
                other => other,
            });
        }
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default();
            budget.build(out.len().saturating_add(text.len().saturating_mul(2)))?;
            json_string(text, layout.ascii, out);
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<Value> = value.try_iter()?.collect();
            sequence(items, ('[', ']'), layout, depth, out, &mut |item, out| {
                json(budget, &item, layout, depth + 1, out)
            })?;
        }
        ValueKind::Map => {
            let mut keys: Vec<Value> = value.try_iter()?.collect();
            if layout.sort_keys {
                keys.sort();
            }
            sequence(keys, ('{', '}'), layout, depth, out, &mut |key, out| {
                json_string(&to_str(budget, &key)?, layout.ascii, out);
                out.push_str(&layout.key);
                json(budget, &value.get_item(&key)?, layout, depth + 1, out)
            })?;
        }
        kind => {
            let problem = format!("a value of type {kind} is not JSON serialisable");
            return Err(Error::new(ErrorKind::InvalidOperation, problem));
        }
    }
    Ok(())
}

/// Brackets, separators and line breaks around the items of a list or map.
fn sequence(
    items: Vec<Value>,
    (open, close): (char, char),
    layout: &Layout,
    depth: usize,
    out: &mut String,
    write: &mut dyn FnMut(Value, &mut String) -> Result<(), Error>,
) -> Result<(), Error> {
    let line = |depth: usize, out: &mut String| {
        if let Some(indent) = &layout.indent {
            out.push('\n');
            out.push_str(&indent.repeat(depth));
        }
    };
    let any = !items.is_empty();
    out.push(open);
    for (i, item) in items.into_iter().enumerate() {
        if i > 0 {
            out.push_str(&layout.item);
        }
        line(depth + 1, out);
        write(item, out)?;
    }
    if any {
        line(depth, out);
    }
    out.push(close);
    Ok(())
}

fn json_string(text: &str, ascii: bool, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c if ascii && !(' '..='~').contains(&c) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

fn check_depth(budget: &Budget, depth: usize) -> Result<(), Error> {
    if depth > DEPTH_MAX { Err(budget.trip("nesting", DEPTH_MAX as u64)) } else { Ok(()) }
}
