//! How the rows of a linear are cut for the kernels, and in which order its inputs arrive.
//!
//! Canonical order of a linear's sum over `K` packed rows: 8 segments of `32·ceil(K/256)` rows;
//! inside a segment one chain, rows (or activation blocks) ascending, from 0; segments added
//! ascending. Every kernel and every level follows it, so a row's bits never depend on its batch.

use super::rotate::Rotation;

/// Rows that one 64-byte line group holds.
pub(crate) const BLOCK_ROWS: usize = 32;
/// Longest run of rows that shares one activation scale in wide arithmetic.
const ACTIVATION_ROWS_MAX: usize = 128;
/// Segments of the canonical sum.
const SEGMENTS: usize = 8;

/// Consecutive packed rows inside one group and one segment; a multiple of [`BLOCK_ROWS`], at
/// most 128. The unit of activation scales and of kernel dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RowBlock {
    /// First packed row.
    pub first_row: usize,
    /// Number of rows.
    pub rows: usize,
    /// Code width in bits; 0 for plain weights.
    pub bits: u8,
    /// Quantisation group.
    pub group: usize,
    /// First 64-byte line within a tile.
    pub first_line: usize,
    /// Whether the canonical chain ends here.
    pub ends_segment: bool,
}

/// Rows per segment of a sum over `rows` packed rows.
pub(crate) fn segment_rows(rows: usize) -> usize {
    BLOCK_ROWS * rows.div_ceil(BLOCK_ROWS * SEGMENTS).max(1)
}

/// Cuts groups `(bits, rows)` into row blocks. Rows of every group are a multiple of 32, except
/// that plain weights (`bits == 0`) may end with a short block.
pub(crate) fn cut(groups: impl Iterator<Item = (u8, usize)>, total_rows: usize) -> Vec<RowBlock> {
    let segment = segment_rows(total_rows);
    let mut blocks = Vec::new();
    let (mut row, mut line) = (0, 0);
    for (group, (bits, rows)) in groups.enumerate() {
        let end = row + rows;
        while row < end {
            let segment_end = (row / segment + 1) * segment;
            let stop = end.min(segment_end).min(row + ACTIVATION_ROWS_MAX);
            blocks.push(RowBlock {
                first_row: row,
                rows: stop - row,
                bits,
                group,
                first_line: line,
                ends_segment: stop == segment_end || stop == total_rows,
            });
            line += usize::from(bits) * (stop - row) / BLOCK_ROWS;
            row = stop;
        }
    }
    blocks
}

/// The order and the blocks in which a linear wants its input; shared by linears that agree.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct InputLayout {
    /// Packed row `r` takes input feature `perm[r]`; empty for the natural order.
    pub perm: Vec<u32>,
    /// Row blocks in packed order; they cover all rows.
    pub blocks: Vec<RowBlock>,
    /// Number of rows.
    pub rows: usize,
    /// What happens to a row first.
    pub rotation: Option<Rotation>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_never_cross_a_group_or_a_segment() {
        let groups = [(8u8, 32usize), (5, 64), (4, 416), (4, 128), (3, 96)];
        let total: usize = groups.iter().map(|g| g.1).sum();
        let blocks = cut(groups.into_iter(), total);
        let segment = segment_rows(total);
        assert_eq!(segment, 96);
        let mut row = 0;
        let mut line = 0;
        for block in &blocks {
            assert_eq!(block.first_row, row);
            assert_eq!(block.first_line, line);
            assert!(block.rows <= 128 && block.rows.is_multiple_of(32));
            let last = block.first_row + block.rows - 1;
            assert_eq!(block.first_row / segment, last / segment);
            assert_eq!(block.ends_segment, (last + 1).is_multiple_of(segment) || last + 1 == total);
            row += block.rows;
            line += usize::from(block.bits) * block.rows / 32;
        }
        assert_eq!(row, total);
    }

    #[test]
    fn plain_rows_may_end_short() {
        let blocks = cut([(0u8, 40usize)].into_iter(), 40);
        let rows: Vec<_> = blocks.iter().map(|b| (b.first_row, b.rows, b.ends_segment)).collect();
        assert_eq!(rows, [(0, 32, true), (32, 8, true)]);
    }
}
