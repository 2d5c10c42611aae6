//! What every format of integer codes checks alike: rows in groups, scales, zero points of its own.

use super::repack::map_words;
use super::{GptqLinear, ScaleMatrix};
use crate::checkpoint::Checkpoint;
use crate::error::{FormatError, Result};
use crate::linear::{Columns, Found, LinearRequest, read_bias};
use crate::tensor::TensorView;
use crate::words::{WordMatrix, Words, words_for};

/// A linear of integer codes but for what is read alike.
pub(crate) struct Parts<'a> {
    pub bits: u8,
    pub columns: Columns,
    pub groups: Groups,
    pub words: Words<'a>,
    pub zeros: Words<'a>,
    pub zero_offset: u8,
    pub stored_zeros: bool,
    pub scales: ScaleMatrix<'a>,
    pub rounded: bool,
    pub tensors: Vec<TensorView<'a>>,
}

impl<'a> Parts<'a> {
    /// The linear, with its bias; `declared` is the output count of the whole stored tensor.
    pub fn with_bias(
        mut self,
        checkpoint: &'a Checkpoint,
        request: &LinearRequest<'_>,
        found: &Found<'a>,
        declared: usize,
    ) -> Result<GptqLinear<'a>> {
        let stored = (declared, self.columns.stored());
        let bias = read_bias(checkpoint, request, found, stored, self.columns.ranges())?;
        let bias = bias.map(|(values, tensor)| {
            self.tensors.push(tensor);
            values
        });
        Ok(GptqLinear {
            kind: found.kind,
            name: found.base.clone(),
            bits: self.bits,
            in_features: request.in_features,
            out_features: request.out_features,
            columns: self.columns,
            groups: self.groups.count,
            group_rows: self.groups.rows,
            group_of_row: self.groups.of_row,
            words: self.words,
            zeros: self.zeros,
            zero_offset: self.zero_offset,
            stored_zeros: self.stored_zeros,
            scales: self.scales,
            rounded: self.rounded,
            bias,
            tensors: self.tensors,
        })
    }
}

/// Which rows share a scale.
pub(crate) struct Groups {
    pub count: usize,
    /// Group of every row, each below `count`.
    pub of_row: Vec<u32>,
    /// Rows of a group if they are simply consecutive.
    pub rows: Option<usize>,
}

impl Groups {
    /// Consecutive rows in `count` groups of equal size; `counted` is the tensor that says how many.
    pub fn consecutive(counted: &TensorView<'_>, rows: usize, count: usize) -> Result<Self> {
        let even = rows.checked_div(count).filter(|each| *each > 0 && each * count == rows);
        let group_rows = even.ok_or_else(|| FormatError::UnevenGroups {
            path: counted.file.to_owned(),
            tensor: counted.name.to_owned(),
            rows,
            groups: count,
        })?;
        let of_row = (0..rows).map(|row| (row / group_rows) as u32).collect();
        Ok(Self { count, of_row, rows: Some(group_rows) })
    }

    /// The groups that `g_idx` assigns. One of nothing but zeros means "consecutive", as tools
    /// without activation order write it.
    pub fn assigned(
        g_idx: Option<&TensorView<'_>>,
        counted: &TensorView<'_>,
        rows: usize,
        count: usize,
    ) -> Result<Self> {
        let of_row = match g_idx {
            Some(tensor) => read_g_idx(tensor, rows, count)?,
            None => Vec::new(),
        };
        if of_row.iter().all(|group| *group == 0) {
            return Self::consecutive(counted, rows, count);
        }
        let even = rows.checked_div(count).filter(|each| *each > 0 && each * count == rows);
        let in_order =
            |each: &usize| (0..rows).map(|row| (row / each) as u32).eq(of_row.iter().copied());
        let rows = even.filter(in_order);
        Ok(Self { count, of_row, rows })
    }
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

/// Scales of GPTQ and AWQ, `[groups, stored]`, read as binary16 and all finite.
pub(crate) fn half_scales<'a>(
    tensor: &TensorView<'a>,
    groups: usize,
    stored: usize,
) -> Result<ScaleMatrix<'a>> {
    if !tensor.dtype.is_weight_float() {
        return Err(tensor.wrong_dtype("F16, BF16 or F32"));
    }
    let scales = (tensor.matrix_shape()? == (groups, stored))
        .then(|| ScaleMatrix::new(tensor.data, groups, stored, tensor.dtype))
        .flatten()
        .ok_or_else(|| tensor.wrong_shape(format!("[{groups}, {stored}]")))?;
    check_finite(tensor, scales)
}

/// Scales of formats that store them by output: `[columns, groups]`, one for each output, or one for
/// everything; each as `map` gives it. Also how many groups there are.
pub(crate) fn column_scales(
    tensor: &TensorView<'_>,
    columns: usize,
    map: impl Fn(f32) -> f32,
) -> Result<(ScaleMatrix<'static>, usize)> {
    let groups = match *tensor.shape {
        [] | [1] | [1, 1] => 1,
        [len] if len == columns => 1,
        [len, groups] if len == columns && groups > 0 => groups,
        _ => {
            let expected = format!("[{columns}, groups], [{columns}, 1] or [1]");
            return Err(tensor.wrong_shape(expected));
        }
    };
    let stored = tensor.to_finite_f32()?;
    let one = stored.len() == 1;
    let value = |column: usize, group: usize| {
        let at = if one { 0 } else { column * groups + group };
        stored.get(at).map_or(0.0, |scale| map(*scale))
    };
    let values = (0..groups).flat_map(|group| (0..columns).map(move |column| (column, group)));
    let values = values.map(|(column, group)| value(column, group)).collect();
    let scales = ScaleMatrix::exact(values, groups, columns, tensor.data.len())
        .ok_or_else(|| tensor.wrong_shape(format!("[{columns}, groups]")))?;
    Ok((check_finite(tensor, scales)?, groups))
}

fn check_finite<'a>(tensor: &TensorView<'_>, scales: ScaleMatrix<'a>) -> Result<ScaleMatrix<'a>> {
    match scales.not_finite() {
        None => Ok(scales),
        Some(index) => Err(FormatError::NotFinite {
            path: tensor.file.to_owned(),
            tensor: tensor.name.to_owned(),
            index,
        }),
    }
}

/// Zero points in the middle of the codes, for formats that store none; `None` when they cannot be
/// counted.
pub(crate) fn middle_zeros(bits: u8, groups: usize, columns: usize) -> Option<Words<'static>> {
    let pattern: u32 = match bits {
        2 => 0xaaaa_aaaa,
        4 => 0x8888_8888,
        _ => 0x8080_8080,
    };
    Words::repacked(groups, words_for(columns, bits)?, move |out| {
        out.as_chunks_mut::<4>().0.fill(pattern.to_le_bytes());
    })
}

/// The same zero code for every column of one group; `None` when they cannot be counted.
pub(crate) fn equal_zeros(bits: u8, columns: usize, code: u8) -> Option<Words<'static>> {
    let codes = 32 / u32::from(bits);
    let pattern = (0..codes).fold(0, |word, at| word | u32::from(code) << (at * u32::from(bits)));
    Words::repacked(1, words_for(columns, bits)?, move |out| {
        out.as_chunks_mut::<4>().0.fill(pattern.to_le_bytes());
    })
}

/// The words of `matrix`, each through `map`; `None` when they cannot be counted.
pub(crate) fn mapped<'a>(
    matrix: WordMatrix<'a>,
    map: impl Fn(u32) -> u32 + Send + Sync + 'a,
) -> Option<Words<'a>> {
    Words::repacked(matrix.rows(), matrix.columns(), move |out| map_words(matrix, out, &map))
}
