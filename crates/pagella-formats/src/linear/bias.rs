//! The bias of a linear: whether there may be one, and the share of a fused one.

use std::ops::Range;

use super::{BiasRule, Found, LinearRequest};
use crate::checkpoint::Checkpoint;
use crate::error::{FormatError, Result};
use crate::tensor::TensorView;

/// Reads `base.bias` by the rule of the request and takes `ranges` of it.
///
/// `declared` is the output count of the whole stored tensor and `stored` the same with padding;
/// the bias may have either length. All-zero biases are dropped where none is expected, because
/// some GPTQ tools write them for every layer.
pub(crate) fn read_bias<'a>(
    checkpoint: &'a Checkpoint,
    request: &LinearRequest<'_>,
    found: &Found<'_>,
    (declared, stored): (usize, usize),
    ranges: &[Range<usize>],
) -> Result<Option<(Vec<f32>, TensorView<'a>)>> {
    let name = format!("{}.bias", found.base);
    let tensor = match (checkpoint.tensor(&name), request.bias) {
        (Some(tensor), _) => tensor,
        (None, BiasRule::Required) => return checkpoint.require(&name).map(|_| None),
        (None, _) => return Ok(None),
    };
    let mut values = tensor.to_f32()?;
    if request.bias == BiasRule::Forbidden {
        if values.iter().all(|value| *value == 0.0) {
            return Ok(None);
        }
        let path = tensor.file.to_owned();
        return Err(FormatError::UnexpectedBias { path, tensor: name });
    }
    let len = match found.slab {
        None => tensor.vector_len()?,
        Some((index, count)) => match *tensor.shape {
            [matrices, len] if matrices == count => {
                values = values.split_off(index * len);
                values.truncate(len);
                len
            }
            _ => return Err(tensor.wrong_shape(format!("[{count}, {declared}]"))),
        },
    };
    if len != declared && len != stored {
        return Err(tensor.wrong_shape(format!("[{declared}]")));
    }
    let mut taken = Vec::with_capacity(request.out_features);
    for range in ranges {
        let part = values.get(range.clone());
        taken.extend_from_slice(part.ok_or_else(|| tensor.wrong_shape(format!("[{declared}]")))?);
    }
    Ok(Some((taken, tensor)))
}
