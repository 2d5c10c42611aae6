//! Timing prompts and single tokens.

use std::time::Instant;

use anyhow::Result;
use pagella::Session;
use serde_json::{Value, json};

/// What is measured.
pub struct Workload {
    pub prompt_tokens: usize,
    pub new_tokens: usize,
    /// Tokens in the cache before the first new one.
    pub past_tokens: usize,
    pub repetitions: usize,
}

/// Tokens per second.
pub struct Measured {
    pub prefill: Rates,
    pub decode: Rates,
}

/// Best and median of several repetitions, in tokens per second.
pub struct Rates {
    pub best: f64,
    pub median: f64,
}

impl Workload {
    /// Runs everything once to warm up, then measures.
    pub fn measure(&self, session: &mut Session) -> Result<Measured> {
        self.prefill_seconds(session)?;
        let prefill = self.repeat(|| self.prefill_seconds(session))?;
        self.decode_seconds(session)?;
        let decode = self.repeat(|| self.decode_seconds(session))?;
        Ok(Measured {
            prefill: Rates::of(self.prompt_tokens, &prefill),
            decode: Rates::of(self.new_tokens, &decode),
        })
    }

    fn repeat(&self, mut once: impl FnMut() -> Result<f64>) -> Result<Vec<f64>> {
        (0..self.repetitions).map(|_| once()).collect()
    }

    pub fn prefill_seconds(&self, session: &mut Session) -> Result<f64> {
        let prompt = ids(self.prompt_tokens, session.spec().vocab);
        session.clear();
        let started = Instant::now();
        session.prefill(&prompt)?;
        Ok(started.elapsed().as_secs_f64())
    }

    pub fn decode_seconds(&self, session: &mut Session) -> Result<f64> {
        // At least one token, so that there is something to continue; the cache is kept between
        // repetitions and only its end is computed again.
        let past = ids(self.past_tokens.max(1), session.spec().vocab);
        session.prefill(&past)?;
        let started = Instant::now();
        let mut id = 0;
        for _ in 0..self.new_tokens {
            id = session.write(id)?;
        }
        Ok(started.elapsed().as_secs_f64())
    }
}

/// Ids that are all different for a while; which ones does not matter for speed.
fn ids(n: usize, vocab: usize) -> Vec<u32> {
    (0..n).map(|i| (i * 7919 % vocab) as u32).collect()
}

impl Rates {
    pub fn of(tokens: usize, seconds: &[f64]) -> Self {
        let mut rates: Vec<f64> = seconds.iter().map(|s| tokens as f64 / s.max(1e-9)).collect();
        rates.sort_by(f64::total_cmp);
        let middle = rates.len() / 2;
        let median = match rates.len() % 2 {
            1 => rates[middle],
            _ => (rates[middle - 1] + rates[middle]) / 2.0,
        };
        Rates { best: rates[rates.len() - 1], median }
    }

    pub fn json(&self) -> Value {
        json!({ "best": self.best, "median": self.median })
    }

    pub fn text(&self) -> String {
        format!("{:.1} tok/s (median {:.1})", self.best, self.median)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn best_and_median_of_odd_and_even_counts() {
        let odd = Rates::of(10, &[1.0, 2.0, 5.0]);
        assert_eq!((odd.best, odd.median), (10.0, 5.0));
        let even = Rates::of(10, &[1.0, 2.0]);
        assert_eq!((even.best, even.median), (10.0, 7.5));
    }
}
