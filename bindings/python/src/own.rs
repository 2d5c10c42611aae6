//! A constraint that a program computes itself: a function in Python of the ids written so far.
//!
//! The engine's host threads call it, beside the forward pass where they can; that is the one place where
//! they take the interpreter. It has no state here: whoever goes back or looks ahead asks for another
//! list of ids.

use std::sync::Arc;

use pagella_engine::constraint::{Bitmask, Constraint, ConstraintError, Verdict};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::calls::with_python;
use crate::home::{EngineName, asked_by};

/// What may come next in one place.
#[derive(Clone)]
struct Said {
    /// In increasing order; `None` is everything.
    allowed: Option<Vec<u32>>,
    /// Ids behind which the answer is complete.
    ends: Vec<u32>,
}

/// A function of the ids so far that returns which may come next, and which of these end the answer.
pub struct OwnConstraint {
    call: Arc<Py<PyAny>>,
    /// Whoever waits for the function.
    engine: EngineName,
    /// Ids that end an answer without being part of it.
    end_ids: Arc<[u32]>,
    ids: Vec<u32>,
    /// The last of `ids` was an end.
    completed: bool,
    /// Of the place behind `ids`.
    said: Option<Said>,
}

impl OwnConstraint {
    /// By this function; `end_ids` are the model's own end tokens.
    pub fn new(call: Py<PyAny>, engine: EngineName, end_ids: &[u32]) -> Self {
        let (call, end_ids) = (Arc::new(call), end_ids.into());
        OwnConstraint { call, engine, end_ids, ids: Vec::new(), completed: false, said: None }
    }

    fn ask(&mut self) -> Result<&Said, ConstraintError> {
        let said = match self.said.take() {
            Some(said) => said,
            None => asked_by(self.engine, || with_python(|py| read(self.call.bind(py), &self.ids)))
                .unwrap_or_else(|| Err("Python has ended".to_owned()))
                .map_err(|reason| ConstraintError::Own { reason })?,
        };
        Ok(self.said.insert(said))
    }

    fn stand_at(&mut self, ids: Vec<u32>) {
        (self.ids, self.completed, self.said) = (ids, false, None);
    }
}

/// Calls the function.
fn read(call: &Bound<'_, PyAny>, ids: &[u32]) -> Result<Said, String> {
    let answer = || -> PyResult<Said> {
        let (allowed, ends): (Bound<'_, PyAny>, Bound<'_, PyAny>) =
            call.call1((ids.to_vec(),))?.extract().map_err(|_| {
                PyTypeError::new_err("it must return two values: ids allowed, and ends")
            })?;
        let mut allowed = if allowed.is_none() { None } else { Some(listed(&allowed)?) };
        if let Some(ids) = &mut allowed {
            ids.sort_unstable();
        }
        let ends = if ends.is_none() { Vec::new() } else { listed(&ends)? };
        Ok(Said { allowed, ends })
    };
    answer().map_err(|problem| problem.to_string())
}

fn listed(ids: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
    ids.try_iter()?.map(|id| id?.extract()).collect()
}

impl Constraint for OwnConstraint {
    fn begin(&mut self, prefix: &[u8]) -> Result<(), ConstraintError> {
        self.stand_at(Vec::new());
        // The function knows ids only.
        match prefix.len() {
            0 => Ok(()),
            count => Err(ConstraintError::PrefixNotAllowed { count }),
        }
    }

    fn mask(&mut self, out: &mut Bitmask) -> Result<Verdict, ConstraintError> {
        out.deny_all();
        if self.completed {
            return Ok(Verdict { can_end: true, ..Verdict::default() });
        }
        let end_ids = self.end_ids.clone();
        match &self.ask()?.allowed {
            None => out.allow_all(),
            Some(ids) => ids.iter().for_each(|id| out.allow(*id)),
        }
        let can_end = end_ids.iter().any(|id| out.contains(*id));
        Ok(Verdict { can_end, ..Verdict::default() })
    }

    fn accept(&mut self, id: u32) -> Result<(), ConstraintError> {
        if self.completed {
            return Err(ConstraintError::NotAllowed { id });
        }
        let said = self.ask()?;
        if said.allowed.as_ref().is_some_and(|ids| ids.binary_search(&id).is_err()) {
            return Err(ConstraintError::NotAllowed { id });
        }
        let completed = said.ends.contains(&id);
        self.ids.push(id);
        (self.completed, self.said) = (completed, None);
        Ok(())
    }

    fn viable(&mut self, _bytes: &[u8]) -> Result<usize, ConstraintError> {
        Ok(0)
    }

    fn is_completed(&self) -> bool {
        self.completed
    }

    fn rewind(&mut self, n: usize) -> bool {
        let Some(kept) = self.ids.len().checked_sub(n) else { return false };
        if n > 0 {
            let mut ids = std::mem::take(&mut self.ids);
            ids.truncate(kept);
            self.stand_at(ids);
        }
        true
    }

    fn fork(&self) -> Box<dyn Constraint> {
        Box::new(OwnConstraint {
            call: self.call.clone(),
            engine: self.engine,
            end_ids: self.end_ids.clone(),
            ids: self.ids.clone(),
            completed: self.completed,
            said: self.said.clone(),
        })
    }
}
