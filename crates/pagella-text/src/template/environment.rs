//! What a template can use: the filters, tests, functions and methods of Jinja that published
//! templates need, each paying for its work. Nothing here reaches outside the rendering.

use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

use minijinja::value::{Kwargs, Rest, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, Output, State, Value, filters};

use super::budget::{Budget, DEPTH_MAX, TemplateLimits, size, weight};
use super::program::{GUARD_ADD, GUARD_CONCAT, GUARD_MUL, GUARD_NEST, GUARD_TICK, ONE};
use super::twin::SharedTwins;
use super::{clock, compare, method, python};

/// What a call of a macro costs of the engine's own limit, which counts frames; a loop costs one.
const CALL_COST: usize = 6;
/// What there is before the first call.
const FIRST_COST: usize = 5;

/// Filters that would build more than they are given, or that print MiniJinja's own notation.
const REMOVED: [&str; 9] =
    ["batch", "chain", "format", "lines", "pprint", "slice", "sum", "urlencode", "zip"];

/// Adds the built-in filters under their names, each behind a guard.
macro_rules! guarded_filters {
    ($env:ident, $budget:ident, $($name:literal => $filter:path,)*) => {$(
        $env.add_filter(concat!("\0", $name), $filter);
        let budget = Arc::clone($budget);
        $env.add_filter($name, move |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| {
            guarded_filter(&budget, state, $name, concat!("\0", $name), &args.into_values())
        });
    )*};
}

/// An environment for one rendering.
pub(super) fn environment(
    budget: &Arc<Budget>,
    twins: &SharedTwins,
    now: SystemTime,
) -> Environment<'static> {
    let mut env = Environment::new();
    let limits = budget.limits();
    env.set_fuel(Some(limits.steps_max));
    let calls = limits.recursion_max.min(TemplateLimits::RECURSION_MAX);
    env.set_recursion_limit(calls * CALL_COST + FIRST_COST);
    for name in REMOVED {
        env.remove_filter(name);
    }
    env.remove_global("debug");
    add_filters(&mut env, budget);
    add_guards(&mut env, budget);
    compare::add(&mut env, twins);
    let b = Arc::clone(budget);
    env.add_function("raise_exception", move |message: Value| -> Result<Value, Error> {
        Err(b.refuse(python::to_str(&b, &message)?))
    });
    env.add_function("strftime_now", move |format: &str| clock::strftime(now, format));
    // Jinja counts everything that has a length and items, strings and maps included.
    env.add_test("sequence", |v: &Value| {
        matches!(v.kind(), ValueKind::Seq | ValueKind::String | ValueKind::Map)
    });
    env.add_test("iterable", |v: &Value| {
        matches!(
            v.kind(),
            ValueKind::Seq | ValueKind::String | ValueKind::Map | ValueKind::Iterable
        )
    });
    let b = Arc::clone(budget);
    let t = Arc::clone(twins);
    env.set_unknown_method_callback(move |state, value, name, args| {
        method::call(&b, &t, state, value, name, args)
    });
    let b = Arc::clone(budget);
    env.set_formatter(move |out: &mut Output<'_>, _: &mut State<'_, '_>, value: &Value| {
        let written = match value.as_str() {
            Some(text) => {
                b.write(text.len())?;
                out.write_str(text)
            }
            None => {
                let text = python::to_str(&b, value)?;
                b.write(text.len())?;
                out.write_str(&text)
            }
        };
        written.map_err(Error::from)
    });
    env
}

fn add_filters(env: &mut Environment<'static>, budget: &Arc<Budget>) {
    guarded_filters! { env, budget,
        "abs" => filters::abs, "attr" => filters::attr, "bool" => filters::bool,
        "capitalize" => filters::capitalize, "count" => filters::length,
        "d" => filters::default, "default" => filters::default, "dictsort" => filters::dictsort,
        "e" => filters::escape, "escape" => filters::escape, "first" => filters::first,
        "float" => filters::float, "groupby" => filters::groupby, "indent" => filters::indent,
        "int" => filters::int, "items" => filters::items, "join" => filters::join,
        "last" => filters::last, "length" => filters::length, "list" => filters::list,
        "lower" => filters::lower, "map" => filters::map, "max" => filters::max,
        "min" => filters::min, "reject" => filters::reject, "rejectattr" => filters::rejectattr,
        "replace" => filters::replace, "reverse" => filters::reverse, "round" => filters::round,
        "safe" => filters::safe, "select" => filters::select, "selectattr" => filters::selectattr,
        "sort" => filters::sort, "split" => filters::split,
        "title" => filters::title, "trim" => filters::trim, "unique" => filters::unique,
        "upper" => filters::upper,
    }
    let b = Arc::clone(budget);
    env.add_filter("string", move |v: &Value| python::to_str(&b, v));
    let b = Arc::clone(budget);
    env.add_filter("tojson", move |v: &Value, kwargs: Kwargs| python::to_json(&b, v, &kwargs));
}

fn guarded_filter(
    budget: &Budget,
    state: &mut State<'_, '_>,
    name: &str,
    target: &str,
    args: &[Value],
) -> Result<Value, Error> {
    budget.charge_values(args)?;
    match (name, args) {
        ("replace", [text, from, to, ..]) => method::check_replace(budget, text, from, to)?,
        ("join", [list, rest @ ..]) => method::check_join(budget, list, rest.first())?,
        ("indent", [text, rest @ ..]) => {
            let named = |v: &Value| Kwargs::try_from(v.clone()).ok()?.get::<usize>("width").ok();
            let width = rest.iter().find_map(|v| v.as_usize().or_else(|| named(v))).unwrap_or(4);
            let lines = text.as_str().map_or(0, |t| t.matches('\n').count() + 1);
            budget.build(width.saturating_mul(lines).saturating_add(size(text)))?;
        }
        _ => {}
    }
    let result = state.apply_filter(target, args)?;
    budget.charge(size(&result))?;
    Ok(result)
}

fn add_guards(env: &mut Environment<'static>, budget: &Arc<Budget>) {
    env.add_global(ONE, 1);
    let b = Arc::clone(budget);
    env.add_function(GUARD_CONCAT, move |left: Value, right: Value| concat(&b, &left, &right));
    let b = Arc::clone(budget);
    env.add_function(GUARD_ADD, move |left: Value, right: Value| -> Result<Value, Error> {
        match (left.kind(), right.kind()) {
            (ValueKind::String, ValueKind::String) => concat(&b, &left, &right).map(Value::from),
            (ValueKind::Seq | ValueKind::Iterable, ValueKind::Seq | ValueKind::Iterable) => {
                b.charge_values(&[left.clone(), right.clone()])?;
                b.build_list(size(&left).saturating_add(size(&right)))?;
                // Lists are joined lazily; making the result real keeps chains of joins flat.
                let items = left.try_iter()?.chain(right.try_iter()?);
                Ok(items.collect::<Vec<_>>().into())
            }
            _ => plain("a + b", left, right),
        }
    });
    let b = Arc::clone(budget);
    env.add_function(GUARD_MUL, move |left: Value, right: Value| -> Result<Value, Error> {
        let product = |a: &Value, n: &Value| size(a).saturating_mul(n.as_usize().unwrap_or(0));
        match (left.kind(), right.kind()) {
            (ValueKind::Number, ValueKind::Number) => {}
            (ValueKind::String, _) => b.build(product(&left, &right))?,
            (_, ValueKind::String) => b.build(product(&right, &left))?,
            (list, _) => {
                let (list, times) = match list {
                    ValueKind::Number => (&right, &left),
                    _ => (&left, &right),
                };
                b.build_list(product(list, times))?;
                b.charge(weight(list).saturating_mul(times.as_usize().unwrap_or(0)))?;
                // Repeated lists are lazy, and lazy ones have no size to pay for.
                let items: Vec<Value> = list.try_iter()?.collect();
                let n = times.as_usize().unwrap_or(0);
                return Ok(items.iter().cycle().take(items.len() * n).cloned().collect());
            }
        }
        plain("a * b", left, right)
    });
    let b = Arc::clone(budget);
    env.add_function(GUARD_NEST, move |value: Value| -> Result<Value, Error> {
        b.charge(weight(&value))?;
        check_nesting(&b, &value, 0)?;
        Ok(value)
    });
    let b = Arc::clone(budget);
    env.add_function(GUARD_TICK, move || b.tick());
}

fn concat(budget: &Budget, left: &Value, right: &Value) -> Result<String, Error> {
    let mut text = python::to_str(budget, left)?;
    let right = python::to_str(budget, right)?;
    budget.build(text.len() + right.len())?;
    text.push_str(&right);
    Ok(text)
}

/// Computes a small expression of `a` and `b` where nothing large can come out.
pub(super) fn plain(expression: &'static str, a: Value, b: Value) -> Result<Value, Error> {
    static PLAIN: LazyLock<Environment<'static>> = LazyLock::new(Environment::new);
    PLAIN.compile_expression(expression)?.eval(minijinja::context! { a, b })
}

/// Values may not nest too deep, and a namespace may not be put into another value: without that
/// rule a template could build a cycle, which printing and comparing would follow for ever.
fn check_nesting(budget: &Budget, value: &Value, depth: usize) -> Result<(), Error> {
    if depth > DEPTH_MAX {
        return Err(budget.trip("nesting", DEPTH_MAX as u64));
    }
    let Some(object) = value.as_object() else { return Ok(()) };
    if object.type_name().ends_with("::Namespace") {
        return Err(budget.refuse("a namespace cannot be stored in another value".into()));
    }
    if !matches!(value.kind(), ValueKind::Seq | ValueKind::Map) {
        return Ok(());
    }
    for item in value.try_iter()? {
        let child = if value.kind() == ValueKind::Map { value.get_item(&item)? } else { item };
        check_nesting(budget, &child, depth + 1)?;
    }
    Ok(())
}
