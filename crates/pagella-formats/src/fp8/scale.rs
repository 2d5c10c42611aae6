//! Which weights of an FP8 matrix share a scale, from the shape of the scales.

use crate::dtype::{Dtype, OtherDtype};
use crate::error::Result;
use crate::small_float::{ScaleValues, Sharing, slab, slab_shape};
use crate::tensor::TensorView;

/// Rows and columns that share a scale where no configuration says it.
const GROUP: [usize; 2] = [128, 128];

/// Reads the scales of a stored matrix of `shape`.
pub(super) fn read<'a>(
    tensor: &TensorView<'a>,
    stack: Option<(usize, usize)>,
    shape: [usize; 2],
    transposed: bool,
    declared: Option<[usize; 2]>,
) -> Result<(ScaleValues<'a>, Sharing)> {
    // One scale for all matrices of a stack.
    let stack = stack.filter(|_| !matches!(tensor.shape, [] | [1]));
    let bytes = slab(tensor, stack);
    let values = match tensor.dtype {
        Dtype::F32 => ScaleValues::F32(bytes),
        Dtype::F16 => ScaleValues::F16(bytes),
        Dtype::BF16 => ScaleValues::Bf16(bytes),
        Dtype::Other(OtherDtype::F8E8M0 | OtherDtype::U8) => ScaleValues::E8m0(bytes),
        _ => return Err(tensor.wrong_dtype("F32, BF16, F16 or F8_E8M0")),
    };
    let groups = declared.unwrap_or(GROUP);
    let divides = matches!(values, ScaleValues::E8m0(_));
    let sharing = slab_shape(tensor.shape, stack)
        .and_then(|scales| sharing(scales, shape, transposed, groups, divides));
    let [rows, columns] = shape;
    let [group_rows, group_columns] = groups;
    let outputs = if transposed { columns } else { rows };
    sharing.map(|sharing| (values, sharing)).ok_or_else(|| {
        tensor.wrong_shape(format!(
            "one scale, {outputs} or [{}, {}] for groups of {group_rows} × {group_columns}",
            rows.div_ceil(group_rows),
            columns.div_ceil(group_columns),
        ))
    })
}

/// What scales of this shape are for. `divides`: where the groups do not fit, they are what divides
/// the matrix evenly.
fn sharing(
    scales: &[usize],
    shape: [usize; 2],
    transposed: bool,
    groups: [usize; 2],
    divides: bool,
) -> Option<Sharing> {
    let [rows, columns] = shape;
    let per_output = match transposed {
        true => Sharing::Grid { rows: usize::MAX, columns: 1, stride: columns },
        false => Sharing::Grid { rows: 1, columns: usize::MAX, stride: 1 },
    };
    let [group_rows, group_columns] = groups;
    match *scales {
        [] | [1] | [1, 1] => Some(Sharing::ONE),
        [n] if n == if transposed { columns } else { rows } => Some(per_output),
        [n, 1] if !transposed && n == rows => Some(per_output),
        [1, n] if transposed && n == columns => Some(per_output),
        [down, across]
            if down == rows.div_ceil(group_rows) && across == columns.div_ceil(group_columns) =>
        {
            Some(Sharing::Grid { rows: group_rows, columns: group_columns, stride: across })
        }
        [down, across]
            if divides
                && down > 0
                && across > 0
                && rows.is_multiple_of(down)
                && columns.is_multiple_of(across) =>
        {
            Some(Sharing::Grid { rows: rows / down, columns: columns / across, stride: across })
        }
        _ => None,
    }
}
