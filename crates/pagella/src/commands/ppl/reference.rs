//! Values of another program to compare with.
//!
//! `[NAME.]logprob_full[i]` is the log-probability of id `i + 1` given the ids up to `i`, and
//! `[NAME.]argmax_full[i]` the most likely id there. For measuring step by step the file may hold
//! `[NAME.]<cache>.step_logprob`, made through the same kind of cache; unless it has one value per
//! step, the part of `logprob_full` that belongs to the steps is taken. The report names the tensor.

use std::path::Path;

use anyhow::{Result, ensure};
use pagella::KvFormat;
use pagella_engine::ScoredToken;
use pagella_formats::Checkpoint;

/// Expected values, one per scored token.
pub struct Reference {
    name: String,
    logprob: Vec<f32>,
    argmax: Option<Vec<i32>>,
}

/// How far apart two programs are.
pub struct Comparison {
    /// The tensor compared with.
    pub name: String,
    /// Root mean square of the differences in log-probability, nats.
    pub rms: f64,
    /// Largest of them.
    pub max: f64,
    /// Share of positions with the same most likely id, when the reference has them.
    pub argmax_match: Option<f64>,
}

impl Reference {
    /// Reads what belongs to `n` scored tokens; `steps` is the prefill and the cache of a stepwise
    /// measurement.
    pub fn read(
        path: &Path,
        prefix: Option<&str>,
        steps: Option<(usize, KvFormat)>,
        n: usize,
    ) -> Result<Self> {
        let file = Checkpoint::open_file(path)?;
        let full = |name: &str| prefix.map_or(name.to_owned(), |p| format!("{p}.{name}"));
        let start = steps.map_or(0, |(prefill, _)| prefill);
        let stepwise = steps.map(|(_, cache)| full(&format!("{}.step_logprob", cache.name())));
        let fits = |name: &String| file.tensor(name).is_some_and(|t| t.element_count() == n);
        let (name, logprob) = match stepwise.filter(fits) {
            Some(name) => {
                let values = file.require(&name)?.to_f32()?;
                (name, values)
            }
            None => {
                let name = full("logprob_full");
                let values = file.require(&name)?.to_f32()?;
                let part = values.get(start..start + n).unwrap_or(&values);
                (name, part.to_vec())
            }
        };
        ensure!(
            logprob.len() == n,
            "{}: {name} has {} values and {n} tokens were scored: use the ids it was made from",
            path.display(),
            logprob.len()
        );
        let argmax = match file.tensor(&full("argmax_full")) {
            Some(tensor) => tensor.to_i32_vec()?.get(start..start + n).map(<[i32]>::to_vec),
            None => None,
        };
        Ok(Reference { name, logprob, argmax })
    }

    /// Compares position by position.
    pub fn compare(self, scored: &[ScoredToken]) -> Comparison {
        let pairs = scored.iter().zip(&self.logprob);
        let differences = pairs.map(|(token, &expected)| token.logprob - f64::from(expected));
        let (mut sum, mut max) = (0.0, 0f64);
        for difference in differences {
            sum += difference * difference;
            max = max.max(difference.abs());
        }
        let n = scored.len() as f64;
        let argmax_match = self.argmax.map(|expected| {
            let pairs = scored.iter().zip(expected);
            pairs.filter(|(token, id)| i64::from(token.argmax) == i64::from(*id)).count() as f64 / n
        });
        Comparison { name: self.name, rms: (sum / n).sqrt(), max, argmax_match }
    }
}

impl Comparison {
    /// Lines for people.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = vec![
            ("compared with", self.name.clone()),
            ("rms difference", format!("{:.3e}", self.rms)),
            ("max difference", format!("{:.3e}", self.max)),
        ];
        if let Some(share) = self.argmax_match {
            facts.push(("same argmax", format!("{:.4} %", 100.0 * share)));
        }
        facts
    }
}
