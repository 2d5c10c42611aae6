//! One model of a job: its layers, its files, and its place.
//!
//! A model is written in the folder of the job and takes its place when it is whole. The marker of its
//! rate is written before that and goes with the job, last of all: with it and a model in either place
//! there is nothing left to do.

use std::path::{Path, PathBuf};

use pagella_backend::Backend;
use serde::{Deserialize, Serialize};

use crate::calibration::Rows;
use crate::choice::{Chosen, Sized};
use crate::error::QuantError;
use crate::job::{Job, write_text};
use crate::layer::Machine;
use crate::linear::Recipe;
use crate::pass::Pass;
use crate::progress::{JobProgressFn, Stage, Ticker};
use crate::quantize::{QuantizeOptions, QuantizedModel};
use crate::write::{Kept, Naming, PartFile, QuantizationConfig, copy_files, write_shards};

/// The marker of a rate.
#[derive(Serialize, Deserialize)]
struct Marker {
    model: QuantizedModel,
    /// Rows of calibration and tokens of each.
    calibration: (usize, usize),
}

/// The place of a model: where it is written, and where it goes.
pub(crate) struct Place {
    marker: PathBuf,
    dir: PathBuf,
    staged: PathBuf,
    /// Where it goes.
    pub target: PathBuf,
}

impl Place {
    /// Of the model of this rate.
    pub fn new(options: &QuantizeOptions, job_dir: &Path, rate: f64) -> Self {
        let name = format!("{rate:?}bpw");
        let target = match options.rates.len() {
            1 => options.target.clone(),
            _ => options.target.join(&name),
        };
        let dir = job_dir.join(&name);
        let staged = dir.join("model");
        Self { marker: Job::marker(job_dir, &name), dir, staged, target }
    }

    /// The model that an earlier run has finished, and its calibration.
    pub fn finished(&self) -> Option<(QuantizedModel, (usize, usize))> {
        let text = std::fs::read_to_string(&self.marker).ok()?;
        let Marker { mut model, calibration } = serde_json::from_str(&text).ok()?;
        model.dir.clone_from(&self.target);
        let is_there = self.staged.exists() || self.target.join("config.json").exists();
        is_there.then_some((model, calibration))
    }

    /// Refuses a target that holds something.
    pub fn check(&self) -> Result<(), QuantError> {
        let dir = self.target.clone();
        let is_here = dir.canonicalize().is_ok_and(|dir| Some(dir) == std::env::current_dir().ok());
        if dir.file_name().is_none() || is_here {
            return Err(QuantError::NoName { dir });
        }
        let Ok(metadata) = std::fs::symlink_metadata(&dir) else { return Ok(()) };
        if !metadata.is_dir() {
            return Err(QuantError::NoFolder { dir });
        }
        let mut entries = std::fs::read_dir(&dir).map_err(QuantError::io(&dir, "cannot read"))?;
        if entries.next().is_none() { Ok(()) } else { Err(QuantError::NotEmpty { dir }) }
    }

    /// Finds out whether a folder can take this place, before hours are spent on one: it cannot where
    /// another disk is mounted, or where nothing can be written.
    pub fn try_out(&self) -> Result<(), QuantError> {
        let trial = self.dir.join("trial");
        std::fs::create_dir_all(&trial)
            .map_err(QuantError::io(&trial, "cannot make the folder"))?;
        put(&trial, &self.target)?;
        std::fs::remove_dir(&self.target).map_err(QuantError::io(&self.target, "cannot remove"))
    }

    /// Puts a finished model where it goes, unless it is there.
    pub fn put(&self) -> Result<(), QuantError> {
        if self.staged.exists() { put(&self.staged, &self.target) } else { Ok(()) }
    }
}

/// What all models of a job share.
pub(crate) struct Making<'a, B: Backend> {
    pub options: &'a QuantizeOptions,
    pub machine: &'a Machine<B>,
    pub rows: &'a Rows,
    pub recipe: &'a Recipe,
    pub job: &'a Job,
}

impl<B: Backend + Clone> Making<'_, B> {
    /// Makes one model, unless an earlier run has finished it.
    pub fn model(
        &self,
        rate: f64,
        sizes: &[Sized],
        chosen: &Chosen,
        progress: &mut JobProgressFn<'_>,
    ) -> Result<QuantizedModel, QuantError> {
        let place = Place::new(self.options, self.job.dir(), rate);
        if let Some((model, _)) = place.finished() {
            place.put()?;
            return Ok(model);
        }
        std::fs::create_dir_all(&place.dir)
            .map_err(QuantError::io(&place.dir, "cannot make the folder"))?;
        let pass = Pass {
            machine: self.machine,
            rows: self.rows,
            layouts: &chosen.layouts,
            recipe: self.recipe,
            dir: &place.dir,
            low_memory: self.options.calibration.low_memory,
        };
        let ticker = &mut Ticker::new(progress, Stage::Quantizing, Some(rate), self.job.dir());
        let starved = pass.run(ticker)?;
        let ticker = &mut Ticker::new(progress, Stage::Writing, Some(rate), self.job.dir());
        let bytes = self.write(rate, &place, &pass, ticker)?;
        let cost = chosen.cost(sizes);
        let model = QuantizedModel {
            dir: place.target.clone(),
            bits: rate,
            layer_bits: cost.layer_bits(),
            head_bits: cost.head_bits(&self.machine.spec().head.linear),
            total_bits: cost.layers + cost.head,
            bytes,
            expected: chosen.expected,
            bound: chosen.bound,
            starved,
        };
        let marker = Marker { model, calibration: (self.rows.count(), self.rows.length()) };
        let text = serde_json::to_string(&marker).map_err(|error| QuantError::Io {
            path: place.marker.clone(),
            action: "cannot write",
            source: error.into(),
        })?;
        write_text(&place.marker, &text)?;
        place.put()?;
        Ok(marker.model)
    }

    /// Writes the files of a model beside its place; gives the bytes of its tensors.
    fn write(
        &self,
        rate: f64,
        place: &Place,
        pass: &Pass<'_, B>,
        ticker: &mut Ticker<'_, '_>,
    ) -> Result<u64, QuantError> {
        let staged = &place.staged;
        if staged.exists() {
            // Half a model, of a run that was stopped.
            std::fs::remove_dir_all(staged).map_err(QuantError::io(staged, "cannot remove"))?;
        }
        std::fs::create_dir_all(staged)
            .map_err(QuantError::io(staged, "cannot make the folder"))?;
        let naming = Kept::new(self.machine.walk.checkpoint(), self.machine.spec()).naming();
        let part = |path: PathBuf| PartFile { path, naming: naming.clone() };
        let mut parts: Vec<PartFile> = pass.files().into_iter().map(part).collect();
        let senses = pass.senses_file();
        if senses.exists() {
            parts.push(PartFile { path: senses, naming: Naming::default() });
        }
        let tick = &mut |done: f64| ticker.tick(done, "shards");
        let bytes = write_shards(staged, &parts, self.options.shard_bytes, tick)?;
        let quantization = QuantizationConfig {
            bits: rate,
            head_bits: self.options.head_bits,
            rows: self.rows.count(),
            length: self.rows.length(),
            dataset: self.rows.dataset(),
        };
        copy_files(&self.options.source, staged, &quantization)?;
        Ok(bytes)
    }
}

/// Puts a folder in its place, where an empty one gives way.
fn put(staged: &Path, target: &Path) -> Result<(), QuantError> {
    let failed = |error| {
        let hint = "no folder can be put there: choose another place for the model";
        QuantError::Io { path: target.to_owned(), action: hint, source: error }
    };
    if let Some(parent) = target.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent)
            .map_err(QuantError::io(parent, "cannot make the folder"))?;
    }
    if target.exists() {
        std::fs::remove_dir(target).map_err(failed)?;
    }
    std::fs::rename(staged, target).map_err(failed)
}
