//! Reading a GPTQ linear: shapes and groups, all checked.

use super::parts::{Groups, Parts, half_scales};
use super::{GptqLinear, zeros};
use crate::checkpoint::Checkpoint;
use crate::error::{FormatError, Result};
use crate::linear::{Cut, Found, LinearRequest};
use crate::tensor::TensorView;
use crate::unsupported::UnsupportedFormat;
use crate::words::{WordMatrix, words_for};

/// Widths of codes.
const WIDTHS: [u8; 4] = [2, 3, 4, 8];

/// Reads the tensors around `found` and checks everything that kernels rely on.
pub(crate) fn read<'a>(
    checkpoint: &'a Checkpoint,
    request: &LinearRequest<'_>,
    found: &Found<'a>,
) -> Result<GptqLinear<'a>> {
    let base = &found.base;
    let weight = found.weight;
    let words = WordMatrix::from_tensor(&weight)?;
    let stored = words.columns();
    let cut = Cut::new(request, found, request.out_features)?;
    let rows = request.in_features;
    refuse_marlin(&weight, rows, cut.declared)?;
    let bits = width(words.rows(), rows).ok_or_else(|| {
        let declared = cut.declared;
        weight.wrong_shape(format!("[{rows} · bits / 32, {declared}], bits 2, 3, 4 or 8,"))
    })?;
    let columns = cut.packed_columns(found, stored)?;

    let qzeros = checkpoint.require(&format!("{base}.qzeros"))?;
    let zero_words = WordMatrix::from_tensor(&qzeros)?;
    let groups = zero_words.rows();
    let wrong_zeros =
        || qzeros.wrong_shape(format!("[groups, {stored} · {bits} / 32] for {bits}-bit codes"));
    if groups == 0 || Some(zero_words.columns()) != words_for(stored, bits) {
        return Err(wrong_zeros());
    }
    let (zeros, zero_offset) =
        zeros::resolve(zero_words, bits, request.gptq_zeros).ok_or_else(wrong_zeros)?;

    let scales = checkpoint.require(&format!("{base}.scales"))?;
    let scale_matrix = half_scales(&scales, groups, stored)?;

    let mut tensors = vec![weight, qzeros, scales];
    let g_idx = checkpoint.tensor(&format!("{base}.g_idx"));
    tensors.extend(g_idx);
    let groups = Groups::assigned(g_idx.as_ref(), &qzeros, rows, groups)?;
    let parts = Parts {
        bits,
        columns,
        groups,
        words: words.into(),
        zeros,
        zero_offset,
        stored_zeros: true,
        scales: scale_matrix,
        rounded: false,
        tensors,
    };
    parts.with_bias(checkpoint, request, found, cut.declared)
}

/// Bits of a code, when so many rows of codes fill `word_rows` words exactly.
fn width(word_rows: usize, rows: usize) -> Option<u8> {
    let fills = |bits: &u8| {
        let all = rows.checked_mul(usize::from(*bits));
        rows > 0 && all.is_some() && all == word_rows.checked_mul(32)
    };
    WIDTHS.into_iter().find(fills)
}

/// Recognises weights that were rearranged for Marlin kernels by their shape.
fn refuse_marlin(weight: &TensorView<'_>, rows: usize, columns: usize) -> Result<()> {
    let (stored_rows, stored_columns) = weight.matrix_shape()?;
    if stored_rows != rows / 16 || stored_columns / 2 != columns {
        return Ok(());
    }
    let place = format!("`{}`", weight.name);
    let format = UnsupportedFormat::Marlin;
    Err(FormatError::Unsupported { path: weight.file.to_owned(), place, format })
}
