//! `Array`: numbers that Rust computed, for Python to look at without a copy.
//!
//! It speaks NumPy's array interface, so `numpy.asarray(array)` is a view that keeps the array alive and
//! cannot be written; nothing here needs NumPy.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

enum Numbers {
    F32(Vec<f32>),
    I64(Vec<i64>),
}

/// Numbers of some shape, row by row.
#[pyclass(frozen, module = "pagella")]
#[derive(Clone)]
pub struct Array {
    numbers: Arc<Numbers>,
    shape: Vec<usize>,
}

impl Array {
    /// Rows of equal length; `None` without any.
    pub fn rows(rows: Vec<Vec<f32>>) -> Option<Self> {
        let shape = vec![rows.len(), rows.first()?.len()];
        let mut rows = rows.into_iter();
        // One row is the usual case, and is not copied.
        let mut all = rows.next().unwrap_or_default();
        rows.for_each(|row| all.extend(row));
        Some(Self::shaped(all, shape))
    }

    /// Numbers in a row.
    pub fn floats(numbers: Vec<f32>) -> Self {
        let shape = vec![numbers.len()];
        Array { numbers: Arc::new(Numbers::F32(numbers)), shape }
    }

    /// Numbers of this shape.
    pub fn shaped(numbers: Vec<f32>, shape: Vec<usize>) -> Self {
        Array { numbers: Arc::new(Numbers::F32(numbers)), shape }
    }

    /// Token ids in a row.
    pub fn of_ids(ids: &[u32]) -> Self {
        let numbers = ids.iter().map(|id| i64::from(*id)).collect();
        Array { numbers: Arc::new(Numbers::I64(numbers)), shape: vec![ids.len()] }
    }

    /// The ids, if these are ids.
    pub fn ids(&self) -> Option<Vec<u32>> {
        match &*self.numbers {
            Numbers::I64(ids) => ids.iter().map(|id| u32::try_from(*id).ok()).collect(),
            Numbers::F32(_) => None,
        }
    }

    fn slice<'py>(
        &self,
        py: Python<'py>,
        shape: &[usize],
        from: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let width: usize = shape.iter().skip(1).product();
        let n = shape.first().copied().unwrap_or(0);
        if shape.len() > 1 {
            let rows = (0..n).map(|row| self.slice(py, &shape[1..], from + row * width));
            return Ok(PyList::new(py, rows.collect::<PyResult<Vec<_>>>()?)?.into_any());
        }
        Ok(match &*self.numbers {
            Numbers::F32(all) => PyList::new(py, &all[from..from + n])?.into_any(),
            Numbers::I64(all) => PyList::new(py, &all[from..from + n])?.into_any(),
        })
    }
}

#[pymethods]
impl Array {
    /// Length of every axis.
    #[getter]
    fn shape(&self) -> Vec<usize> {
        self.shape.clone()
    }

    /// What the numbers are: float32 or int64.
    #[getter]
    fn dtype(&self) -> &'static str {
        match *self.numbers {
            Numbers::F32(_) => "float32",
            Numbers::I64(_) => "int64",
        }
    }

    /// The numbers as lists.
    fn tolist<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.slice(py, &self.shape, 0)
    }

    /// A view of the numbers as an array of NumPy, which must be installed.
    fn numpy<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("numpy")?.call_method1("asarray", (slf,))
    }

    fn __len__(&self) -> usize {
        self.shape.first().copied().unwrap_or(0)
    }

    fn __getitem__<'py>(&self, py: Python<'py>, index: isize) -> PyResult<Bound<'py, PyAny>> {
        let n = self.__len__();
        let at = if index < 0 { index + n as isize } else { index };
        let at = usize::try_from(at).ok().filter(|at| *at < n);
        let at = at.ok_or_else(|| {
            pyo3::exceptions::PyIndexError::new_err(format!("{index} of {n} entries"))
        })?;
        let width: usize = self.shape.iter().skip(1).product();
        if self.shape.len() > 1 {
            return self.slice(py, &self.shape[1..], at * width);
        }
        self.slice(py, &[1], at)?.get_item(0)
    }

    /// NumPy's array interface, version 3.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (address, kind) = match &*self.numbers {
            Numbers::F32(all) => (all.as_ptr() as usize, "f4"),
            Numbers::I64(all) => (all.as_ptr() as usize, "i8"),
        };
        let order = if cfg!(target_endian = "little") { '<' } else { '>' };
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", pyo3::types::PyTuple::new(py, &self.shape)?)?;
        interface.set_item("typestr", format!("{order}{kind}"))?;
        interface.set_item("data", (address, true))?;
        Ok(interface)
    }

    fn __repr__(&self) -> String {
        format!("<pagella.Array {:?} {}>", self.shape, self.dtype())
    }
}

/// Refuses numbers that do not fill their shape.
pub fn checked(numbers: Vec<f32>, shape: Vec<usize>) -> PyResult<Array> {
    if numbers.len() != shape.iter().product::<usize>() {
        return Err(PyValueError::new_err("the numbers do not fill their shape"));
    }
    Ok(Array::shaped(numbers, shape))
}
