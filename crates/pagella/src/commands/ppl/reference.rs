//! Values of another program to compare with.
//!
//! `[NAME.]logprob_full[i]` is the log-probability of id `i + 1` given the ids up to `i`, and
//! `[NAME.]argmax_full[i]` the most likely id there; of several texts one after another. For measuring
//! step by step the file may hold `[NAME.]<cache>.step_logprob`, made through the same kind of cache;
//! unless it has one value per step, the part of `logprob_full` that belongs to the steps is taken. The
//! report names the tensor.

use std::ops::Range;
use std::path::Path;

use anyhow::{Result, ensure};
use pagella::KvFormat;
use pagella_engine::ScoredToken;
use pagella_formats::Checkpoint;

use super::tensors::require;

/// Which tokens were scored.
pub struct Scope {
    /// Texts.
    pub n_rows: usize,
    /// Tokens of each that a whole pass would score: all but the first.
    pub row_tokens: usize,
    /// Those of each that were scored.
    pub scored: Range<usize>,
    /// The cache, where it was measured step by step.
    pub stepwise: Option<KvFormat>,
}

/// Expected values, one per scored token.
pub struct Reference {
    name: String,
    logprob: Vec<f32>,
    argmax: Option<Vec<i64>>,
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

impl Scope {
    /// The values of the scored tokens, from those of all.
    fn take<T: Copy>(&self, values: &[T]) -> Vec<T> {
        let rows = values.chunks_exact(self.row_tokens);
        rows.flat_map(|row| &row[self.scored.clone()]).copied().collect()
    }

    /// Refuses values that are not one per token of every text.
    fn check_len(&self, path: &Path, name: &str, found: usize) -> Result<()> {
        let wanted = self.n_rows * self.row_tokens;
        ensure!(
            found == wanted,
            "{}: {name} has {found} values and {wanted} tokens follow others in the ids: use the ids it was made from",
            path.display()
        );
        Ok(())
    }
}

impl Reference {
    /// Reads what belongs to the scored tokens.
    pub fn read(path: &Path, prefix: Option<&str>, scope: &Scope) -> Result<Self> {
        let file = Checkpoint::open_file(path)?;
        let full = |name: &str| prefix.map_or(name.to_owned(), |p| format!("{p}.{name}"));
        let n_scored = scope.n_rows * scope.scored.len();
        let stepwise = scope.stepwise.map(|cache| full(&format!("{}.step_logprob", cache.name())));
        let fits = |name: &String| file.tensor(name).is_some_and(|t| t.element_count() == n_scored);
        let (name, logprob) = match stepwise.filter(fits) {
            Some(name) => {
                let values = require(&file, path, &name)?.to_f32()?;
                (name, values)
            }
            None => {
                let name = full("logprob_full");
                let values = require(&file, path, &name)?.to_f32()?;
                scope.check_len(path, &name, values.len())?;
                (name, scope.take(&values))
            }
        };
        if let Some(at) = logprob.iter().position(|value| !value.is_finite()) {
            let value = logprob[at];
            anyhow::bail!("{}: {name} holds {value} for scored token {at}", path.display());
        }
        let argmax = match file.tensor(&full("argmax_full")) {
            None => None,
            Some(tensor) => {
                let values = tensor.to_i64_vec()?;
                scope.check_len(path, tensor.name, values.len())?;
                Some(scope.take(&values))
            }
        };
        Ok(Reference { name, logprob, argmax })
    }

    /// Compares a part of the scored tokens position by position; `scored` are those of `part`.
    pub fn compare(&self, scored: &[ScoredToken], part: Range<usize>) -> Comparison {
        let pairs = scored.iter().zip(&self.logprob[part.clone()]);
        let differences = pairs.map(|(token, &expected)| token.logprob - f64::from(expected));
        let (mut sum, mut max) = (0.0, 0f64);
        for difference in differences {
            sum += difference * difference;
            max = max.max(difference.abs());
        }
        let n = scored.len() as f64;
        let argmax_match = self.argmax.as_ref().map(|expected| {
            let pairs = scored.iter().zip(&expected[part]);
            pairs.filter(|(token, id)| i64::from(token.argmax) == **id).count() as f64 / n
        });
        Comparison { name: self.name.clone(), rms: (sum / n).sqrt(), max, argmax_match }
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
