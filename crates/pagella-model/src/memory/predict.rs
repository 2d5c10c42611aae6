//! What a run will need, from the config and the headers.

use std::path::Path;

use pagella_arch::{LayerSpec, MlpSpec, ModelSpec};
use pagella_backend::KvFormat;

use super::{MemoryReport, Tally};
use crate::cache::kv_spec;
use crate::error::ModelError;
use crate::load::LoadOptions;
use crate::survey::Survey;
use crate::unfold::laid_out_bytes;
use crate::weights::LinearUse;
use crate::workspace::{logits_bytes, workspace_bytes};

/// Memory of a process with no model: code, threads, allocator. Measured on Linux.
const BASELINE_BYTES: u64 = 8 << 20;

/// Pages of a file that stay mapped around a linear's tensors after they were handed back: half a
/// block of 64 KiB on either side.
const UNRELEASED_BYTES: u64 = 64 << 10;

/// What a first touch of a mapped file can bring in: page caches hold files in blocks of up to
/// 2 MiB and map a block as a whole. Measured on Linux, where 16 random rows brought in 31 MiB.
const TOUCH_BYTES: u64 = 2 << 20;

/// Bytes per input that a backend keeps of a linear's activations in its own order.
const INPUT_BYTES: u64 = 4;

/// What a model will need; nothing was read but headers and small tables.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryPrediction {
    /// Weights, mapped tables, and scratch with one row of logits.
    pub report: MemoryReport,
    /// Bytes of each further row of logits.
    pub logits_row_bytes: u64,
    /// What the process needs besides.
    pub baseline_bytes: u64,
    /// Largest sum of weights laid out so far, file pages in use and what is made of them while loading.
    load_peak_bytes: u64,
    /// File pages that stay mapped after loading.
    leftover_bytes: u64,
    embed_row_bytes: u64,
    /// The backend's copy of a step's activations.
    input_bytes: u64,
    spec: ModelSpec,
}

/// Predicts what a run of the model in `dir` needs.
pub fn predict_memory(
    dir: &Path,
    spec: &ModelSpec,
    options: &LoadOptions,
) -> Result<MemoryPrediction, ModelError> {
    options.check()?;
    Ok(MemoryPrediction::new(&Survey::of(dir, spec)?, spec, options))
}

/// Elements per token that are put into a backend's own order at once, at most.
fn input_elements(spec: &ModelSpec) -> usize {
    let of_layer = |layer: &LayerSpec| {
        let linears = layer.linear_specs();
        let widest = linears.iter().map(|(_, linear)| linear.in_features).max().unwrap_or(0);
        match &layer.mlp {
            // All experts of a token run together.
            MlpSpec::Moe(moe) => widest.max(moe.experts_per_token * moe.inner().max(spec.hidden)),
            _ => widest,
        }
    };
    let layers = spec.layers.iter().map(of_layer);
    layers.chain([spec.head.linear.in_features]).max().unwrap_or(0)
}

impl MemoryPrediction {
    fn new(survey: &Survey, spec: &ModelSpec, options: &LoadOptions) -> Self {
        let mut tally = Tally::default();
        tally.mapped_bytes = survey.mapped_bytes;
        tally.idle_bytes = survey.idle_bytes(spec);
        let (mut load_peak_bytes, mut leftover_bytes) = (0, 0);
        for fact in &survey.linears {
            tally.add(fact.kind, LinearUse::of(&fact.label), fact.params, fact.stored_bytes);
            tally.device_bytes += laid_out_bytes(fact);
            let in_files = leftover_bytes + fact.stored_bytes;
            load_peak_bytes = load_peak_bytes.max(tally.device_bytes + in_files + fact.made_bytes);
            leftover_bytes += fact.stored_bytes.min(UNRELEASED_BYTES);
        }
        let norms: u64 = spec.norm_specs().map(|(_, norm)| 4 * norm.params()).sum();
        tally.device_bytes += norms;
        let logits_row_bytes = 4 * spec.vocab as u64;
        let scratch_bytes = workspace_bytes(spec.hidden, &spec.layers, options.step_tokens_max);
        Self {
            report: tally.report(scratch_bytes + logits_row_bytes),
            logits_row_bytes,
            baseline_bytes: BASELINE_BYTES,
            load_peak_bytes: load_peak_bytes + norms,
            leftover_bytes,
            embed_row_bytes: survey.embed_row_bytes,
            input_bytes: INPUT_BYTES * (options.step_tokens_max * input_elements(spec)) as u64,
            spec: spec.clone(),
        }
    }

    /// Bytes of logits beyond the one row that is counted, in a run whose steps have up to `rows`.
    pub fn more_logits_bytes(&self, rows: usize) -> u64 {
        let all = logits_bytes(self.spec.vocab, rows);
        all.saturating_sub(logits_bytes(self.spec.vocab, 1))
    }

    /// Bytes that one token takes in a cache of this format.
    pub fn kv_bytes_per_token(&self, format: KvFormat) -> u64 {
        kv_spec(&self.spec.layers, format, 0).bytes_per_token() as u64
    }

    /// Bytes of a cache for at least `tokens` tokens.
    pub fn kv_bytes(&self, format: KvFormat, tokens: usize) -> u64 {
        kv_spec(&self.spec.layers, format, tokens).bytes() as u64
    }

    /// Largest memory of a run that fills a cache of `tokens` tokens.
    ///
    /// Of the embedding, the rows that so many different tokens would touch are counted.
    pub fn peak_bytes(&self, format: KvFormat, tokens: usize) -> u64 {
        let touched = tokens as u64 * self.embed_row_bytes.max(TOUCH_BYTES);
        let running = self.report.weights_bytes
            + self.report.scratch_bytes
            + self.input_bytes
            + self.leftover_bytes
            + self.kv_bytes(format, tokens)
            + touched.min(self.report.mapped_bytes);
        self.baseline_bytes + running.max(self.load_peak_bytes)
    }
}

#[cfg(test)]
mod tests {
    use pagella_arch::{SpecOptions, spec_from_json};
    use pagella_formats::LinearKind;

    use super::*;
    use crate::survey::LinearFacts;

    #[test]
    fn what_is_repacked_while_loading_counts_until_it_is_laid_out() {
        let config = br#"{
            "architectures": ["LlamaForCausalLM"], "vocab_size": 16, "hidden_size": 32,
            "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32,
            "rms_norm_eps": 1e-5
        }"#;
        let spec = spec_from_json(config, None, &SpecOptions::default()).unwrap();
        let peak = |made: [u64; 2]| {
            let linears = made.map(|made_bytes| LinearFacts {
                label: "layers.0.mlp.up".to_owned(),
                kind: LinearKind::Awq,
                params: 2 << 30,
                stored_bytes: 1 << 30,
                bias_bytes: 0,
                values_bytes: 4 << 30,
                made_bytes,
                widths: vec![(4, 2 << 30)],
                details: String::new(),
            });
            let survey = Survey {
                linears: linears.to_vec(),
                mapped_bytes: 0,
                embed_row_bytes: 64,
                unused: Vec::new(),
                warnings: Vec::new(),
            };
            let predicted = MemoryPrediction::new(&survey, &spec, &LoadOptions::default());
            predicted.peak_bytes(KvFormat::F16, 256)
        };
        assert_eq!(peak([1 << 30, 1 << 30]), peak([0, 0]) + (1 << 30), "one at a time");
        assert_eq!(peak([1 << 30, 0]), peak([0, 0]), "the first is gone when the second is read");
    }
}
