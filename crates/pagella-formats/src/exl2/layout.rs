//! Reading an EXL2 linear: shapes, tables and row order, all checked.

use super::{Exl2Linear, groups};
use crate::checkpoint::Checkpoint;
use crate::dtype::Dtype;
use crate::error::{FormatError, Result};
use crate::linear::{Cut, Found, LinearRequest, read_bias};
use crate::tensor::{TensorView, elements};
use crate::words::WordMatrix;

/// Reads the tensors around `found` and checks everything that kernels rely on.
pub(crate) fn read<'a>(
    checkpoint: &'a Checkpoint,
    request: &LinearRequest<'_>,
    found: &Found<'a>,
) -> Result<Exl2Linear<'a>> {
    let base = &found.base;
    let weight = found.weight;
    let words = WordMatrix::from_tensor(&weight)?;
    let (word_rows, stored) = (words.rows(), words.columns());
    let cut = Cut::new(request, found, request.out_features)?;
    let columns = cut.packed_columns(found, stored)?;

    let table = checkpoint.require(&format!("{base}.q_groups"))?;
    table.expect_dtype(Dtype::I16)?;
    table.vector_len()?;
    let ceilings = checkpoint.require(&format!("{base}.q_scale_max"))?;
    ceilings.expect_dtype(Dtype::F16)?;
    ceilings.vector_len()?;
    let groups = groups::parse(table.data, ceilings.data, word_rows).map_err(|source| {
        let (path, tensor) = (table.file.to_owned(), table.name.to_owned());
        FormatError::GroupTable { path, tensor, source }
    })?;

    let scale = checkpoint.require(&format!("{base}.q_scale"))?;
    let scales = WordMatrix::from_tensor(&scale)?;
    if (scales.rows(), scales.columns()) != (groups.len(), stored / 8) {
        return Err(scale.wrong_shape(format!("[{}, {}]", groups.len(), stored / 8)));
    }

    let invperm = checkpoint.require(&format!("{base}.q_invperm"))?;
    let rows = groups.last().map_or(0, |last| last.first_row + last.rows);
    if rows != request.in_features {
        return Err(weight.wrong_shape(format!(
            "words for {} rows, while its group table makes {rows},",
            request.in_features
        )));
    }
    let perm = read_permutation(&invperm, rows)?;

    let mut tensors = vec![weight, scale, ceilings, table, invperm];
    let bias = read_bias(checkpoint, request, found, (cut.declared, stored), columns.ranges())?;
    let bias = bias.map(|(values, tensor)| {
        tensors.push(tensor);
        values
    });
    Ok(Exl2Linear {
        name: base.clone(),
        in_features: request.in_features,
        out_features: request.out_features,
        columns,
        groups,
        words,
        scales,
        perm,
        bias,
        tensors,
    })
}

/// The inverse of the stored order: which input feature each packed row holds.
fn read_permutation(invperm: &TensorView<'_>, rows: usize) -> Result<Vec<u32>> {
    invperm.expect_dtype(Dtype::I32)?;
    if invperm.vector_len()? != rows {
        return Err(invperm.wrong_shape(format!("[{rows}]")));
    }
    let positions = elements(invperm.data, i32::from_le_bytes);
    invert(&positions).map_err(|index| FormatError::NotAPermutation {
        path: invperm.file.to_owned(),
        tensor: invperm.name.to_owned(),
        rows,
        index,
        value: positions.get(index).copied().unwrap_or_default().into(),
    })
}

/// The inverse permutation, or the first index whose value is out of range or seen before.
pub(super) fn invert(positions: &[i32]) -> std::result::Result<Vec<u32>, usize> {
    const UNSET: u32 = u32::MAX;
    let mut inverse = vec![UNSET; positions.len()];
    for (index, position) in positions.iter().enumerate() {
        let slot = usize::try_from(*position).ok().and_then(|at| inverse.get_mut(at));
        match slot {
            Some(slot) if *slot == UNSET => *slot = u32::try_from(index).map_err(|_| index)?,
            _ => return Err(index),
        }
    }
    Ok(inverse)
}
