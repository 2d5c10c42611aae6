//! One choice from a row of logits, for programs that run the model themselves.

use pagella_engine::SampleOptions;
use pagella_engine::params;
use pagella_engine::sample::{Bitmask, Row, Sampler, SamplerState, Scratch};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::tokenizer::Tokenizer;
use crate::{error, json};

/// An id, its probability, and the most likely ones with theirs.
type Chosen = (u32, f32, Vec<(u32, f32)>);

/// Chooses an id behind `history` from a row of logits, float32 in native order. `random`, from 0 to 1,
/// says where in the final distribution; `allowed` are the only ids that may be chosen, `denied` are
/// never chosen; `top` of the final candidates are returned too.
#[pyfunction]
#[pyo3(signature = (tokenizer, settings, logits, history, random, allowed=None, denied=Vec::new(), top=0))]
#[expect(clippy::too_many_arguments, reason = "its one caller is Python, which names them")]
pub fn choose(
    py: Python<'_>,
    tokenizer: &Bound<'_, Tokenizer>,
    settings: &Bound<'_, PyDict>,
    logits: &[u8],
    history: Vec<u32>,
    random: f64,
    allowed: Option<Vec<u32>>,
    denied: Vec<u32>,
    top: usize,
) -> PyResult<Chosen> {
    if !(0.0..=1.0).contains(&random) {
        return Err(PyValueError::new_err(format!(
            "random is {random}: give a number from 0 to 1"
        )));
    }
    let mut options = options(settings)?;
    // What draws besides the choice itself, such as XTC, depends on the same number.
    options.seed = random.to_bits();
    let sets = tokenizer.get().sets();
    let mut row: Vec<f32> = logits
        .chunks_exact(size_of::<f32>())
        .map(|bytes| f32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        .collect();
    let mask = allowed.map(|ids| {
        let mut mask = Bitmask::new_none(row.len());
        ids.iter().for_each(|id| mask.allow(*id));
        mask
    });
    let chosen = py.detach(|| -> Result<Chosen, String> {
        let sampler = Sampler::new(&options, sets).map_err(|problem| problem.to_string())?;
        let all = row.len();
        let row = Row {
            logits: &mut row,
            history: &history,
            prompt_len: history.len(),
            mask: mask.as_ref(),
            denied: &denied,
            attempt: 0,
            top: all,
        };
        let choice = sampler.pick(&mut SamplerState::new(&options), &mut Scratch::default(), row);
        let mut candidates = choice.map_err(|problem| problem.to_string())?.top;
        let (id, p) = draw(&candidates, random).ok_or("no token can be chosen")?;
        candidates.truncate(top);
        Ok((id, p, candidates))
    });
    chosen.map_err(|sentence| error::request(py, &sentence))
}

/// The candidate in which a share of the whole lies.
fn draw(candidates: &[(u32, f32)], random: f64) -> Option<(u32, f32)> {
    let mut sum = 0.0;
    let here = |(_, p): &&(u32, f32)| {
        sum += f64::from(*p);
        sum >= random
    };
    candidates.iter().find(here).or(candidates.last()).copied()
}

/// Settings that say how to choose; what speaks of prompts and answers is refused.
fn options(settings: &Bound<'_, PyDict>) -> PyResult<SampleOptions> {
    let py = settings.py();
    let mut options = SampleOptions::default();
    for (name, value) in settings.iter() {
        let name: String = name.extract()?;
        let Some(param) = params::all().find(|param| param.is_called(&name)) else {
            return Err(error::request(py, &format!("{name:?} says nothing about a choice")));
        };
        options
            .set(param.name, json::from_python(&value)?)
            .map_err(|problem| error::request(py, &problem))?;
    }
    Ok(options)
}
