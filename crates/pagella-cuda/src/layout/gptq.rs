//! Planning GPTQ: rows sorted by group, or f16 weights where groups do not fill blocks.

use pagella_formats::GptqLinear;

use super::BLOCK_ROWS;
use super::args::BlockSource;
use super::chunk::BlockShape;
use super::plain;
use super::plan::{LayoutError, LayoutKind, Source, T32Plan, assemble, unless_identity};

/// Bits of a code; a word holds eight.
const BITS: u8 = 4;

/// Plans a linear of integer codes; its codes are of 4 bits and its scales binary16.
pub(super) fn plan(linear: &GptqLinear<'_>) -> Result<T32Plan, LayoutError> {
    let (name, bits, half) = (linear.name.clone(), linear.bits, linear.scales.is_half());
    if bits != BITS || !half {
        let scales = if half { "with binary16 scales" } else { "with scales beyond binary16" };
        return Err(LayoutError::Codes { name, bits, scales });
    }
    let order = sorted_rows(linear);
    let Some(groups) = block_groups(linear, &order) else {
        return Ok(plain::plan_dequantised(linear.in_features, linear.out_features));
    };
    let words_per_block = u32::from(BITS);
    let blocks = groups
        .iter()
        .zip(0..)
        .map(|(group, block)| BlockSource { word: words_per_block * block, group: *group });
    let shapes: Vec<_> =
        groups.iter().map(|group| BlockShape { bits: BITS, group: *group }).collect();
    Ok(assemble(
        (LayoutKind::Gptq, Source::Gptq { blocks: blocks.collect() }),
        (linear.in_features, linear.out_features),
        &shapes,
        unless_identity(order.into_iter()),
        unless_identity(linear.columns.iter()),
    ))
}

/// The scales as binary16, `[groups, stored columns]`, ready for upload.
pub fn scales(linear: &GptqLinear<'_>) -> Vec<u16> {
    let columns = linear.columns.stored();
    let row = |group| (0..columns).map(move |col| linear.scale(group, col).to_bits());
    (0..linear.groups).flat_map(row).collect()
}

/// The input rows in the order of their groups, and in their own order inside a group.
fn sorted_rows(linear: &GptqLinear<'_>) -> Vec<usize> {
    let mut order: Vec<usize> = (0..linear.in_features).collect();
    order.sort_by_key(|row| linear.group_of_row.get(*row));
    order
}

/// The group of every block of 32 sorted rows; `None` if a block would have several, the last one is
/// not full, or columns do not fill words.
fn block_groups(linear: &GptqLinear<'_>, order: &[usize]) -> Option<Vec<u32>> {
    // The kernel finds the zero points of a group by whole words.
    let whole_words = linear.columns.stored().is_multiple_of(8);
    if !order.len().is_multiple_of(BLOCK_ROWS) || !whole_words {
        return None;
    }
    order
        .chunks(BLOCK_ROWS)
        .map(|rows| {
            let mut groups = rows.iter().filter_map(|row| linear.group_of_row.get(*row));
            let first = groups.next()?;
            groups.all(|group| group == first).then_some(*first)
        })
        .collect()
}
