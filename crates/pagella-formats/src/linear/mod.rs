//! A linear layer as stored: what to ask for, how it is found, what comes back.
//!
//! The kind is decided per linear and only from tensor names, as ExLlamaV2 does; what
//! `config.json` claims does not matter. Everything returned has been validated, so that kernels
//! may index words, scales and permutations freely.

mod bias;
mod columns;
mod find;
mod request;
mod split;

pub use columns::Columns;
pub use find::find_linear;
pub use request::{BiasRule, FusedPart, LinearRequest};

pub(crate) use bias::read_bias;
pub(crate) use find::Found;
pub(crate) use split::Cut;

use crate::checkpoint::Checkpoint;
use crate::error::{FormatError, Result};
use crate::exl2::Exl2Linear;
use crate::gptq::GptqLinear;
use crate::plain::PlainLinear;
use crate::tensor::TensorView;
use crate::{exl2, gptq, plain};

/// How a linear is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinearKind {
    /// EXL2: mixed widths, permuted rows.
    Exl2,
    /// GPTQ, 4 bits.
    Gptq,
    /// Unquantised F16, BF16 or F32.
    Plain,
}

impl LinearKind {
    /// Every name that a tensor of such a linear may have, for its base name.
    pub fn tensor_names(self, base: &str) -> impl Iterator<Item = String> {
        let suffixes: &[&str] = match self {
            LinearKind::Exl2 => {
                &[".q_weight", ".q_scale", ".q_scale_max", ".q_groups", ".q_invperm", ".q_perm"]
            }
            LinearKind::Gptq => &[".qweight", ".qzeros", ".scales", ".g_idx"],
            LinearKind::Plain => &[".weight", ""],
        };
        suffixes.iter().chain(&[".bias"]).map(move |suffix| format!("{base}{suffix}"))
    }
}

/// A linear as stored, validated.
#[derive(Clone, Debug)]
pub enum Linear<'a> {
    /// EXL2.
    Exl2(Exl2Linear<'a>),
    /// GPTQ.
    Gptq(GptqLinear<'a>),
    /// Unquantised.
    Plain(PlainLinear<'a>),
}

/// Finds, reads and validates one linear.
pub fn load_linear<'a>(
    checkpoint: &'a Checkpoint,
    request: &LinearRequest<'_>,
) -> Result<Linear<'a>> {
    let found =
        find::locate(checkpoint, request).ok_or_else(|| find::missing(checkpoint, request))?;
    if let (Some((index, count)), true) = (found.slab, found.kind != LinearKind::Plain) {
        return Err(FormatError::FusedSplit {
            path: found.weight.file.to_owned(),
            tensor: found.weight.name.to_owned(),
            begin: index,
            end: count,
            reason: "stacked experts can only be read unquantised",
        });
    }
    match found.kind {
        LinearKind::Exl2 => exl2::layout::read(checkpoint, request, &found).map(Linear::Exl2),
        LinearKind::Gptq => gptq::layout::read(checkpoint, request, &found).map(Linear::Gptq),
        LinearKind::Plain => plain::read(checkpoint, request, &found).map(Linear::Plain),
    }
}

impl<'a> Linear<'a> {
    /// How it is stored.
    pub fn kind(&self) -> LinearKind {
        match self {
            Linear::Exl2(_) => LinearKind::Exl2,
            Linear::Gptq(_) => LinearKind::Gptq,
            Linear::Plain(_) => LinearKind::Plain,
        }
    }

    /// Base name of its tensors.
    pub fn name(&self) -> &str {
        match self {
            Linear::Exl2(linear) => &linear.name,
            Linear::Gptq(linear) => &linear.name,
            Linear::Plain(linear) => &linear.name,
        }
    }

    /// Length of the vectors it takes.
    pub fn in_features(&self) -> usize {
        match self {
            Linear::Exl2(linear) => linear.in_features,
            Linear::Gptq(linear) => linear.in_features,
            Linear::Plain(linear) => linear.in_features,
        }
    }

    /// Length of the vectors it gives, padding excluded.
    pub fn out_features(&self) -> usize {
        match self {
            Linear::Exl2(linear) => linear.out_features,
            Linear::Gptq(linear) => linear.out_features,
            Linear::Plain(linear) => linear.out_features,
        }
    }

    /// Columns of the stored matrix, padding and other parts of a fused tensor included.
    pub fn columns(&self) -> usize {
        match self {
            Linear::Exl2(linear) => linear.columns.stored(),
            Linear::Gptq(linear) => linear.columns.stored(),
            Linear::Plain(linear) => linear.stored_outputs(),
        }
    }

    /// What is added to each output, `[out_features]`.
    pub fn bias(&self) -> Option<&[f32]> {
        match self {
            Linear::Exl2(linear) => linear.bias.as_deref(),
            Linear::Gptq(linear) => linear.bias.as_deref(),
            Linear::Plain(linear) => linear.bias.as_deref(),
        }
    }

    /// Bytes on disk of its weights with scales and tables, without bias; for a part of a fused
    /// tensor its share.
    pub fn weight_bytes(&self) -> u64 {
        match self {
            Linear::Exl2(linear) => linear.weight_bytes(),
            Linear::Gptq(linear) => linear.weight_bytes(),
            Linear::Plain(linear) => linear.weight_bytes(),
        }
    }

    /// Average bits per weight, scales and tables included.
    pub fn bits_per_weight(&self) -> f64 {
        let weights = self.in_features() as f64 * self.out_features() as f64;
        self.weight_bytes() as f64 * 8.0 / weights.max(1.0)
    }

    /// The tensors it was read from, to hand to [`Checkpoint::release`] once copied.
    /// Empty for a linear that was made in memory.
    pub fn tensors(&self) -> &[TensorView<'a>] {
        match self {
            Linear::Exl2(linear) => &linear.tensors,
            Linear::Gptq(linear) => &linear.tensors,
            Linear::Plain(linear) => &linear.tensors,
        }
    }
}
