//! Python values as JSON and back.

use pyo3::exceptions::{PyRecursionError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyNone, PyString, PyTuple};
use serde_json::{Map, Number, Value};

/// Deepest value that is read; deeper ones are most likely endless.
const DEPTH_MAX: usize = 128;

/// A Python value as JSON. NumPy's scalars count as numbers; a set is a list.
pub fn from_python(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    read(value, DEPTH_MAX)
}

fn read(value: &Bound<'_, PyAny>, depth: usize) -> PyResult<Value> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(PyRecursionError::new_err("the value is nested too deeply to be JSON"));
    };
    if value.is_none() {
        return Ok(Value::Null);
    }
    if let Ok(on) = value.cast::<PyBool>() {
        return Ok(Value::Bool(on.is_true()));
    }
    if value.is_instance_of::<PyInt>() {
        return integer(value);
    }
    if value.is_instance_of::<PyFloat>() {
        return Ok(number(value.extract()?));
    }
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(Value::String(text.to_str()?.to_owned()));
    }
    if let Ok(dict) = value.cast::<PyDict>() {
        let mut map = Map::new();
        for (key, value) in dict.iter() {
            map.insert(key_text(&key)?, read(&value, depth)?);
        }
        return Ok(Value::Object(map));
    }
    let is_list = value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>();
    if is_list || (value.hasattr("__iter__")? && !value.hasattr("keys")?) {
        let items = value.try_iter()?.map(|item| read(&item?, depth));
        return Ok(Value::Array(items.collect::<PyResult<_>>()?));
    }
    if value.hasattr("__index__")? {
        return integer(&value.call_method0("__index__")?);
    }
    if value.hasattr("__float__")? {
        return Ok(number(value.call_method0("__float__")?.extract()?));
    }
    Err(PyTypeError::new_err(format!("{} is no JSON value", value.get_type().name()?)))
}

fn integer(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    match value.extract::<i64>() {
        Ok(whole) => Ok(whole.into()),
        Err(_) => Ok(value
            .extract::<u64>()
            .map_or_else(|_| value.extract::<f64>().map_or(Value::Null, number), Value::from)),
    }
}

/// JSON has no infinity; settings read the words.
fn number(number: f64) -> Value {
    match Number::from_f64(number) {
        Some(number) => Value::Number(number),
        None if number == f64::INFINITY => "inf".into(),
        None if number == f64::NEG_INFINITY => "-inf".into(),
        None => "nan".into(),
    }
}

/// Keys of JSON are texts; ids are written as numbers.
fn key_text(key: &Bound<'_, PyAny>) -> PyResult<String> {
    match key.cast::<PyString>() {
        Ok(text) => Ok(text.to_str()?.to_owned()),
        Err(_) if key.hasattr("__index__")? => {
            Ok(key.call_method0("__index__")?.str()?.to_string())
        }
        Err(_) => Err(PyTypeError::new_err("a key of a JSON object must be a text")),
    }
}

/// JSON as a Python value.
pub fn to_python(py: Python<'_>, value: &Value) -> PyResult<Py<PyAny>> {
    Ok(match value {
        Value::Null => PyNone::get(py).to_owned().into_any().unbind(),
        Value::Bool(on) => PyBool::new(py, *on).to_owned().into_any().unbind(),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(whole), _) => whole.into_pyobject(py)?.into_any().unbind(),
            (None, Some(whole)) => whole.into_pyobject(py)?.into_any().unbind(),
            (None, None) => {
                PyFloat::new(py, number.as_f64().unwrap_or(f64::NAN)).into_any().unbind()
            }
        },
        Value::String(text) => PyString::new(py, text).into_any().unbind(),
        Value::Array(items) => {
            let items = items.iter().map(|item| to_python(py, item));
            PyList::new(py, items.collect::<PyResult<Vec<_>>>()?)?.into_any().unbind()
        }
        Value::Object(map) => {
            let dict = PyDict::new(py);
            for (key, value) in map {
                dict.set_item(key, to_python(py, value)?)?;
            }
            dict.into_any().unbind()
        }
    })
}
