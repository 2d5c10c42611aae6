//! Opening a model: choices by name, put onto the library's builder. Every name is known or refused.

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::PathBuf;

use pagella::{
    CpuLayers, Devices, DraftDepth, DraftOptions, EngineBuilder, KvFormat, LoadProgress, Reserve,
    RopeOverride, Split,
};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::error;

/// A builder with these choices. A value of `None` says nothing.
pub fn builder(model: OsString, choices: &Bound<'_, PyDict>) -> PyResult<EngineBuilder> {
    let mut builder = pagella::Engine::builder(model);
    for (name, value) in choices.iter() {
        let name = name.cast_into::<PyString>()?;
        if !value.is_none() {
            builder = choice(builder, name.to_str()?, &value)?;
        }
    }
    Ok(builder)
}

fn choice(builder: EngineBuilder, name: &str, value: &Bound<'_, PyAny>) -> PyResult<EngineBuilder> {
    let py = value.py();
    let refuse =
        |problem: &dyn std::fmt::Display| error::request(py, &format!("{name}: {problem}"));
    Ok(match name {
        "device" => {
            let devices: Devices = word(value)?.parse().map_err(|e| refuse(&e))?;
            builder.device(devices)
        }
        "gpu_split" => {
            let shares = Split::shares_of_gb(&numbers(value)?).map_err(|e| refuse(&e))?;
            builder.with_split(|split| split.shares = shares)
        }
        "reserve_vram" => {
            let reserves = Split::reserves_of_mb(&numbers(value)?).map_err(|e| refuse(&e))?;
            builder.with_split(|split| split.reserves = reserves)
        }
        "cpu_layers" => {
            let layers = match value.extract::<usize>() {
                Ok(layers) => CpuLayers::Exactly(layers),
                Err(_) => word(value)?.parse().map_err(|e| refuse(&e))?,
            };
            builder.with_split(|split| split.cpu_layers = Some(layers))
        }
        "math" => builder.math(word(value)?.parse().map_err(|e| refuse(&e))?),
        "cache" => builder.cache(format(value)?),
        "draft_cache" => builder.draft_cache(format(value)?),
        "threads" => builder.threads(value.extract()?),
        "host_threads" => builder.host_threads(value.extract()?),
        "cache_tokens" => builder.cache_tokens(value.extract()?),
        "context" => builder.context(value.extract()?),
        "step_tokens" => builder.step_tokens(value.extract()?),
        "chunk_tokens" => builder.chunk_tokens(value.extract()?),
        "dequantised_max" => builder.dequantised_max(value.extract()?),
        "batch_max" => builder.batch_max(value.extract()?),
        "queue_max" => builder.queue_max(value.extract()?),
        "low_memory" => on(builder, value, EngineBuilder::low_memory)?,
        "defragment" => on(builder, value, EngineBuilder::defragment)?,
        "assume_llama" => on(builder, value, EngineBuilder::assume_llama)?,
        "reserve_all" => on(builder, value, |builder| builder.reserve(Reserve::Full))?,
        "rope_scale" => builder.rope(RopeOverride::Linear(value.extract()?)),
        "rope_alpha" => builder.rope(RopeOverride::NtkAlpha(value.extract()?)),
        "rope_yarn" => builder.rope(RopeOverride::Yarn(value.extract()?)),
        "draft_rope_scale" => builder.draft_rope(RopeOverride::Linear(value.extract()?)),
        "draft_rope_alpha" => builder.draft_rope(RopeOverride::NtkAlpha(value.extract()?)),
        "draft" => builder.draft(value.extract::<PathBuf>()?),
        "draft_tokens" => builder.draft_depth(depth(value)?),
        "adapters" => adapters(builder, value)?,
        _ => return Err(refuse(&"is no choice of Engine.open")),
    })
}

fn on(
    builder: EngineBuilder,
    value: &Bound<'_, PyAny>,
    change: impl FnOnce(EngineBuilder) -> EngineBuilder,
) -> PyResult<EngineBuilder> {
    Ok(if value.extract()? { change(builder) } else { builder })
}

/// Numbers, or one.
fn numbers(value: &Bound<'_, PyAny>) -> PyResult<Vec<f64>> {
    value.extract::<Vec<f64>>().or_else(|_| Ok(vec![value.extract()?]))
}

fn word(value: &Bound<'_, PyAny>) -> PyResult<String> {
    Ok(value.extract::<String>()?.to_lowercase())
}

/// A cache format by its name; `f16` and `fp8` have two each.
fn format(value: &Bound<'_, PyAny>) -> PyResult<KvFormat> {
    let asked = word(value)?;
    let name = match asked.as_str() {
        "f16" => "fp16",
        "f8" => "fp8",
        "f32" => "fp32",
        other => other,
    };
    KvFormat::from_name(name).ok_or_else(|| {
        let names = KvFormat::ALL.map(KvFormat::name).join(", ");
        error::request(
            value.py(),
            &format!("there is no cache format {asked:?}: choose one of {names}"),
        )
    })
}

fn depth(value: &Bound<'_, PyAny>) -> PyResult<DraftDepth> {
    if value.extract::<&str>().is_ok_and(|text| text == "auto") {
        return Ok(DraftDepth::Adaptive);
    }
    match value.extract::<usize>()? {
        0 => Ok(DraftDepth::Off),
        tokens if tokens <= DraftOptions::GUESSES_MAX => Ok(DraftDepth::Fixed(tokens)),
        _ => {
            let most = DraftOptions::GUESSES_MAX;
            let sentence = format!("draft_tokens must be \"auto\" or from 0 to {most}");
            Err(error::request(value.py(), &sentence))
        }
    }
}

/// Directories, or pairs of a directory and a scale.
fn adapters(mut builder: EngineBuilder, value: &Bound<'_, PyAny>) -> PyResult<EngineBuilder> {
    for adapter in value.try_iter()? {
        let adapter = adapter?;
        let (dir, scale) = match adapter.extract::<(PathBuf, f32)>() {
            Ok(pair) => pair,
            Err(_) => (adapter.extract::<PathBuf>()?, 1.0),
        };
        builder = builder.adapter(dir, scale);
    }
    Ok(builder)
}

/// Tells a Python function how far loading is, and stops when that fails or Ctrl-C was pressed.
pub struct Report {
    call: Option<Py<PyAny>>,
    /// What ended the loading.
    pub failed: Option<PyErr>,
}

impl Report {
    /// To this function, if there is one: `(modules done, modules, bytes done, bytes)`.
    pub fn new(call: Option<Py<PyAny>>) -> Self {
        Report { call, failed: None }
    }

    /// Tells it.
    pub fn update(&mut self, progress: &LoadProgress<'_>) -> ControlFlow<()> {
        let told = Python::attach(|py| {
            py.check_signals()?;
            let Some(call) = &self.call else { return Ok(()) };
            let LoadProgress { modules_done, modules_total, bytes_done, bytes_total, .. } =
                *progress;
            call.call1(py, (modules_done, modules_total, bytes_done, bytes_total)).map(drop)
        });
        match told {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.failed = Some(error);
                ControlFlow::Break(())
            }
        }
    }
}
