//! Reading a GPTQ linear: shapes and groups, all checked.

use super::{GptqLinear, ScaleMatrix};
use crate::checkpoint::Checkpoint;
use crate::error::{FormatError, Result};
use crate::linear::{Cut, Found, LinearRequest, read_bias};
use crate::tensor::TensorView;
use crate::unsupported::UnsupportedFormat;
use crate::words::WordMatrix;

/// Codes per packed word.
const CODES_PER_WORD: usize = 8;

/// Reads the tensors around `found` and checks everything that kernels rely on.
pub(crate) fn read<'a>(
    checkpoint: &'a Checkpoint,
    request: &LinearRequest<'_>,
    found: &Found<'a>,
) -> Result<GptqLinear<'a>> {
    let base = &found.base;
    let weight = found.weight;
    let words = WordMatrix::from_tensor(&weight)?;
    let (word_rows, stored) = (words.rows(), words.columns());
    let cut = Cut::new(request, found, request.out_features)?;
    let rows = request.in_features;
    refuse_other_packing(&weight, rows, cut.declared)?;
    if !rows.is_multiple_of(CODES_PER_WORD) || word_rows != rows / CODES_PER_WORD {
        return Err(weight.wrong_shape(format!("[{rows} / 8, {}]", cut.declared)));
    }
    let columns = cut.packed_columns(found, stored)?;

    let qzeros = checkpoint.require(&format!("{base}.qzeros"))?;
    let zeros = WordMatrix::from_tensor(&qzeros)?;
    let groups = zeros.rows();
    if groups == 0 || zeros.columns() != stored / CODES_PER_WORD {
        return Err(qzeros.wrong_shape(format!("[groups, {}]", stored / CODES_PER_WORD)));
    }

    let scales = checkpoint.require(&format!("{base}.scales"))?;
    if !scales.dtype.is_weight_float() {
        return Err(scales.wrong_dtype("F16, BF16 or F32"));
    }
    let scale_matrix = (scales.matrix_shape()? == (groups, stored))
        .then(|| ScaleMatrix::new(scales.data, groups, stored, scales.dtype))
        .flatten()
        .ok_or_else(|| scales.wrong_shape(format!("[{groups}, {stored}]")))?;

    let mut tensors = vec![weight, qzeros, scales];
    let g_idx = checkpoint.tensor(&format!("{base}.g_idx"));
    tensors.extend(g_idx);
    let (group_of_row, group_rows) = row_groups(g_idx.as_ref(), &qzeros, rows, groups)?;
    let bias = read_bias(checkpoint, request, found, (cut.declared, stored), columns.ranges())?;
    let bias = bias.map(|(values, tensor)| {
        tensors.push(tensor);
        values
    });
    Ok(GptqLinear {
        name: base.clone(),
        in_features: rows,
        out_features: request.out_features,
        columns,
        groups,
        group_rows,
        group_of_row,
        words,
        zeros,
        zero_offset: if request.gptq_v2 { 0 } else { 1 },
        scales: scale_matrix,
        bias,
        tensors,
    })
}

/// Recognises other formats that use the name `qweight`, by their shapes.
fn refuse_other_packing(weight: &TensorView<'_>, rows: usize, columns: usize) -> Result<()> {
    let (stored_rows, stored_columns) = weight.matrix_shape()?;
    let bits = [2, 3, 8].into_iter().find(|bits| {
        let total = rows.checked_mul(*bits);
        let packed = total.is_some() && total == stored_rows.checked_mul(32);
        packed && stored_columns == columns
    });
    let format = if stored_rows == rows && stored_columns == columns / CODES_PER_WORD {
        UnsupportedFormat::Awq
    } else if stored_rows == rows / 16 && stored_columns / 2 == columns {
        UnsupportedFormat::Marlin
    } else if let Some(bits) = bits {
        UnsupportedFormat::GptqBits(bits as u64)
    } else {
        return Ok(());
    };
    let place = format!("`{}`", weight.name);
    Err(FormatError::Unsupported { path: weight.file.to_owned(), place, format })
}

/// The group of every row, and the rows per group if they are simply consecutive.
///
/// A `g_idx` of zeros means "consecutive", as tools without activation order write it.
fn row_groups(
    g_idx: Option<&TensorView<'_>>,
    qzeros: &TensorView<'_>,
    rows: usize,
    groups: usize,
) -> Result<(Vec<u32>, Option<usize>)> {
    let assigned = match g_idx {
        Some(tensor) => read_g_idx(tensor, rows, groups)?,
        None => Vec::new(),
    };
    let consecutive =
        |group_rows: usize| (0..rows).map(move |row| (row / group_rows.max(1)) as u32);
    let even = rows.is_multiple_of(groups).then_some(rows / groups);
    if assigned.iter().all(|group| *group == 0) {
        let group_rows = even.filter(|group_rows| *group_rows > 0);
        let uneven = || FormatError::UnevenGroups {
            path: qzeros.file.to_owned(),
            tensor: qzeros.name.to_owned(),
            rows,
            groups,
        };
        let group_rows = group_rows.ok_or_else(uneven)?;
        return Ok((consecutive(group_rows).collect(), Some(group_rows)));
    }
    let group_rows =
        even.filter(|group_rows| consecutive(*group_rows).eq(assigned.iter().copied()));
    Ok((assigned, group_rows))
}

/// The group of every row as stored, each checked to exist.
fn read_g_idx(tensor: &TensorView<'_>, rows: usize, groups: usize) -> Result<Vec<u32>> {
    if tensor.vector_len()? != rows {
        return Err(tensor.wrong_shape(format!("[{rows}]")));
    }
    let check = |(row, group): (usize, i32)| {
        u32::try_from(group).ok().filter(|group| (*group as usize) < groups).ok_or_else(|| {
            FormatError::GroupIndex {
                path: tensor.file.to_owned(),
                tensor: tensor.name.to_owned(),
                row,
                group: group.into(),
                groups,
            }
        })
    };
    tensor.to_i32_vec()?.into_iter().enumerate().map(check).collect()
}
