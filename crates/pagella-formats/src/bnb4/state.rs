//! The facts that stand beside a matrix as JSON in a tensor of bytes.

use serde::Deserialize;

use crate::error::Result;
use crate::tensor::TensorView;

/// What the tensor may be called after `weight.`; its name says again what is in it.
pub(super) const NAMES: [&str; 2] =
    ["quant_state.bitsandbytes__nf4", "quant_state.bitsandbytes__fp4"];

/// Longest text that is read; real ones have 200 bytes.
const TEXT_BYTES_MAX: usize = 4 << 10;

/// How a matrix is quantised.
#[derive(Debug)]
pub(super) struct QuantState {
    /// Outputs and inputs.
    pub shape: [usize; 2],
    /// Weights that share a scale.
    pub run: usize,
    /// Of double quantisation.
    pub nested: Option<NestedState>,
}

/// How scales are quantised.
#[derive(Debug)]
pub(super) struct NestedState {
    /// Scales that share a scale.
    pub run: usize,
    /// Added to all of them.
    pub offset: f32,
}

/// The text as it stands.
#[derive(Deserialize)]
struct Text {
    quant_type: String,
    blocksize: usize,
    shape: Vec<usize>,
    nested_blocksize: Option<usize>,
    nested_offset: Option<f32>,
}

impl QuantState {
    /// Reads and checks the text.
    pub fn read(tensor: &TensorView<'_>) -> Result<Self> {
        if tensor.data.len() > TEXT_BYTES_MAX {
            let problem =
                format!("has {} bytes, at most {TEXT_BYTES_MAX} are read", tensor.data.len());
            return Err(tensor.bad_weights(problem));
        }
        let text: Text = serde_json::from_slice(tensor.data)
            .map_err(|error| tensor.bad_weights(format!("is not what it should be: {error}")))?;
        let Text { quant_type, blocksize, shape, nested_blocksize, nested_offset } = text;
        if !["nf4", "fp4"].contains(&quant_type.as_str()) {
            let name: String = quant_type.chars().take(20).collect();
            return Err(tensor.bad_weights(format!("has the type {name:?}, read are nf4 and fp4")));
        }
        let [outputs, inputs] = shape[..] else {
            return Err(tensor.bad_weights("is not about a matrix"));
        };
        let nested = match (nested_blocksize, nested_offset) {
            (None, None) => None,
            (run, Some(offset)) => Some((run.unwrap_or(256), offset)),
            (Some(_), None) => return Err(tensor.bad_weights("has no `nested_offset`")),
        };
        let is_wrong = nested.is_some_and(|(run, offset)| run == 0 || !offset.is_finite());
        if blocksize == 0 || is_wrong {
            return Err(tensor.bad_weights("has runs of 0 weights or an infinite offset"));
        }
        let nested = nested.map(|(run, offset)| NestedState { run, offset });
        Ok(Self { shape: [outputs, inputs], run: blocksize, nested })
    }
}
