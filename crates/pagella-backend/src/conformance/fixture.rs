//! Tensors, steps and messages, as all cases need them.

use std::fmt::Display;

use crate::{Backend, BackendError, LogitUse, PAGE_TOKENS, StepPlan, StepRow};

/// Spare rows of every tensor: a model allocates for its largest step.
const SPARE_ROWS: usize = 2;

/// An unexpected error, as the message of a failed case.
pub(super) fn text(error: impl Display) -> String {
    format!("unexpected error: {error}")
}

/// Uploads `values` as rows of `width`, followed by spare rows of NaN.
pub(super) fn upload<B: Backend>(
    backend: &B,
    width: usize,
    values: &[f32],
) -> Result<B::Tensor, String> {
    let mut padded = values.to_vec();
    padded.resize(values.len() + SPARE_ROWS * width, f32::NAN);
    backend.write(padded.len() / width, width, &padded).map_err(text)
}

/// A tensor of NaN, to be written by an op.
pub(super) fn poisoned<B: Backend>(
    backend: &B,
    rows: usize,
    width: usize,
) -> Result<B::Tensor, String> {
    upload(backend, width, &vec![f32::NAN; rows * width])
}

/// Reads the first `rows` rows.
pub(super) fn download<B: Backend>(
    backend: &B,
    tensor: &B::Tensor,
    rows: usize,
) -> Result<Vec<f32>, String> {
    // Something to be replaced: `read` must not append.
    let mut values = vec![f32::NAN; 3];
    backend.read(tensor, rows, &mut values).map_err(text)?;
    Ok(values)
}

/// A step of one row with `tokens` new tokens, for ops that look at nothing else.
pub(super) fn step<B: Backend>(backend: &B, tokens: usize) -> Result<B::Step, String> {
    let ids = vec![0; tokens];
    let pages: Vec<u32> = (0..tokens.div_ceil(PAGE_TOKENS) as u32).collect();
    step_of(backend, &[StepRow::new(&ids, 0, &pages, LogitUse::None)])
}

/// A step of these rows.
pub(super) fn step_of<B: Backend>(backend: &B, rows: &[StepRow<'_>]) -> Result<B::Step, String> {
    let plan = StepPlan::new(rows).map_err(text)?;
    backend.begin(&plan).map_err(text)
}

/// The call was refused because of a size.
pub(super) fn refused_size<T>(what: &str, result: Result<T, BackendError>) -> Result<(), String> {
    match result {
        Err(BackendError::Size { .. }) => Ok(()),
        Err(other) => Err(format!("{what}: expected a size error, found: {other}")),
        Ok(_) => Err(format!("{what}: expected a size error, but it was accepted")),
    }
}
