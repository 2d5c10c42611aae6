//! Reading an EXL3 linear: shapes, scales and codebook, all checked.

use super::rotate::ROTATED;
use super::tile::TILE;
use super::{Codebook, Exl3Linear};
use crate::checkpoint::Checkpoint;
use crate::dtype::Dtype;
use crate::error::{FormatError, Result};
use crate::linear::{Cut, Found, LinearRequest, read_bias};
use crate::tensor::TensorView;

/// Widest code in bits.
const BITS_MAX: usize = 8;

/// Reads the tensors around `found` and checks everything that kernels rely on.
pub(crate) fn read<'a>(
    checkpoint: &'a Checkpoint,
    request: &LinearRequest<'_>,
    found: &Found<'a>,
) -> Result<Exl3Linear<'a>> {
    let base = &found.base;
    let trellis = found.weight;
    trellis.expect_dtype(Dtype::I16)?;
    let padded_in = padded(request.in_features, &trellis)?;
    let padded_out = padded(request.out_features, &trellis)?;
    let bits = width(&trellis, padded_in, padded_out)?;
    // The format is never fused, so a cut can only be the whole.
    let cut = Cut::new(request, found, request.out_features)?;
    if cut.ranges != [std::ops::Range { start: 0, end: request.out_features }] {
        return Err(FormatError::FusedSplit {
            path: trellis.file.to_owned(),
            tensor: trellis.name.to_owned(),
            begin: 0,
            end: cut.declared,
            reason: "a rotated matrix cannot be cut",
        });
    }
    let mut tensors = vec![trellis];
    let suh = scales(checkpoint, (base, "suh", "su"), padded_in, &mut tensors)?;
    let svh = scales(checkpoint, (base, "svh", "sv"), padded_out, &mut tensors)?;
    let codebook = codebook(checkpoint, base, &mut tensors)?;
    let stored = (request.out_features, padded_out);
    let bias = read_bias(checkpoint, request, found, stored, &cut.ranges)?;
    let bias = bias.map(|(values, tensor)| {
        tensors.push(tensor);
        values
    });
    Ok(Exl3Linear {
        name: base.clone(),
        in_features: request.in_features,
        out_features: request.out_features,
        padded_in,
        padded_out,
        bits,
        codebook,
        trellis: trellis.data,
        suh,
        svh,
        bias,
        tensors,
    })
}

/// The next multiple of 128.
fn padded(features: usize, trellis: &TensorView<'_>) -> Result<usize> {
    let padded = features.checked_next_multiple_of(ROTATED).filter(|padded| *padded > 0);
    padded.ok_or_else(|| trellis.wrong_shape("at least one row and column"))
}

/// Bits of a weight, from the shape of the trellis.
fn width(trellis: &TensorView<'_>, padded_in: usize, padded_out: usize) -> Result<u8> {
    let (rows, columns) = (padded_in / TILE, padded_out / TILE);
    match *trellis.shape {
        [r, c, tile] if r == rows && c == columns && tile.is_multiple_of(TILE) => {
            let bits = u8::try_from(tile / TILE).ok();
            bits.filter(|bits| (1..=BITS_MAX).contains(&usize::from(*bits)))
        }
        _ => None,
    }
    .ok_or_else(|| trellis.wrong_shape(format!("[{rows}, {columns}, 16 · bits], bits 1 to 8,")))
}

/// Scales with signs, or the signs alone that early files have.
fn scales<'a>(
    checkpoint: &'a Checkpoint,
    (base, name, old_name): (&str, &str, &str),
    len: usize,
    tensors: &mut Vec<TensorView<'a>>,
) -> Result<Vec<f32>> {
    let Some(tensor) = checkpoint.tensor(&format!("{base}.{name}")) else {
        let Some(tensor) = checkpoint.tensor(&format!("{base}.{old_name}")) else {
            return checkpoint.require(&format!("{base}.{name}")).map(|_| Vec::new());
        };
        tensors.push(tensor);
        return signs(&tensor, len);
    };
    tensor.expect_dtype(Dtype::F16)?;
    if tensor.vector_len()? != len {
        return Err(tensor.wrong_shape(format!("[{len}]")));
    }
    let values = tensor.to_f32()?;
    if let Some(index) = values.iter().position(|value| !value.is_finite()) {
        let (path, tensor) = (tensor.file.to_owned(), tensor.name.to_owned());
        return Err(FormatError::NotFinite { path, tensor, index });
    }
    tensors.push(tensor);
    Ok(values)
}

/// Sixteen signs per word, the lowest bit first; a set bit is −1.
fn signs(tensor: &TensorView<'_>, len: usize) -> Result<Vec<f32>> {
    tensor.expect_dtype(Dtype::I16)?;
    if tensor.vector_len()? != len / 16 {
        return Err(tensor.wrong_shape(format!("[{}]", len / 16)));
    }
    let bit = |word: i64| move |at: u32| if word >> at & 1 == 1 { -1.0 } else { 1.0 };
    let words = tensor.to_i64_vec()?.into_iter();
    Ok(words.flat_map(|word| (0..16).map(bit(word))).collect())
}

/// The codebook that a scalar beside the trellis chooses.
fn codebook<'a>(
    checkpoint: &'a Checkpoint,
    base: &str,
    tensors: &mut Vec<TensorView<'a>>,
) -> Result<Codebook> {
    let mut scalar = |name: &str| -> Result<Option<u32>> {
        let Some(tensor) = checkpoint.tensor(&format!("{base}.{name}")) else { return Ok(None) };
        tensor.expect_dtype(Dtype::I32)?;
        let multiplier = match (tensor.shape, tensor.data.first_chunk::<4>()) {
            ([] | [1], Some(bytes)) => u32::from_le_bytes(*bytes),
            _ => return Err(tensor.wrong_shape("one number")),
        };
        if multiplier == 0 {
            return Err(tensor.bad_weights("is 0, which gives every weight the same value"));
        }
        tensors.push(tensor);
        Ok(Some(multiplier))
    };
    match (scalar("mcg")?, scalar("mul1")?) {
        (None, None) => Ok(Codebook::ThreeInst),
        (Some(multiplier), None) => Ok(Codebook::Mcg(multiplier)),
        (None, Some(multiplier)) => Ok(Codebook::Mul1(multiplier)),
        (Some(_), Some(_)) => {
            let tensor = checkpoint.require(&format!("{base}.mul1"))?;
            Err(tensor.bad_weights("and `mcg` choose two codebooks for one matrix"))
        }
    }
}
