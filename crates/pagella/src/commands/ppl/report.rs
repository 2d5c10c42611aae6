//! What was measured, of everything and of each row of ids.

use anyhow::{Result, ensure};
use pagella_engine::ScoredToken;
use serde_json::{Value, json};

use super::reference::{Comparison, Reference};
use crate::output::{self, Table};

/// A measurement of some tokens.
struct Score {
    nll: f64,
    tokens: usize,
    comparison: Option<Comparison>,
}

/// A measurement of everything, and of each row where there are several.
pub struct Report {
    total: Score,
    rows: Vec<Score>,
}

impl Report {
    /// Of the scored tokens of each row.
    pub fn new(rows: &[Vec<ScoredToken>], reference: Option<&Reference>) -> Result<Self> {
        let mut at = 0;
        let mut scores = Vec::new();
        for row in rows {
            let part = at..at + row.len();
            at = part.end;
            scores.push(Score::new(row, reference.map(|r| r.compare(row, part)))?);
        }
        let all = rows.concat();
        let total = Score::new(&all, reference.map(|r| r.compare(&all, 0..all.len())))?;
        Ok(Self { total, rows: if rows.len() > 1 { scores } else { Vec::new() } })
    }

    /// The difference from the reference over everything.
    pub fn rms(&self) -> Option<f64> {
        self.total.comparison.as_ref().map(|comparison| comparison.rms)
    }

    /// The stable object of `--json`.
    pub fn json(&self) -> Value {
        let mut object = self.total.json();
        if !self.rows.is_empty() {
            object["rows"] = self.rows.iter().map(Score::json).collect();
        }
        object
    }

    /// Lines for people.
    pub fn text(&self) -> String {
        let mut text = output::facts(&self.total.facts());
        if !self.rows.is_empty() {
            let mut table = Table::new(&["row", "perplexity", "mean nll", "tokens", "rms"]);
            for (row, score) in self.rows.iter().enumerate() {
                let rms = score
                    .comparison
                    .as_ref()
                    .map_or("–".to_owned(), |c| format!("{:.3e}", c.rms));
                let (ppl, nll) = (format!("{:.4}", score.nll.exp()), format!("{:.6}", score.nll));
                table.row(vec![row.to_string(), ppl, nll, score.tokens.to_string(), rms]);
            }
            text.push('\n');
            text.push_str(&table.render());
        }
        text
    }
}

impl Score {
    fn new(scored: &[ScoredToken], comparison: Option<Comparison>) -> Result<Self> {
        let nll = -scored.iter().map(|token| token.logprob).sum::<f64>() / scored.len() as f64;
        ensure!(
            nll.is_finite(),
            "the model gave values that are not numbers: the weights are damaged or overflow"
        );
        Ok(Self { nll, tokens: scored.len(), comparison })
    }

    fn json(&self) -> Value {
        let mut object = json!({
            "ppl": self.nll.exp(),
            "nll": self.nll,
            "tokens": self.tokens,
            "argmax_match": self.comparison.as_ref().and_then(|c| c.argmax_match),
        });
        if let Some(comparison) = &self.comparison {
            object["rms_logprob_diff"] = json!(comparison.rms);
            object["max_logprob_diff"] = json!(comparison.max);
            object["compared_with"] = json!(comparison.name);
        }
        object
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = vec![
            ("perplexity", format!("{:.4}", self.nll.exp())),
            ("mean nll", format!("{:.6}", self.nll)),
            ("tokens", self.tokens.to_string()),
        ];
        facts.extend(self.comparison.iter().flat_map(Comparison::facts));
        facts
    }
}
