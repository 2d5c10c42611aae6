//! What a run will take of a device's memory, from the config and the headers.

use std::path::Path;

use pagella_arch::{LatentSpec, LayerSpec, LinearSpec, MlpSpec, ModelSpec, RopeSpec};
use pagella_backend::{ExpertExtent, KvFormat, StepExtent};
use pagella_formats::{Checkpoint, Linear, load_linear};

use super::{MemoryReport, Tally};
use crate::cache::kv_spec;
use crate::error::ModelError;
use crate::load::LoadOptions;
use crate::survey::{Survey, check_blocks, gptq_zeros, open, survey};
use crate::unfold::is_taken_apart;
use crate::weights::{LinearUse, request};
use crate::workspace::{logits_bytes, tensor_bytes};

/// What only the device's backend knows.
pub trait DeviceLayout {
    /// What a linear takes there; `None` if it cannot be laid out.
    fn linear_bytes(&self, linear: &Linear<'_>) -> Option<u64>;
    /// What a linear takes there that unfolds latent vectors and is taken apart by so many heads.
    fn unfolding_bytes(&self, linear: &Linear<'_>, heads: usize, latent: &LatentSpec) -> u64;
    /// What an allocation of so many bytes takes.
    fn allocation_bytes(&self, bytes: u64) -> u64;
    /// Memory that all steps share, over a cache of so many tokens.
    fn scratch_bytes(&self, extent: &StepExtent, cache_tokens: usize) -> u64;
    /// Memory that steps share over layers of one kind. `inputs`: features of a token that linears
    /// read at once, each in an order of its own.
    fn layer_scratch_bytes(&self, extent: &StepExtent, inputs: usize, cache_tokens: usize) -> u64 {
        let _ = inputs;
        self.scratch_bytes(extent, cache_tokens)
    }
    /// What a table of rotations takes for positions below `positions`, if it is not part of the scratch.
    fn rope_bytes(&self, rope: &RopeSpec, positions: usize) -> u64 {
        let _ = (rope, positions);
        0
    }
    /// Whether embedding and learned positions stay on the host.
    fn tables_on_host(&self) -> bool;
}

/// What every linear takes, in the order of [`ModelSpec::linear_specs`].
pub(crate) fn linear_sizes(
    checkpoint: &Checkpoint,
    spec: &ModelSpec,
    layout: &impl DeviceLayout,
) -> Result<Vec<u64>, ModelError> {
    let mut sizes = Vec::new();
    let loaded = |linear| load_linear(checkpoint, &request(linear, gptq_zeros(spec)));
    // What cannot be laid out is refused at load, with a reason.
    let plain = |linear: &Linear<'_>| layout.linear_bytes(linear).unwrap_or(linear.weight_bytes());
    for layer in &spec.layers {
        let attn = &layer.attn;
        for (label, linear) in layer.linear_specs() {
            let linear = loaded(linear)?;
            sizes.push(match &attn.latent {
                Some(latent) if is_taken_apart(&label) => {
                    layout.unfolding_bytes(&linear, attn.heads, latent)
                }
                _ => plain(&linear),
            });
        }
    }
    sizes.push(plain(&loaded(&spec.head.linear)?));
    Ok(sizes)
}

/// What a model will take of a device's memory; nothing was read but headers and small tables.
#[derive(Clone, Debug)]
pub struct DevicePrediction<L> {
    /// Weights as they are laid out, tables, and activations with one row of logits.
    pub report: MemoryReport,
    layout: L,
    extent: StepExtent,
    /// Weights laid out so far and staging, where their sum is largest.
    load_peak_bytes: u64,
    /// Embedding and learned positions, as far as they lie on the device.
    tables_bytes: u64,
    spec: ModelSpec,
}

/// Predicts what a run of the model in `dir` takes of a device.
pub fn predict_device_memory<L: DeviceLayout>(
    dir: &Path,
    spec: &ModelSpec,
    options: &LoadOptions,
    layout: L,
) -> Result<DevicePrediction<L>, ModelError> {
    options.check()?;
    check_blocks(spec)?;
    let checkpoint = open(dir, spec)?;
    let survey = survey(&checkpoint, spec)?;
    let sizes = linear_sizes(&checkpoint, spec, &layout)?;
    Ok(DevicePrediction::new(&survey, &sizes, spec, options, layout))
}

impl<L: DeviceLayout> DevicePrediction<L> {
    fn new(
        survey: &Survey,
        sizes: &[u64],
        spec: &ModelSpec,
        options: &LoadOptions,
        layout: L,
    ) -> Self {
        let mut tally = Tally::default();
        tally.mapped_bytes = survey.mapped_bytes;
        tally.idle_bytes = survey.idle_bytes(spec);
        let (mut load_peak_bytes, mut staging_bytes) = (0, 0);
        for (fact, bytes) in survey.linears.iter().zip(sizes) {
            tally.add(fact.kind, LinearUse::of(&fact.label), fact.params, fact.stored_bytes);
            tally.device_bytes += bytes;
            staging_bytes = layout.allocation_bytes(fact.stored_bytes).max(staging_bytes);
            load_peak_bytes = load_peak_bytes.max(tally.device_bytes + staging_bytes);
        }
        let norms = spec.norm_specs().map(|(_, norm)| layout.allocation_bytes(4 * norm.params()));
        let norms: u64 = norms.sum();
        tally.device_bytes += norms;
        let on_device = if layout.tables_on_host() { 0 } else { survey.mapped_bytes };
        let logits_row_bytes = 4 * spec.vocab as u64;
        let tensors = tensor_bytes(spec.hidden, &spec.layers, options.step_tokens_max);
        let activations = tensors + logits_row_bytes;
        DevicePrediction {
            report: tally.report(activations),
            extent: step_extent(spec.hidden, &spec.layers, options.step_tokens_max),
            load_peak_bytes: load_peak_bytes + norms,
            tables_bytes: layout.allocation_bytes(on_device),
            layout,
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

    /// Embedding and learned positions, as far as they lie on the device.
    pub fn tables_bytes(&self) -> u64 {
        self.tables_bytes
    }

    /// Memory that all steps share besides activations, over a cache of so many tokens.
    pub fn scratch_bytes(&self, tokens: usize) -> u64 {
        self.layout.scratch_bytes(&self.extent, tokens)
    }

    /// Largest memory of a run with a cache of `tokens` tokens.
    pub fn peak_bytes(&self, format: KvFormat, tokens: usize) -> u64 {
        let running = self.report.weights_bytes
            + self.report.scratch_bytes
            + self.scratch_bytes(tokens)
            + self.kv_bytes(format, tokens);
        self.tables_bytes + running.max(self.load_peak_bytes)
    }
}

/// What steps of so many tokens compute at most. The head runs on few rows.
pub(crate) fn step_extent(hidden: usize, layers: &[LayerSpec], tokens: usize) -> StepExtent {
    let weights = |linear: &LinearSpec| linear.in_features * linear.out_features;
    let of_layer = |layer: &LayerSpec| {
        let attn = &layer.attn;
        let qkv = match &attn.latent {
            None => weights(&attn.q) + weights(&attn.k) + weights(&attn.v),
            // What unfolds is no linear any more.
            Some(latent) => match &latent.query_down {
                Some(down) => (weights(&down.linear) + weights(&attn.k)).max(weights(&attn.q)),
                None => weights(&attn.q) + weights(&attn.k),
            },
        };
        let mlp = match &layer.mlp {
            MlpSpec::Gated { gate, up, down, .. } => {
                (weights(gate) + weights(up)).max(weights(down))
            }
            MlpSpec::Plain { up, down, .. } => weights(up).max(weights(down)),
            MlpSpec::Moe(moe) => moe.shared.as_ref().map_or(0, |shared| {
                (weights(&shared.gate) + weights(&shared.up)).max(weights(&shared.down))
            }),
        };
        let linears = layer.linear_specs();
        let dense = linears.iter().filter(|(label, _)| !label.starts_with("mlp.experts."));
        let inputs = dense.map(|(_, linear)| linear.in_features).max().unwrap_or(0);
        (qkv.max(weights(&attn.o)).max(mlp), inputs)
    };
    let mut extent = StepExtent { tokens, ..StepExtent::default() };
    for layer in layers {
        let (weights, inputs) = of_layer(layer);
        extent.weights = extent.weights.max(weights);
        extent.inputs = extent.inputs.max(inputs);
        extent.heads = extent.heads.max(layer.attn.heads);
        extent.kv_heads = extent.kv_heads.max(layer.attn.kv_heads);
        extent.head_dim = extent.head_dim.max(layer.attn.head_dim);
        if let MlpSpec::Moe(moe) = &layer.mlp {
            let inner = moe.inner();
            let (experts, per_token) = (moe.experts.len(), moe.experts_per_token);
            let found = ExpertExtent { hidden, inner, experts, per_token };
            let size = |extent: &ExpertExtent| extent.per_token * extent.inner;
            if extent.experts.is_none_or(|known| size(&known) < size(&found)) {
                extent.experts = Some(found);
            }
        }
    }
    extent
}
