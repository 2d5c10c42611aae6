//! Models of a given shape with random weights, for benchmarks.
//!
//! Speed depends on shapes and widths, not on values. Every layer gets memory of its own, so that
//! bandwidth is real; equal shapes share their random words, so that making them is quick.

mod mix;
mod preset;
mod write;

pub use preset::{preset_names, preset_spec};
pub use write::{WrittenModel, write_preset};

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use pagella_arch::{BiasRule, LinearSpec, ModelSpec, NormSpec};
use pagella_backend::{Backend, NormWeights, TableDtype, TableSource};
use pagella_formats::exl3::{Codebook, MUL1_MULTIPLIER};
use pagella_formats::{Linear, OwnedLinear, synthetic as random};

use crate::block::check_backend;
use crate::error::ModelError;
use crate::load::{LoadOptions, assemble};
use crate::model::Model;
use crate::progress::{LayerBytes, ProgressFn, modules};
use crate::survey::check_blocks;
use crate::weights::{LinearUse, WeightSource};

/// Rows per group of synthetic GPTQ weights, the usual choice.
const GPTQ_GROUP_ROWS: usize = 128;

/// Largest number of inputs an EXL2 table can describe at 8 bits, see its 16-bit word index.
const EXL2_INPUTS_MAX: usize = 1 << 16;

/// How random weights are stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SyntheticWeights {
    /// EXL2 with a mix of widths as its converter chooses them.
    Exl2 {
        /// Average bits per weight of the layers, scales included; 2 to 8.
        bits: f32,
        /// Width of the head: 2, 3, 4, 5, 6 or 8.
        head_bits: u8,
    },
    /// EXL3 with one width for the layers and one for the head, 1 to 8.
    Exl3 {
        /// Bits per weight of the layers.
        bits: u8,
        /// Bits per weight of the head.
        head_bits: u8,
    },
    /// GPTQ, 4 bits, groups of 128; the head is F16.
    Gptq,
    /// Unquantised F16.
    F16,
}

impl<B: Backend> Model<B> {
    /// A model of that shape with random weights made in memory.
    pub fn synthetic(
        spec: ModelSpec,
        backend: B,
        weights: SyntheticWeights,
        options: &LoadOptions,
        progress: &mut ProgressFn<'_>,
    ) -> Result<Self, ModelError> {
        options.check()?;
        check_blocks(&spec)?;
        check_shapes(&spec, weights)?;
        check_backend(&spec, &backend)?;
        let layers: Vec<LayerBytes> = spec.layers.iter().map(|l| layer_bytes(l, weights)).collect();
        let head = stored_bytes(&spec.head.linear, weights.average_bits(LinearUse::Head));
        let embed = (spec.vocab * spec.hidden * 2) as u64;
        let modules = modules(&spec, embed, &layers, head);
        let source = RandomSource { weights, made: HashMap::new() };
        let layers = spec.layers.len();
        assemble(spec, vec![(backend, layers)], source, options, modules, progress)
    }
}

/// Refuses a spec with a linear that its format cannot hold.
fn check_shapes(spec: &ModelSpec, weights: SyntheticWeights) -> Result<(), ModelError> {
    for (label, linear) in spec.linear_specs() {
        weights.format_of(LinearUse::of(&label))?.check(linear)?;
    }
    Ok(())
}

impl SyntheticWeights {
    fn format_of(self, usage: LinearUse) -> Result<Format, ModelError> {
        Ok(match (self, usage) {
            (Self::F16, _) | (Self::Gptq, LinearUse::Head) | (_, LinearUse::Router) => Format::F16,
            (Self::Gptq, LinearUse::Layer) => Format::Gptq,
            (Self::Exl2 { bits, .. }, LinearUse::Layer) => Format::Exl2(mix::of_layers(bits)?),
            (Self::Exl2 { head_bits, .. }, LinearUse::Head) => {
                Format::Exl2(mix::of_head(head_bits)?)
            }
            (Self::Exl3 { bits, .. }, LinearUse::Layer) => Format::exl3("bits", bits)?,
            (Self::Exl3 { head_bits, .. }, LinearUse::Head) => {
                Format::exl3("head_bits", head_bits)?
            }
        })
    }

    /// Bits per weight, for progress reports.
    fn average_bits(self, usage: LinearUse) -> f32 {
        match (self, usage) {
            (Self::F16, _) | (Self::Gptq, LinearUse::Head) | (_, LinearUse::Router) => 16.0,
            (Self::Gptq, LinearUse::Layer) => 4.2,
            (Self::Exl2 { bits, .. }, LinearUse::Layer) => bits,
            (Self::Exl3 { bits, .. }, LinearUse::Layer) => f32::from(bits),
            (Self::Exl2 { head_bits, .. } | Self::Exl3 { head_bits, .. }, LinearUse::Head) => {
                f32::from(head_bits)
            }
        }
    }
}

fn layer_bytes(layer: &pagella_arch::LayerSpec, weights: SyntheticWeights) -> LayerBytes {
    let mut sum = LayerBytes::default();
    for (label, linear) in layer.linear_specs() {
        let half = if label.starts_with("attn.") { &mut sum.attn } else { &mut sum.mlp };
        *half += stored_bytes(linear, weights.average_bits(LinearUse::of(&label)));
    }
    sum
}

fn stored_bytes(linear: &LinearSpec, bits: f32) -> u64 {
    let params = linear.in_features as f64 * linear.out_features as f64;
    (params * f64::from(bits) / 8.0) as u64
}

/// A weight format with its parameters.
enum Format {
    Exl2(mix::Mix),
    /// Bits per weight.
    Exl3(u8),
    Gptq,
    F16,
}

impl Format {
    /// EXL3 of that width, which is the value of an option.
    fn exl3(option: &'static str, bits: u8) -> Result<Self, ModelError> {
        match bits {
            1..=8 => Ok(Self::Exl3(bits)),
            _ => Err(ModelError::BadOption { option, value: bits.into(), min: 1, max: 8 }),
        }
    }

    /// Refuses shapes that the format cannot hold.
    fn check(&self, linear: &LinearSpec) -> Result<(), ModelError> {
        let LinearSpec { in_features, out_features, .. } = *linear;
        let (format, reason) = match self {
            Self::Exl2(_) if !in_features.is_multiple_of(32) || in_features > EXL2_INPUTS_MAX => {
                ("EXL2", "its inputs must be a multiple of 32 and at most 65536")
            }
            Self::Gptq
                if !in_features.is_multiple_of(GPTQ_GROUP_ROWS)
                    || !out_features.is_multiple_of(8) =>
            {
                ("GPTQ", "its inputs must be a multiple of 128 and its outputs of 8")
            }
            _ => return Ok(()),
        };
        Err(ModelError::SyntheticShape { format, in_features, out_features, reason })
    }

    fn make(&self, in_features: usize, out_features: usize) -> OwnedLinear {
        // The shape is seed enough: equal shapes share their words anyway.
        let seed = (in_features as u64) << 32 | out_features as u64;
        match self {
            Self::Exl2(mix) => random::exl2(in_features, out_features, mix, seed),
            // The codebook that the converter uses.
            Self::Exl3(bits) => {
                let codebook = Codebook::Mul1(MUL1_MULTIPLIER);
                random::exl3(in_features, out_features, *bits, codebook, seed)
            }
            Self::Gptq => {
                let order = random::RowOrder::Sequential;
                random::gptq(in_features, out_features, GPTQ_GROUP_ROWS, order, seed)
            }
            Self::F16 => random::plain_f16(in_features, out_features, seed),
        }
    }
}

/// Random weights, made once per use and shape.
struct RandomSource {
    weights: SyntheticWeights,
    made: HashMap<(LinearUse, usize, usize), OwnedLinear>,
}

impl WeightSource for RandomSource {
    fn linear<T>(
        &mut self,
        spec: &LinearSpec,
        usage: LinearUse,
        take: impl FnOnce(&Linear<'_>) -> Result<T, ModelError>,
    ) -> Result<T, ModelError> {
        let format = self.weights.format_of(usage)?;
        let (in_features, out_features) = (spec.in_features, spec.out_features);
        if usage == LinearUse::Head {
            // Made last and once, at another width: nothing made before is needed any more.
            self.made.clear();
        }
        let made = match self.made.entry((usage, in_features, out_features)) {
            Entry::Occupied(made) => made.into_mut(),
            Entry::Vacant(room) => room.insert(format.make(in_features, out_features)),
        };
        let mut linear = made.view();
        if spec.bias == BiasRule::Required {
            linear = linear.with_bias(Some(vec![0.0; out_features]));
        }
        take(&linear)
    }

    fn norm(&mut self, spec: &NormSpec, _heads: usize) -> Result<NormWeights, ModelError> {
        let weight = vec![1.0; spec.width];
        Ok(NormWeights { kind: spec.kind, eps: spec.eps, weight, bias: None })
    }

    fn vector(&mut self, _base: &str, len: usize) -> Result<Vec<f32>, ModelError> {
        Ok(vec![0.0; len])
    }

    fn table(&mut self, _base: &str, rows: usize, width: usize) -> Result<TableSource, ModelError> {
        let bytes = Arc::new(RandomTable(random::plain_f16(width, rows, rows as u64)));
        Ok(TableSource { bytes, dtype: TableDtype::F16, rows, width })
    }
}

/// An F16 matrix `[rows, width]`.
struct RandomTable(OwnedLinear);

impl AsRef<[u8]> for RandomTable {
    fn as_ref(&self) -> &[u8] {
        match self.0.view() {
            Linear::Plain(plain) => plain.data,
            _ => &[],
        }
    }
}
