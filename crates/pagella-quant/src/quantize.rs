//! The whole job: calibration, measurement, allocation, quantisation, files.

use std::path::{Path, PathBuf};

use pagella_arch::{ModelSpec, SpecOptions, load_spec};
use pagella_backend::Backend;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::calibration::{CalibrationOptions, Rows, dataset_name, prepare};
use crate::choice::{Found, Sized, check_rates, choose, sizes};
use crate::error::QuantError;
use crate::job::Job;
use crate::layer::Machine;
use crate::linear::Recipe;
use crate::making::{Making, Place};
use crate::measure::Measuring;
use crate::pass::StarvedExpert;
use crate::progress::{JobProgressFn, Stage, Ticker};
use crate::threads;

/// What to do.
#[derive(Clone, Debug)]
pub struct QuantizeOptions {
    /// The unquantised model.
    pub source: PathBuf,
    /// Where the quantised one goes; with several rates a folder for folders such as `4.0bpw`.
    pub target: PathBuf,
    /// Bits per weight of the layers; none: only measure.
    pub rates: Vec<f64>,
    /// Width of the head's preset; `None`: chosen with all others within the same size.
    pub head_bits: Option<u32>,
    /// Use this measurement instead of making one.
    pub measurement: Option<PathBuf>,
    /// Write the measurement here.
    pub output_measurement: Option<PathBuf>,
    /// Most bytes of a shard.
    pub shard_bytes: u64,
    /// Calibration.
    pub calibration: CalibrationOptions,
    /// Choices that change the spec.
    pub spec: SpecOptions,
    /// Go on with an unfinished job.
    pub resume: bool,
    /// Threads of what runs beside the backend, one per core at most; `None`: as many.
    pub threads: Option<usize>,
}

/// A model that was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QuantizedModel {
    /// Its folder.
    #[serde(skip)]
    pub dir: PathBuf,
    /// Bits per weight asked for.
    pub bits: f64,
    /// Bits per weight of the layers, as they are.
    pub layer_bits: f64,
    /// Bits per weight of the head; `None`: it is not quantised.
    pub head_bits: Option<f64>,
    /// Bits of all quantised linears.
    pub total_bits: u64,
    /// Bytes of all tensors.
    pub bytes: u64,
    /// Expected divergence from the unquantised model, in nats per token, and the least that any
    /// choice of the same size can be expected to have; of a measurement of another program its errors.
    pub expected: f64,
    /// See `expected`.
    pub bound: f64,
    /// Experts that saw too little and were quantised with what their neighbours saw.
    pub starved: Vec<StarvedExpert>,
}

/// What a job has made.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The models, in the order of their rates.
    pub models: Vec<QuantizedModel>,
    /// Rows of calibration and tokens of each.
    pub calibration: (usize, usize),
}

/// Makes quantised models. `backend` runs the unquantised one, with exact arithmetic.
pub fn quantize<B: Backend + Clone>(
    options: &QuantizeOptions,
    backend: B,
    progress: &mut JobProgressFn<'_>,
) -> Result<Outcome, QuantError> {
    let pool = threads::pool(options.threads, &options.source)?;
    pool.install(|| run(options, backend, progress))
}

fn run<B: Backend + Clone>(
    options: &QuantizeOptions,
    backend: B,
    progress: &mut JobProgressFn<'_>,
) -> Result<Outcome, QuantError> {
    let mut spec = load_spec(&options.source, &options.spec)?;
    let calibration = fitted(&options.calibration, &spec);
    spec.context = spec.context.max(1);
    let machine = Machine::open(&options.source, spec, backend.clone(), calibration.length)?;
    let sizes = sizes(&machine)?;
    let given = checked(options, &sizes)?;
    let job = Job::open(&options.target, &identity(options, &calibration)?, options.resume)?;
    if let Some(outcome) = places(options, &job)? {
        job.finish()?;
        return Ok(outcome);
    }
    let rows = match rows(&machine, &options.source, backend, &calibration, &job, progress) {
        Err(error) if job.is_new() && !matches!(error, QuantError::Stopped { .. }) => {
            job.discard();
            return Err(error);
        }
        rows => rows?,
    };
    let recipe = Recipe::default();
    let measured = match given {
        Some(found) => found,
        None => {
            let ticker = &mut Ticker::new(progress, Stage::Measuring, None, job.dir());
            let low_memory = calibration.low_memory;
            let measuring = Measuring {
                machine: &machine,
                rows: &rows,
                recipe: &recipe,
                job: &job,
                low_memory,
            };
            Found::Own(measuring.run(ticker)?)
        }
    };
    if let (Some(path), Found::Own(measured)) = (&options.output_measurement, &measured) {
        measured.save(path)?;
    }
    let making = Making { options, machine: &machine, rows: &rows, recipe: &recipe, job: &job };
    let mut models = Vec::new();
    for rate in &options.rates {
        let chosen = choose(&sizes, &measured, *rate, options.head_bits)?;
        models.push(making.model(*rate, &sizes, &chosen, progress)?);
    }
    let calibration = (rows.count(), rows.length());
    job.finish()?;
    Ok(Outcome { models, calibration })
}

/// Finds what cannot be done before any work; gives the measurement that is to be used, if one is.
fn checked(options: &QuantizeOptions, sizes: &[Sized]) -> Result<Option<Found>, QuantError> {
    check_rates(sizes, &options.rates)?;
    for rate in &options.rates {
        let place = Place::new(options, &Job::folder(&options.target), *rate);
        if !(options.resume && place.finished().is_some()) {
            place.check()?;
        }
    }
    if let Some(path) = &options.output_measurement {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let fault = match path.is_dir() {
            true => Some(std::io::ErrorKind::IsADirectory),
            false => parent.filter(|p| !p.is_dir()).map(|_| std::io::ErrorKind::NotFound),
        };
        if let Some(fault) = fault {
            let (path, source) = (path.clone(), fault.into());
            return Err(QuantError::Io { path, action: "cannot write", source });
        }
    }
    let Some(path) = &options.measurement else { return Ok(None) };
    let found = Found::read(path)?;
    for rate in &options.rates {
        choose(sizes, &found, *rate, options.head_bits)?;
    }
    Ok(Some(found))
}

/// Sees to it that the models can take their places; gives the outcome if an earlier run was stopped
/// when all was done.
fn places(options: &QuantizeOptions, job: &Job) -> Result<Option<Outcome>, QuantError> {
    let mut outcome = Outcome { models: Vec::new(), calibration: (0, 0) };
    for rate in &options.rates {
        let place = Place::new(options, job.dir(), *rate);
        if let Some((model, calibration)) = place.finished() {
            place.put()?;
            outcome.models.push(model);
            outcome.calibration = calibration;
        } else if let Err(error) = place.try_out() {
            if job.is_new() {
                job.discard();
            }
            return Err(error);
        }
    }
    let is_done = !options.rates.is_empty() && outcome.models.len() == options.rates.len();
    Ok(is_done.then_some(outcome))
}

/// Rows no longer than the model's context.
fn fitted(options: &CalibrationOptions, spec: &ModelSpec) -> CalibrationOptions {
    CalibrationOptions { length: options.length.min(spec.context), ..options.clone() }
}

fn rows<B: Backend + Clone>(
    machine: &Machine<B>,
    source: &Path,
    backend: B,
    options: &CalibrationOptions,
    job: &Job,
    progress: &mut JobProgressFn<'_>,
) -> Result<Rows, QuantError> {
    let path = job.file("calibration.safetensors");
    if !path.exists() {
        let mut ticker = Ticker::new(progress, Stage::Calibrating, None, job.dir());
        let tick = &mut |done: f64| ticker.tick(done, "calibration");
        let kept = job.file("calibration-begun.safetensors");
        prepare(source, machine.spec(), backend, options, &kept, tick)?.save(&path)?;
    }
    Rows::load(&path, dataset_name(options))
}

/// What makes a job this one and no other.
fn identity(
    options: &QuantizeOptions,
    calibration: &CalibrationOptions,
) -> Result<Map<String, Value>, QuantError> {
    let dir = &options.source;
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(QuantError::io(dir, "cannot read"))? {
        let path = entry.map_err(QuantError::io(dir, "cannot read"))?.path();
        // The job itself may be a folder in here.
        if !path.is_dir() {
            files.push(state(&path)?);
        }
    }
    files.sort();
    let given = [&calibration.file, &options.measurement].into_iter().flatten();
    let given: Vec<_> = given.map(|path| state(path)).collect::<Result<_, _>>()?;
    let source = std::fs::canonicalize(dir).unwrap_or(dir.clone());
    let identity = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "source": source.to_string_lossy(),
        "bits": options.rates,
        "head_bits": options.head_bits,
        "measurement": options.measurement.as_ref().map(|path| path.to_string_lossy()),
        "calibration": calibration.file.as_ref().map(|path| path.to_string_lossy()),
        "rows": calibration.rows,
        "length": calibration.length,
        "seed": calibration.seed,
        "rope": options.spec.rope.map(|rope| format!("{rope:?}")),
        "own_writing": !calibration.low_memory,
        "files": files,
        "given": given,
    });
    match identity {
        Value::Object(map) => Ok(map),
        _ => Ok(Map::new()),
    }
}

/// What tells a file from another one of its name: name, bytes, and when it was changed.
fn state(path: &Path) -> Result<(String, u64, String), QuantError> {
    let fault = |source| QuantError::Io { path: path.to_owned(), action: "cannot read", source };
    let metadata = std::fs::metadata(path).map_err(fault)?;
    let changed = metadata.modified().map_err(fault)?;
    let changed = changed.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok((name, metadata.len(), changed.as_millis().to_string()))
}
