//! Token ids in whatever holds them: lists, NumPy arrays, tensors of any library.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::array::Array;

/// What is said of values that are no ids, where a text may be meant as well.
const NEITHER: &str = "a text (str) or token ids are needed: give whole numbers from 0 on in a list, an array or a tensor";

/// Ids of one sequence: a sequence of whole numbers, or anything with `tolist()`, such as an array or a
/// tensor, also of shape (1, n).
pub fn ids(value: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
    if let Ok(array) = value.cast::<Array>() {
        return array.get().ids().ok_or_else(|| PyTypeError::new_err("these are no token ids"));
    }
    if value.is_instance_of::<PyBytes>() || value.is_none() {
        return Err(PyTypeError::new_err(NEITHER));
    }
    let listed = match value.hasattr("tolist")? {
        true => value.call_method0("tolist")?,
        false => value.clone(),
    };
    if let Ok(ids) = listed.extract::<Vec<u32>>() {
        return Ok(ids);
    }
    match listed.extract::<Vec<Vec<u32>>>() {
        Ok(mut rows) if rows.len() == 1 => Ok(rows.pop().unwrap_or_default()),
        Ok(rows) => Err(PyValueError::new_err(format!(
            "{} sequences of token ids were given where one is needed: give one row",
            rows.len()
        ))),
        Err(_) => Err(PyTypeError::new_err(NEITHER)),
    }
}
