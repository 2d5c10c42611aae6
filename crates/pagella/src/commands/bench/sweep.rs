//! How fast many sequences are written at once.
//!
//! Weights are read once for all rows of a step, so every further row is cheap until arithmetic or
//! the cache become the limit. Measured through the generator, sampling included: it is what callers
//! get.

use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use pagella::{Generator, JobOptions, JobSpec, Stage, Tokenizer};
use pagella_backend::PAGE_TOKENS;
use pagella_engine::{Forward, GeneratorOptions, StepTrace};
use serde_json::{Value, json};

use super::measure::Rates;

/// Numbers of rows to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchSizes(pub Vec<usize>);

/// A tokenizer for models that have none; the texts are not looked at.
const TOKENIZER: &str = r#"{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}"#;
/// Most rows of a step.
const ROWS_MAX: usize = 256;

impl FromStr for BatchSizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(BatchSizes(Vec::new()));
        }
        let sizes: Option<Vec<usize>> =
            text.split(',').map(|size| size.trim().parse().ok()).collect();
        match sizes {
            Some(sizes) if sizes.iter().all(|size| (1..=ROWS_MAX).contains(size)) => {
                Ok(BatchSizes(sizes))
            }
            _ => Err(format!("give numbers from 1 to {ROWS_MAX} such as 1,8,32, or none")),
        }
    }
}

/// What is measured.
pub struct Sweep<'a> {
    pub sizes: &'a BatchSizes,
    /// Tokens in the cache of every row before the first new one.
    pub past_tokens: usize,
    /// Steps that are timed together.
    pub steps: usize,
    pub repetitions: usize,
}

/// Whoever keeps the model in memory.
pub enum Holder {
    Model(#[allow(dead_code, reason = "held, not used")] Box<dyn Forward>),
    Generator(#[allow(dead_code, reason = "held, not used")] Box<Generator>),
}

/// Speeds with so many rows.
pub struct Swept {
    pub rows: usize,
    /// Tokens per second of all rows together.
    pub rates: Rates,
    pub times: StepMedians,
}

/// Where the time of a step goes, each the median over the measured steps, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepMedians {
    /// What the host does while no forward pass runs, launching on a device included.
    pub host: f64,
    /// Until a step is enqueued on a device, or computed on a CPU.
    pub launch: f64,
    /// For the device.
    pub wait: f64,
}

impl StepMedians {
    fn of<'t>(steps: impl Iterator<Item = &'t StepTrace>) -> Self {
        let steps: Vec<&StepTrace> = steps.collect();
        let median = |of: fn(&StepTrace) -> Duration| {
            let mut times: Vec<Duration> = steps.iter().map(|step| of(step)).collect();
            times.sort_unstable();
            times.get(times.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1e6)
        };
        StepMedians {
            host: median(|step| step.host),
            launch: median(|step| step.launch),
            wait: median(|step| step.wait),
        }
    }
}

impl Sweep<'_> {
    /// Tokens of cache for the widest batch.
    pub fn cache_tokens(&self, step_tokens: usize) -> usize {
        let tokens = |&rows: &usize| {
            // While the last prompts are read, the first rows write already.
            let meanwhile = (rows * self.past_tokens.max(1)).div_ceil(step_tokens.max(1));
            let row = self.past_tokens.max(1) + meanwhile + self.steps * self.repetitions + 1;
            rows * row.div_ceil(PAGE_TOKENS) * PAGE_TOKENS
        };
        self.sizes.0.iter().map(tokens).max().unwrap_or(0)
    }

    /// Measures every size. Gives back what holds the model, too.
    pub fn measure(&self, forward: Box<dyn Forward>) -> Result<(Vec<Swept>, Holder)> {
        if self.sizes.0.is_empty() {
            return Ok((Vec::new(), Holder::Model(forward)));
        }
        let needed = self.cache_tokens(forward.step_tokens_max());
        let found = forward.cache_tokens();
        ensure!(
            needed <= found,
            "the widest batch needs a cache of {needed} tokens and there are {found}: raise --cache-tokens or choose smaller --batch"
        );
        let tokenizer = Tokenizer::from_json_bytes(TOKENIZER.as_bytes())?;
        let mut generator = Generator::new(forward, tokenizer, GeneratorOptions::default())?;
        let sizes = self.sizes.0.iter();
        let swept: Result<_> = sizes.map(|&rows| self.measure_rows(&mut generator, rows)).collect();
        Ok((swept?, Holder::Generator(Box::new(generator))))
    }

    fn measure_rows(&self, generator: &mut Generator, rows: usize) -> Result<Swept> {
        generator.reset_page_table();
        let vocab = generator.forward().spec().vocab;
        for row in 0..rows {
            // Different from the first token on, so that nothing is shared.
            let id = |i: usize| ((i * 7919 + row) % vocab) as u32;
            let ids = (0..self.past_tokens.max(1)).map(id).collect();
            generator.enqueue(JobSpec::new(ids, JobOptions::default())?)?;
        }
        while generator.stats().queue.decoding < rows {
            ensure!(
                generator.n_jobs() == rows,
                "a row ended while others were read: shorten --context"
            );
            generator.step();
        }
        let seconds: Result<Vec<f64>> =
            (0..self.repetitions).map(|_| self.step_seconds(generator, rows)).collect();
        generator.clear_queue();
        let rates = Rates::of(rows * self.steps, &seconds?);
        // Only the newest steps are kept.
        let kept = generator.trace().count();
        let measured = kept.saturating_sub(self.steps * self.repetitions);
        Ok(Swept { rows, rates, times: StepMedians::of(generator.trace().skip(measured)) })
    }

    /// Time of all steps of one repetition.
    fn step_seconds(&self, generator: &mut Generator, rows: usize) -> Result<f64> {
        let started = Instant::now();
        for _ in 0..self.steps {
            let records = generator.step();
            let written = records.iter().filter(|r| r.stage == Stage::Streaming).count();
            let ended = records.iter().any(|record| record.is_last());
            ensure!(
                written == rows && !ended,
                "a row ended early: lower --context, --batch-steps or --repetitions"
            );
        }
        Ok(started.elapsed().as_secs_f64())
    }
}

impl Swept {
    pub fn json(&self) -> Value {
        let StepMedians { host, launch, wait } = self.times;
        json!({
            "rows": self.rows,
            "best": self.rates.best,
            "median": self.rates.median,
            "host_us": host,
            "launch_us": launch,
            "wait_us": wait,
        })
    }

    pub fn text(&self) -> String {
        let plural = if self.rows == 1 { "" } else { "s" };
        let (rates, rows, host) = (self.rates.text(), self.rows, self.times.host);
        format!("{rates}, {rows} row{plural}, {host:.0} µs of host time a step")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_or_refused() {
        assert_eq!("1, 8,32".parse(), Ok(BatchSizes(vec![1, 8, 32])));
        assert_eq!("none".parse(), Ok(BatchSizes(vec![])));
        for text in ["", "0", "1,,2", "257", "x"] {
            assert!(text.parse::<BatchSizes>().is_err(), "{text}");
        }
    }

    #[test]
    fn every_row_has_whole_pages() {
        let sizes = BatchSizes(vec![1, 4]);
        let sweep = Sweep { sizes: &sizes, past_tokens: 250, steps: 4, repetitions: 3 };
        assert_eq!(sweep.cache_tokens(512), 4 * 2 * PAGE_TOKENS);
        let none = BatchSizes(vec![]);
        assert_eq!(Sweep { sizes: &none, ..sweep }.cache_tokens(512), 0);
    }
}
