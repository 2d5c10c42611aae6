//! The end of the pass: the head's weights, and logits of the rows that want them.

use half::{bf16, f16};
use pagella_arch::{HeadSpec, NormSpec};
use pagella_backend::{AdapterSlots, Backend};
use pagella_formats::{Dtype, Linear, PlainLinear};

use crate::adapter::StageSlots;
use crate::block::Pass;
use crate::error::ModelError;
use crate::load::Loader;
use crate::weights::{LinearUse, WeightSource};

/// Final norm and head in the backend's layout.
pub(crate) struct Head<B: Backend> {
    pub norm: B::Norm,
    linear: B::Linear,
    hidden: usize,
    vocab: usize,
    scale: f32,
    softcap: Option<f32>,
}

impl<B: Backend> Head<B> {
    /// Lays out the final norm.
    pub(crate) fn load_norm(
        spec: &NormSpec,
        loader: &mut Loader<'_, B, impl WeightSource>,
    ) -> Result<B::Norm, ModelError> {
        loader.norm(spec, 1)
    }

    /// Lays out the head; `norm` is the final norm.
    pub(crate) fn load(
        spec: &HeadSpec,
        norm: B::Norm,
        loader: &mut Loader<'_, B, impl WeightSource>,
    ) -> Result<Self, ModelError> {
        let linear = match spec.normalize_rows {
            false => loader.linear(&spec.linear, LinearUse::Head)?,
            true => loader.linear_with(&spec.linear, LinearUse::Head, |backend, linear| {
                match linear {
                    Linear::Plain(plain) => {
                        let data = normalized_rows(plain);
                        let owned = PlainLinear {
                            data: &data,
                            stride: plain.in_features,
                            transposed: false,
                            ranges: vec![std::ops::Range { start: 0, end: plain.out_features }],
                            ..plain.clone()
                        };
                        Ok(backend.linear(&Linear::Plain(owned))?)
                    }
                    // A quantised head was normalised before it was quantised.
                    quantized => Ok(backend.linear(quantized)?),
                }
            })?,
        };
        let (hidden, vocab) = (spec.linear.in_features, spec.linear.out_features);
        Ok(Self { norm, linear, hidden, vocab, scale: spec.scale, softcap: spec.softcap })
    }

    /// Elements of what is normed.
    pub(crate) fn norm_width(&self) -> usize {
        self.hidden
    }

    /// Logits per token.
    pub(crate) fn vocab(&self) -> usize {
        self.vocab
    }

    /// Computes the logits of the plan's `logit_tokens` into `out`, which has room for them.
    pub(crate) fn run(
        &self,
        pass: &Pass<'_, B>,
        adapters: Option<&StageSlots<B>>,
        residual: &B::Tensor,
        out: &mut B::Tensor,
    ) -> Result<(), ModelError> {
        let Pass { backend, step, .. } = *pass;
        let Self { norm, linear, scale, softcap, .. } = self;
        match adapters.and_then(StageSlots::head) {
            Some(slots) => {
                slots.logits(backend, step, residual, norm, linear, *scale, *softcap, out)?;
            }
            None => backend.logits(step, residual, norm, linear, *scale, *softcap, out)?,
        }
        Ok(())
    }
}

/// The rows `[out, in]` of a plain linear divided by their L2 norms, in the stored type.
fn normalized_rows(linear: &PlainLinear<'_>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(linear.weight_bytes() as usize);
    let mut row = vec![0.0f32; linear.in_features];
    for out in 0..linear.out_features {
        for (input, weight) in row.iter_mut().enumerate() {
            *weight = linear.weight(out, input);
        }
        let square: f64 = row.iter().map(|weight| f64::from(*weight).powi(2)).sum();
        // A row of zeros stays one.
        let inverse = if square > 0.0 { square.sqrt().recip() } else { 0.0 };
        for weight in &row {
            let value = (f64::from(*weight) * inverse) as f32;
            match linear.dtype {
                Dtype::F32 => bytes.extend_from_slice(&value.to_le_bytes()),
                Dtype::BF16 => bytes.extend_from_slice(&bf16::from_f32(value).to_le_bytes()),
                _ => bytes.extend_from_slice(&f16::from_f32(value).to_le_bytes()),
            }
        }
    }
    bytes
}
