//! AWQ in the `gemm` layout: 4 bits with zero points, packed along the outputs.
//!
//! Names are those of GPTQ, and shapes tell the two apart: a word of AWQ holds eight outputs of one
//! input. Weights are binary16 numbers, `f16((code − zero) · scale)`. A linear is re-packed to the
//! form of GPTQ when its words are first wanted.

use crate::checkpoint::Checkpoint;
use crate::error::Result;
use crate::gptq::GptqLinear;
use crate::gptq::parts::{Groups, Parts, half_scales, mapped};
use crate::gptq::repack::transpose_nibbles;
use crate::linear::{Cut, Found, LinearRequest, Reader};
use crate::registry::WeightFormat;
use crate::tensor::TensorView;
use crate::words::{WordMatrix, Words, words_for};

/// AWQ in the registry.
pub(crate) const FORMAT: WeightFormat = WeightFormat {
    name: "AWQ",
    id: "awq",
    methods: &["awq"],
    tensors: &[".qweight", ".qzeros", ".scales"],
    is_source: false,
    find,
    reader: Reader::Gptq(read),
    stacked: false,
};

/// Bits of a code.
const BITS: u8 = 4;
/// Codes of a word.
const CODES: usize = 8;
/// The column, of the eight of a word, at each nibble position.
const COLUMN_AT: [usize; CODES] = [0, 2, 4, 6, 1, 3, 5, 7];

/// Weights under the name of GPTQ of which a word holds eight columns.
fn find<'a>(checkpoint: &'a Checkpoint, base: &str) -> Option<TensorView<'a>> {
    let weight = checkpoint.tensor(&format!("{base}.qweight"))?;
    let scales = checkpoint.tensor(&format!("{base}.scales"))?;
    match (weight.shape, scales.shape) {
        ([_, words], [_, columns]) if words.checked_mul(CODES) == Some(*columns) => Some(weight),
        _ => None,
    }
}

fn read<'a>(
    checkpoint: &'a Checkpoint,
    request: &LinearRequest<'_>,
    found: &Found<'a>,
) -> Result<GptqLinear<'a>> {
    let base = &found.base;
    let weight = found.weight;
    let packed = WordMatrix::from_tensor(&weight)?;
    let rows = request.in_features;
    let cut = Cut::new(request, found, request.out_features)?;
    let wrong_shape = || weight.wrong_shape(format!("[{rows}, {} / 8]", cut.declared));
    let stored = packed.columns().checked_mul(CODES).ok_or_else(wrong_shape)?;
    if packed.rows() != rows {
        return Err(wrong_shape());
    }
    let columns = cut.packed_columns(found, stored)?;

    let qzeros = checkpoint.require(&format!("{base}.qzeros"))?;
    let zeros = WordMatrix::from_tensor(&qzeros)?;
    let count = zeros.rows();
    let wrong_zeros = || qzeros.wrong_shape(format!("[groups, {stored} / 8]"));
    if count == 0 || zeros.columns() != packed.columns() {
        return Err(wrong_zeros());
    }
    let groups = Groups::consecutive(&qzeros, rows, count)?;
    let scales = checkpoint.require(&format!("{base}.scales"))?;
    let parts = Parts {
        bits: BITS,
        columns,
        groups,
        words: repacked(packed).ok_or_else(wrong_shape)?,
        zeros: mapped(zeros, in_order).ok_or_else(wrong_zeros)?,
        zero_offset: 0,
        stored_zeros: true,
        scales: half_scales(&scales, count, stored)?,
        rounded: true,
        tensors: vec![weight, qzeros, scales],
    };
    parts.with_bias(checkpoint, request, found, cut.declared)
}

/// A word with its nibbles in the order of their columns.
fn in_order(word: u32) -> u32 {
    let nibbles = COLUMN_AT.iter().enumerate();
    nibbles.fold(0, |ordered, (at, column)| ordered | (word >> (4 * at) & 15) << (4 * column))
}

/// `[inputs, outputs / 8]` as `[inputs / 8, outputs]`; missing inputs of the last words are zero.
fn repacked(packed: WordMatrix<'_>) -> Option<Words<'_>> {
    let (rows, columns) = (packed.rows(), packed.columns().checked_mul(CODES)?);
    Words::repacked(words_for(rows, BITS)?, columns, move |out| {
        let (out, _) = out.as_chunks_mut::<4>();
        for (block, out) in out.chunks_exact_mut(columns.max(1)).enumerate() {
            let first = block * CODES;
            for (word, out) in out.as_chunks_mut::<CODES>().0.iter_mut().enumerate() {
                let mut square: [u32; CODES] = std::array::from_fn(|row| {
                    if first + row < rows { packed.word(first + row, word) } else { 0 }
                });
                transpose_nibbles(&mut square);
                for (codes, column) in square.into_iter().zip(COLUMN_AT) {
                    if let Some(out) = out.get_mut(column) {
                        *out = codes.to_le_bytes();
                    }
                }
            }
        }
    })
}
