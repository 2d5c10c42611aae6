//! Settings of a request, by name, put onto a prompt of the library. Every name is known or refused.

use std::time::Duration;

use pagella::{
    AddBos, Backpressure, BanRule, Complete, ConstraintSpec, Engine, LengthPolicy, SampleOptions,
};
use pagella_engine::params::{self, Param, Place};
use pagella_engine::{Healing, JobOptions};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use serde_json::Value;

use crate::engine::Adapter;
use crate::home::EngineName;
use crate::own::OwnConstraint;
use crate::parameters::EXTRAS;
use crate::{error, ids, json};

/// What steers away: its prompt, and how far.
#[derive(Default)]
struct Guidance {
    text: Option<String>,
    ids: Option<Vec<u32>>,
    scale: Option<f32>,
}

/// Puts a number into the options of sampling.
type Change = fn(&mut SampleOptions, f64);

/// Settings on their way to a prompt.
struct Applied<'py, 'a> {
    py: Python<'py>,
    engine: EngineName,
    /// The model's own end tokens.
    end_ids: &'a [u32],
    complete: Complete,
    guidance: Guidance,
    /// Spellings with a meaning of their own; they are applied after the settings they change.
    variants: Vec<(Change, f64)>,
}

/// A prompt with these settings. A value of `None` says nothing.
pub fn apply(
    engine: &Engine,
    complete: Complete,
    settings: &Bound<'_, PyDict>,
) -> PyResult<Complete> {
    let py = settings.py();
    let end_ids = engine.tokenizer().eos_ids();
    let guidance = Guidance::default();
    let engine = EngineName::of(engine);
    let mut applied = Applied { py, engine, end_ids, complete, guidance, variants: Vec::new() };
    // What everything else is put on top of.
    for name in ["recommended", "greedy"] {
        if let Some(value) = settings.get_item(name)?.filter(|value| !value.is_none()) {
            applied.extra(name, &value)?;
        }
    }
    for (name, value) in settings.iter() {
        let name = name.cast_into::<PyString>()?;
        let name = name.to_str()?;
        if !matches!(name, "recommended" | "greedy") && (!value.is_none() || name == "max_skips") {
            applied.setting(name, &value).map_err(|problem| named(py, name, problem))?;
        }
    }
    applied.finish()
}

/// Says of a value of a wrong type whose value it is.
fn named(py: Python<'_>, name: &str, problem: PyErr) -> PyErr {
    match problem.is_instance_of::<PyTypeError>(py) {
        true => error::request(py, &format!("{name}: {}", problem.value(py))),
        false => problem,
    }
}

impl Applied<'_, '_> {
    /// Changes the prompt, which is a value that its methods take and return.
    fn change(&mut self, change: impl FnOnce(Complete) -> Complete) {
        self.complete = change(self.complete.clone());
    }

    fn job(&mut self, change: impl FnOnce(&mut JobOptions)) {
        self.change(|complete| complete.with_job(change));
    }

    fn wrong(&self, name: &str, problem: impl std::fmt::Display) -> PyErr {
        error::request(self.py, &format!("{name} {problem}"))
    }

    fn setting(&mut self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        if EXTRAS.iter().any(|extra| extra.name == name) {
            return self.extra(name, value);
        }
        let Some(param) = params::all().find(|param| param.is_called(name)) else {
            let sentence =
                format!("{name:?} is no setting of a request: pagella.parameters() lists them");
            return Err(error::request(self.py, &sentence));
        };
        match param.place {
            Place::Sampling { .. } => self.sampling(param.name, value),
            Place::Variant { set, .. } => {
                let number = self.scalar(name, param, value)?;
                self.variants.push((set, number));
                Ok(())
            }
            Place::Job { set } => {
                let number = self.scalar(name, param, value)?;
                self.job(|job| set(job, number));
                Ok(())
            }
            Place::Caller { .. } => self.of_caller(name, param, value),
        }
    }

    fn scalar(&self, name: &str, param: &Param, value: &Bound<'_, PyAny>) -> PyResult<f64> {
        let value = json::from_python(value)?;
        param.scalar(&value).map_err(|problem| self.wrong(name, problem))
    }

    fn sampling(&mut self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let value = json::from_python(value)?;
        let mut said = Ok(());
        self.change(|complete| complete.adjust(|options| said = options.set(name, value)));
        said.map_err(|problem| error::request(self.py, &problem))?;
        if name == "cfg_scale" {
            self.complete = self.complete.clone().adjust(|options| {
                self.guidance.scale = options.cfg_scale.take().or(Some(1.0));
            });
        }
        Ok(())
    }

    /// Rows of the table that whoever makes the job reads.
    fn of_caller(&mut self, name: &str, param: &Param, value: &Bound<'_, PyAny>) -> PyResult<()> {
        match param.name {
            "max_tokens" => {
                let tokens = self.scalar(name, param, value)?;
                let tokens = (tokens >= 0.0).then_some(tokens as usize);
                self.job(|job| job.max_new_tokens = tokens);
            }
            "ban_eos_token" => {
                if value.extract()? {
                    self.change(Complete::no_default_stops);
                }
            }
            "stop" => self.stops(value)?,
            "stop_token_ids" => {
                let ids = ids::ids(value)?;
                self.job(|job| job.stop_ids.extend(ids));
            }
            "banned_strings" => {
                let rules = texts(value)?.into_iter().map(BanRule::text);
                self.job(|job| job.banned.extend(rules));
            }
            "negative_prompt" => self.guidance.text = Some(value.extract()?),
            "json_schema" => {
                let schema = self.schema(value)?;
                self.change(|complete| complete.json_schema(schema));
            }
            "regex_pattern" => self.extra("regex", value)?,
            "grammar_string" => {
                let text: String = value.extract()?;
                self.change(|complete| match text.contains("::=") {
                    true => complete.gbnf(text),
                    false => complete.grammar(text),
                });
            }
            "seed" => {
                let seed = match json::from_python(value)? {
                    Value::Number(seed) => {
                        seed.as_u64().or(seed.as_i64().filter(|s| *s != -1).map(|s| s as u64))
                    }
                    _ => return Err(self.wrong(name, "must be an integer")),
                };
                if let Some(seed) = seed {
                    self.change(|complete| complete.seed(seed));
                }
            }
            _ => return self.sampling(param.name, value),
        }
        Ok(())
    }

    fn stops(&mut self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut stops = Vec::new();
        if value.is_instance_of::<PyString>() || value.hasattr("__index__")? {
            stops.push(value.clone());
        } else {
            stops = value.try_iter()?.collect::<PyResult<_>>()?;
        }
        for stop in stops {
            match stop.extract::<String>() {
                Ok(text) => self.change(|complete| complete.stop(text)),
                Err(_) => {
                    let id: u32 = stop
                        .extract()
                        .map_err(|_| self.wrong("stop", "must be texts and token ids"))?;
                    self.change(|complete| complete.stop_id(id));
                }
            }
        }
        Ok(())
    }

    /// A schema as a dictionary, as text, or as something that can tell its own.
    fn schema(&self, value: &Bound<'_, PyAny>) -> PyResult<Value> {
        if let Ok(text) = value.extract::<String>() {
            let parsed = serde_json::from_str(&text);
            return parsed
                .map_err(|problem| self.wrong("json_schema", format!("is no JSON: {problem}")));
        }
        if value.hasattr("model_json_schema")? {
            return json::from_python(&value.call_method0("model_json_schema")?);
        }
        json::from_python(value)
    }

    /// Settings that only this package has; the names are those of `EXTRAS`.
    fn extra(&mut self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        match name {
            "greedy"
            | "recommended"
            | "default_stops"
            | "show_special_tokens"
            | "json_object"
            | "prefer_end"
            | "probabilities"
            | "return_logits" => {
                let on = value.extract()?;
                self.switch(name, on);
            }
            "add_bos" => {
                let add = if value.extract()? { AddBos::Always } else { AddBos::Never };
                self.change(|complete| complete.add_bos(add));
            }
            "length_policy" => {
                let policy = match value.extract::<String>()?.as_str() {
                    "clamp" => LengthPolicy::Clamp,
                    "error" => LengthPolicy::Error,
                    "truncate" => LengthPolicy::TruncatePrompt,
                    _ => return Err(self.wrong(name, "must be clamp, error or truncate")),
                };
                self.change(|complete| complete.length_policy(policy));
            }
            _ => return self.more_extra(name, value),
        }
        Ok(())
    }

    /// What says something about the text, the job and its place, by counts at last.
    fn more_extra(&mut self, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        match name {
            "regex" => {
                let pattern: String = value.extract()?;
                self.change(|complete| complete.regex(pattern));
            }
            "choice" | "prefix" => {
                let options = texts(value)?;
                self.change(|complete| match name {
                    "choice" => complete.choice(options),
                    _ => complete.constrain(ConstraintSpec::Prefix(options)),
                });
            }
            "allowed_next" => {
                let own = OwnConstraint::new(value.clone().unbind(), self.engine, self.end_ids);
                self.change(|complete| complete.constrain_by(Box::new(own)));
            }
            "negative_ids" => self.guidance.ids = Some(ids::ids(value)?),
            "adapters" => {
                let pairs: Vec<(Bound<'_, Adapter>, f32)> = value.extract()?;
                let pairs = pairs.iter().map(|(a, scale)| (a.get().inner().clone(), *scale));
                let pairs = pairs.collect();
                self.job(|job| job.adapters = Some(pairs));
            }
            "prediction" => {
                let ids = ids::ids(value)?;
                self.job(|job| job.prediction = ids);
            }
            "identifier" | "cache_salt" => {
                let text: String = value.extract()?;
                self.change(|complete| match name {
                    "identifier" => complete.identifier(text),
                    _ => complete.cache_salt(text),
                });
            }
            "timeout" => {
                let time = Duration::try_from_secs_f64(value.extract()?)
                    .map_err(|_| self.wrong(name, "must be seconds from 0 on"))?;
                self.change(|complete| complete.timeout(time));
            }
            "priority" => {
                let priority = value.extract()?;
                self.change(|complete| complete.priority(priority));
            }
            "max_skips" => {
                let skips = value.extract()?;
                self.job(|job| job.max_skips = skips);
            }
            _ => {
                let count = value.extract()?;
                self.count(name, count);
            }
        }
        Ok(())
    }

    fn switch(&mut self, name: &str, on: bool) {
        self.change(|complete| match (name, on) {
            ("greedy", true) => complete.greedy(),
            ("recommended", false) => complete.sampling(SampleOptions::default()),
            ("default_stops", false) => complete.no_default_stops(),
            ("show_special_tokens", true) => complete.show_special_tokens(),
            ("json_object", true) => complete.json(),
            ("prefer_end", true) => complete.prefer_end(),
            ("probabilities", true) => complete.probabilities(),
            ("return_logits", _) => complete.with_job(|job| job.return_logits = on),
            _ => complete,
        });
    }

    fn count(&mut self, name: &str, count: usize) {
        self.change(|complete| match name {
            "n" => complete.n(count),
            "logprobs" => complete.logprobs(count),
            "top_tokens" => complete.top_tokens(count),
            "backpressure" => complete.backpressure(Backpressure::Pause(count)),
            _ => complete.with_job(|job| match name {
                "prompt_logprobs" => job.return_prompt_logprobs = Some(count),
                "healing_ids" => job.healing = Healing::Ids(count),
                "rewinds_max" => job.rewinds_max = u32::try_from(count).unwrap_or(u32::MAX),
                _ => job.loop_repeats = count,
            }),
        });
    }

    fn finish(mut self) -> PyResult<Complete> {
        let variants = std::mem::take(&mut self.variants);
        for (set, number) in variants {
            self.change(|complete| complete.adjust(|options| set(options, number)));
        }
        let Guidance { text, ids, scale } = std::mem::take(&mut self.guidance);
        match (scale.filter(|scale| *scale != 1.0), text, ids) {
            (Some(scale), Some(text), None) => {
                self.change(|complete| complete.negative(text, scale));
            }
            (Some(scale), None, Some(ids)) => {
                self.change(|complete| complete.negative_ids(ids, scale));
            }
            (None, None, None) => {}
            (None, ..) if scale.is_some() => {}
            _ => {
                let sentence = "cfg_scale and a negative prompt belong together: give both or \
                                neither, the prompt once";
                return Err(error::request(self.py, sentence));
            }
        }
        Ok(self.complete)
    }
}

/// One text or several.
fn texts(value: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    match value.cast::<PyString>() {
        Ok(text) => Ok(vec![text.to_str()?.to_owned()]),
        Err(_) => value.try_iter()?.map(|text| text?.extract()).collect(),
    }
}
