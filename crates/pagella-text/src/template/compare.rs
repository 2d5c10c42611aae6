//! `==`, `!=` and `in`, which templates use to look into content; all three look through twins.

use std::sync::{Arc, PoisonError, RwLock};

use minijinja::{Environment, Error, Value};

use super::environment::plain;
use super::program::{GUARD_EQ, GUARD_IN, GUARD_NE};
use super::twin::{SharedTwins, Twins};

/// Adds the three comparisons under their guard names.
pub(super) fn add(env: &mut Environment<'static>, twins: &SharedTwins) {
    let t = Arc::clone(twins);
    env.add_function(GUARD_EQ, move |a: Value, b: Value| equal(&t, &a, &b));
    let t = Arc::clone(twins);
    env.add_function(GUARD_NE, move |a: Value, b: Value| !equal(&t, &a, &b));
    let t = Arc::clone(twins);
    env.add_function(GUARD_IN, move |a: Value, b: Value| contains(&t, a, b));
}

fn equal(twins: &RwLock<Twins>, a: &Value, b: &Value) -> bool {
    match (a.as_str(), b.as_str()) {
        (Some(x), Some(y)) => {
            let twins = twins.read().unwrap_or_else(PoisonError::into_inner);
            x == y || twins.plain(x) == twins.plain(y)
        }
        _ => a == b,
    }
}

fn contains(twins: &RwLock<Twins>, needle: Value, haystack: Value) -> Result<bool, Error> {
    let twins = twins.read().unwrap_or_else(PoisonError::into_inner);
    let unspelled = needle.as_str().map(|text| Value::from(&*twins.plain(text)));
    if let Some(text) = haystack.as_str() {
        let needle = unspelled.unwrap_or(needle);
        return Ok(plain("a in b", needle, Value::from(&*twins.plain(text)))?.is_true());
    }
    let found = plain("a in b", needle.clone(), haystack.clone())?.is_true();
    match unspelled {
        Some(text) if !found => Ok(plain("a in b", text, haystack)?.is_true()),
        _ => Ok(found),
    }
}
