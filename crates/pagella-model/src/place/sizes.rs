//! `PartSizes`: what every part of a model takes of a device, in bytes, from headers and small tables.

use std::path::Path;

use pagella_arch::{LayerSpec, LinearSpec, MlpSpec, ModelSpec, NormSpec, RopeSpec};
use pagella_backend::{KvFormat, PAGE_TOKENS};

use super::plan::Beside;
use crate::adapter::BoundAdapter;
use crate::cache::kv_spec;
use crate::error::ModelError;
use crate::load::LoadOptions;
use crate::memory::{DeviceLayout, linear_sizes, step_extent};
use crate::survey::{check_blocks, open, survey};
use crate::workspace::{logits_bytes, shape_bytes, stream_bytes};

/// What the parts of a model take of a device of one kind.
///
/// A device with neighbouring layers takes the sum of their weights and caches, scratch once for every
/// shape that is among them, the most that any of them shares, and what every device takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartSizes {
    /// Embedding and learned positions, as far as they lie on the device.
    pub embedding_bytes: u64,
    /// In the order they run.
    pub layers: Vec<LayerSizes>,
    /// Scratch inside layers, by shape.
    pub shapes_bytes: Vec<u64>,
    /// Final norm and head.
    pub head_bytes: u64,
    /// Logits, and final states where they are read.
    pub head_scratch_bytes: u64,
    /// What every device takes that has a part of the model.
    pub stream_bytes: u64,
    /// Tables of rotations on every such device, for each page of positions …
    pub rope_page_bytes: u64,
    /// … up to so many pages: positions end with the context.
    pub rope_pages_max: u64,
}

/// What a layer takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerSizes {
    /// Linears, norms and adapters.
    pub weights_bytes: u64,
    /// A page of keys and values.
    pub page_bytes: u64,
    /// Its shape, an index of [`PartSizes::shapes_bytes`].
    pub shape: usize,
    /// Scratch that all layers of a device share.
    pub shared_bytes: u64,
}

/// What a run is made for, as far as it decides sizes.
#[derive(Clone, Copy, Debug)]
pub struct RunSizes {
    /// How keys and values are stored.
    pub format: KvFormat,
    /// Most rows of logits of a step.
    pub logit_rows: usize,
}

impl PartSizes {
    /// The sizes of the model in `dir` on devices that lay weights out as `layout` says.
    pub fn of(
        dir: &Path,
        spec: &ModelSpec,
        options: &LoadOptions,
        run: RunSizes,
        layout: &impl DeviceLayout,
    ) -> Result<Self, ModelError> {
        options.check()?;
        check_blocks(spec)?;
        let checkpoint = open(dir, spec)?;
        let tables_bytes = survey(&checkpoint, spec)?.mapped_bytes;
        let mut linears = linear_sizes(&checkpoint, spec, layout)?.into_iter();
        let tokens = options.step_tokens_max;
        let (shapes_bytes, shape_of) = shape_bytes(&spec.layers, tokens);
        // A weight and perhaps a bias, even where the file has only one for all heads, or none.
        let norm_bytes =
            |norm: &NormSpec, heads| layout.allocation_bytes(4 * 2 * (heads * norm.width) as u64);
        let layers = spec.layers.iter().zip(shape_of).map(|(layer, shape)| {
            let own: u64 = linears.by_ref().take(layer.linear_specs().len()).sum();
            let norms = layer.norm_specs().into_iter().map(|(label, norm)| match label {
                "attn.q_norm" => norm_bytes(norm, layer.attn.heads),
                "attn.k_norm" => norm_bytes(norm, layer.attn.kv_heads),
                _ => norm_bytes(norm, 1),
            });
            let (hidden, one) = (spec.hidden, std::slice::from_ref(layer));
            let extent = step_extent(hidden, one, tokens);
            let inputs = inputs_at_once(hidden, layer);
            let page = kv_spec(one, run.format, PAGE_TOKENS).bytes();
            LayerSizes {
                weights_bytes: own + norms.sum::<u64>(),
                page_bytes: page as u64,
                shape,
                shared_bytes: layout.layer_scratch_bytes(&extent, inputs, spec.context),
            }
        });
        let layers = layers.collect();
        let on_device = if layout.tables_on_host() { 0 } else { tables_bytes };
        let rope = |rope: &RopeSpec| layout.rope_bytes(rope, PAGE_TOKENS);
        let rope_page_bytes = spec.ropes.iter().map(rope).sum();
        let states_bytes = 4 * (tokens * spec.hidden) as u64;
        Ok(Self {
            embedding_bytes: layout.allocation_bytes(on_device),
            layers,
            shapes_bytes,
            head_bytes: linears.sum::<u64>() + norm_bytes(&spec.final_norm, 1),
            head_scratch_bytes: logits_bytes(spec.vocab, run.logit_rows.min(tokens)) + states_bytes,
            stream_bytes: stream_bytes(spec.hidden, &spec.layers, tokens),
            rope_page_bytes,
            rope_pages_max: spec.context.div_ceil(PAGE_TOKENS) as u64,
        })
    }

    /// What the whole model takes on one device, beside whatever else is there.
    pub fn whole(&self) -> Beside {
        let layers = || self.layers.iter();
        let own: u64 = layers().map(|layer| layer.weights_bytes).sum();
        let shared = layers().map(|layer| layer.shared_bytes).max().unwrap_or(0);
        Beside {
            weights_bytes: self.embedding_bytes + own + self.head_bytes,
            scratch_bytes: self.shapes_bytes.iter().sum::<u64>()
                + shared
                + self.head_scratch_bytes
                + self.stream_bytes
                + self.rope_page_bytes * self.rope_pages_max,
            page_bytes: layers().map(|layer| layer.page_bytes).sum(),
        }
    }

    /// Counts an adapter, whose pairs lie beside the linears that they change.
    pub fn add_adapter(&mut self, adapter: &BoundAdapter) {
        for part in adapter.parts() {
            let bytes = part.laid_out_bytes();
            match part.layer() {
                Some(layer) => {
                    if let Some(sizes) = self.layers.get_mut(layer) {
                        sizes.weights_bytes += bytes;
                    }
                }
                None if part.is_embedding() => self.embedding_bytes += bytes,
                None => self.head_bytes += bytes,
            }
        }
    }

    /// Counts adapters of which only their bytes are known: as if they changed all layers alike.
    pub fn add_adapter_bytes(&mut self, bytes: u64) {
        let n = self.layers.len() as u64;
        for layer in &mut self.layers {
            layer.weights_bytes += bytes.div_ceil(n.max(1));
        }
    }
}

/// Features of a token that linears of a layer read at once, at most, each in an order of its own.
/// Experts are not counted.
fn inputs_at_once(hidden: usize, layer: &LayerSpec) -> usize {
    let attn = &layer.attn;
    let inputs = |linear: &LinearSpec| linear.in_features;
    let first = match &attn.latent {
        None => inputs(&attn.q) + inputs(&attn.k) + inputs(&attn.v),
        Some(_) => inputs(&attn.q) + inputs(&attn.k) + hidden,
    };
    let mlp = match &layer.mlp {
        MlpSpec::Gated { down, .. } => (2 * hidden).max(inputs(down)),
        MlpSpec::Plain { down, .. } => hidden.max(inputs(down)),
        MlpSpec::Moe(moe) => {
            moe.shared.as_ref().map_or(hidden, |shared| (3 * hidden).max(inputs(&shared.down)))
        }
    };
    first.max(inputs(&attn.o)).max(mlp)
}
