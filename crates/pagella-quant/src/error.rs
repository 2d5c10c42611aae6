//! What can go wrong between a checkpoint and its quantised copy, one variant per remedy.

use std::path::PathBuf;

use pagella_arch::ArchError;
use pagella_backend::{BackendError, PlanError};
use pagella_formats::FormatError;
use pagella_model::ModelError;

/// Why a model could not be quantised.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QuantError {
    /// A file or tensor is not what it should be.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The configuration is refused.
    #[error(transparent)]
    Arch(#[from] ArchError),
    /// The model does not load or run.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The machine refused or failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A step was put together wrongly.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The tokenizer or chat template of the model does not work.
    #[error(transparent)]
    Text(#[from] pagella_text::TextError),
    /// There is nothing to calibrate with.
    #[error(
        "{}: there is no tokenizer to calibrate with text, and --low-memory leaves out the model's own \
         writing: add the tokenizer's files, or leave out --low-memory",
        dir.display()
    )]
    NoCalibration {
        /// The model.
        dir: PathBuf,
    },
    /// A calibration file that cannot be used.
    #[error("{}: {problem}", path.display())]
    BadCalibration {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        problem: String,
    },
    /// A calibration file with next to nothing in it.
    #[error("{}: only {tokens} tokens; at least {min} are needed, and thousands are better", path.display())]
    TooLittleText {
        /// The file.
        path: PathBuf,
        /// Tokens in it.
        tokens: usize,
        /// Tokens needed.
        min: usize,
    },
    /// More rows than memory, which all of them take while the model writes them.
    #[error(
        "{rows} rows of {length} tokens that the model writes itself take a cache of {bytes} bytes, more \
         than there are: ask for less (--rows, --length), or add --low-memory"
    )]
    TooManyRows {
        /// Rows.
        rows: usize,
        /// Tokens of each.
        length: usize,
        /// Bytes that could not be had.
        bytes: usize,
    },
    /// A source with weights that are quantised.
    #[error("{}: `{linear}` is quantised already: start from the weights that it was made of", dir.display())]
    AlreadyQuantized {
        /// The model.
        dir: PathBuf,
        /// A linear that is.
        linear: String,
    },
    /// A source of which no linear of a layer can be stored.
    #[error(
        "no linear of its layers has a multiple of 32 inputs, as EXL2 stores them: use the model as it is"
    )]
    Nothing,
    /// A model that computes what is not a number.
    #[error("{}: values {place} are not finite: its weights are damaged", dir.display())]
    NotFinite {
        /// The model.
        dir: PathBuf,
        /// Where they were found.
        place: String,
    },
    /// Two models that cannot be compared.
    #[error(
        "the models differ in shape, {first} against {second}: compare a model with a quantised copy of it"
    )]
    OtherShape {
        /// Layers, width and vocabulary of the first.
        first: String,
        /// Those of the second.
        second: String,
    },
    /// A linear of which nothing was measured.
    #[error(
        "the measurement says nothing of `{linear}`: measure the model anew, without --measurement"
    )]
    Unmeasured {
        /// The linear.
        linear: String,
    },
    /// A measurement that was made of a model with other sizes.
    #[error(
        "the measurement is of another model: `{half}` takes {measured} bits there and {expected} here; \
         measure this one, without --measurement"
    )]
    OtherMeasured {
        /// Half a layer.
        half: String,
        /// Its bits in the measurement.
        measured: u64,
        /// Its bits in the model.
        expected: u64,
    },
    /// A tensor that no shard can hold.
    #[error("`{tensor}` has {bytes} bytes, more than the {limit} of a shard: raise --shard-size")]
    ShardTooSmall {
        /// The tensor.
        tensor: String,
        /// Its bytes.
        bytes: u64,
        /// Largest shard.
        limit: u64,
    },
    /// The work of another command is in the way.
    #[error(
        "{} holds unfinished work with another {difference}: run that command again to finish it, or \
         give --no-resume to throw it away", job.display()
    )]
    OtherJob {
        /// The folder of the job.
        job: PathBuf,
        /// The first option that differs.
        difference: String,
    },
    /// There is something where the model is to be written.
    #[error("{} exists and is not empty: choose another folder for the model", dir.display())]
    NotEmpty {
        /// The folder.
        dir: PathBuf,
    },
    /// Something else than a folder stands where the model is to be written.
    #[error("{} is no folder: choose another name for the model", dir.display())]
    NoFolder {
        /// What stands there.
        dir: PathBuf,
    },
    /// A place that has no name, or that the program stands in.
    #[error("{}: give the model a new folder, such as {}", dir.display(), dir.join("model").display())]
    NoName {
        /// What was asked for.
        dir: PathBuf,
    },
    /// Another program works on the same model.
    #[error("{}: another program works there: wait for it, or choose another folder for the model", job.display())]
    Busy {
        /// The folder of the job.
        job: PathBuf,
    },
    /// Somebody asked to stop; what was done is kept.
    #[error("stopped; the same command goes on from {}", job.display())]
    Stopped {
        /// Where the work so far is.
        job: PathBuf,
    },
    /// A file could not be read or written.
    #[error("{}: {action}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried, e.g. `cannot write`.
        action: &'static str,
        /// Why not.
        source: std::io::Error,
    },
    /// Weights that EXL2 cannot hold.
    #[error("`{linear}`: {reason}; take weights that are whole and of a supported shape")]
    Weights {
        /// The linear.
        linear: String,
        /// What is wrong with them.
        reason: String,
    },
    /// Calibration made numbers that are not finite.
    #[error(
        "the activations that enter `{source_name}` are not finite, or too large, at input {input}: \
         the weights before it are damaged, or do not fit the configuration"
    )]
    Activations {
        /// The linear that they enter.
        source_name: String,
        /// Index of the input.
        input: usize,
    },
    /// Damping did not make a Hessian invertible.
    #[error(
        "the Hessian of what enters `{source_name}` has no inverse after adding {damping:e} to its \
         diagonal in {attempts} steps: calibrate with more text, or raise the damping"
    )]
    NotInvertible {
        /// The linear that was fed with it.
        source_name: String,
        /// Steps of damping.
        attempts: u32,
        /// What was added in the end.
        damping: f64,
    },
    /// Parameters that cannot be written as EXL2.
    #[error("parameters `{params}`: {fault}")]
    Params {
        /// The parameters.
        params: String,
        /// What is wrong with them.
        fault: String,
    },
    /// A width of the output head that has no preset.
    #[error("{bits} bits for the output head; 2, 3, 4, 5, 6 or 8 are possible")]
    HeadBits {
        /// What was asked for.
        bits: u32,
    },
    /// A linear and what was prepared for it have different numbers of inputs.
    #[error("`{linear}` has {found} inputs, its Hessian {expected}")]
    InputsMismatch {
        /// The linear.
        linear: String,
        /// Inputs of the Hessian.
        expected: usize,
        /// Inputs of the linear.
        found: usize,
    },
    /// No choice of parameters has the size asked for.
    #[error(
        "{bits} bits per weight cannot be reached: this model can be stored at {smallest:.4} to \
         {largest:.4}"
    )]
    Unreachable {
        /// What was asked for.
        bits: f64,
        /// What the smallest parameters take.
        smallest: f64,
        /// What the most precise parameters take.
        largest: f64,
    },
    /// What was measured leaves nothing to choose from.
    #[error("`{slot}`: {fault}: measure again")]
    Slot {
        /// The linears it was measured for.
        slot: String,
        /// What is wrong.
        fault: String,
    },
    /// A measurement that cannot be used.
    #[error("{}: {place}: {fault}", path.display())]
    Measurement {
        /// The file.
        path: PathBuf,
        /// The entry at fault.
        place: String,
        /// What is wrong with it.
        fault: String,
    },
    /// Quantised weights that do not fit the tensors of the format.
    #[error("`{linear}` cannot be packed: {source}")]
    Pack {
        /// The linear.
        linear: String,
        /// Why not.
        source: pagella_formats::exl2::pack::PackError,
    },
}

impl QuantError {
    /// Says of a file what was tried when the system refused.
    pub(crate) fn io(
        path: &std::path::Path,
        action: &'static str,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, action, source }
    }
}
