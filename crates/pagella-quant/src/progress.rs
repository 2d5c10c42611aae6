//! How far a job is, and whether to go on.

use std::ops::ControlFlow;

use crate::error::QuantError;

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Rows of calibration are made.
    Calibrating,
    /// Candidates are tried on the unquantised model.
    Measuring,
    /// Layers are quantised.
    Quantizing,
    /// Shards are written.
    Writing,
}

impl Stage {
    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Calibrating => "calibrating",
            Stage::Measuring => "measuring",
            Stage::Quantizing => "quantizing",
            Stage::Writing => "writing",
        }
    }
}

/// How far a stage is.
#[derive(Clone, Debug, PartialEq)]
pub struct JobProgress {
    /// The stage.
    pub stage: Stage,
    /// Bits per weight of the model in the making, where several follow each other.
    pub bits: Option<f64>,
    /// From 0 to 1.
    pub done: f64,
    /// What is worked on, e.g. `layers.3`.
    pub part: String,
}

/// Hears of progress; `Break` stops the job, which can go on later.
pub type JobProgressFn<'p> = dyn FnMut(&JobProgress) -> ControlFlow<()> + Send + 'p;

/// Tells progress of one stage.
pub(crate) struct Ticker<'a, 'p> {
    progress: &'a mut JobProgressFn<'p>,
    stage: Stage,
    bits: Option<f64>,
    job: std::path::PathBuf,
}

impl<'a, 'p> Ticker<'a, 'p> {
    /// Of a stage of the job in that folder.
    pub fn new(
        progress: &'a mut JobProgressFn<'p>,
        stage: Stage,
        bits: Option<f64>,
        job: &std::path::Path,
    ) -> Self {
        Self { progress, stage, bits, job: job.to_owned() }
    }

    /// So much is done.
    pub fn tick(&mut self, done: f64, part: &str) -> Result<(), QuantError> {
        let Self { stage, bits, job, .. } = self;
        let told = JobProgress { stage: *stage, bits: *bits, done, part: part.to_owned() };
        match (self.progress)(&told) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(QuantError::Stopped { job: job.clone() }),
        }
    }
}
