//! What the attention kernels work through in a step: units of a few query rows and a few blocks of
//! keys, and tiles of many query rows. Made on the host, once per shape of heads, not per layer.
//!
//! Packed query rows count `token · group + head in the group`, where a group shares a key/value
//! head. How work is cut never changes a result.

use pagella_backend::{PAGE_TOKENS, StepPlan};

/// Keys of a block, the smallest piece of work.
const BLOCK_KEYS: usize = 64;
/// Keys of a span; its states are merged before those of others.
pub(crate) const SPAN_KEYS: usize = 512;
const SPAN_BLOCKS: usize = SPAN_KEYS / BLOCK_KEYS;
/// Packed query rows of a unit at most.
const UNIT_ROWS: usize = 16;
/// Packed query rows of a tile at most.
pub(crate) const TILE_ROWS: usize = 64;

/// Heads of a layer, as far as they decide how work is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HeadShape {
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
}

impl HeadShape {
    /// Query heads that share a key/value head.
    pub(crate) fn group(self) -> usize {
        (self.heads / self.kv_heads.max(1)).max(1)
    }

    /// Query rows that a slot of the workspace has room for.
    pub(crate) fn tile_rows(self) -> usize {
        UNIT_ROWS.min(self.group().max(UNIT_ROWS / self.group() * self.group())).next_multiple_of(2)
    }
}

/// `DecodeUnit` of `kernels/attend.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unit {
    first_row: u32,
    /// Rows, and the logarithm of blocks per unit above the lowest byte.
    rows: u32,
    position: u32,
    first_block: u32,
    slot: u32,
    counter: u32,
    pages: [u32; 2],
}

/// `PrefillTile` of `kernels/attend.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tile {
    first_row: u32,
    rows: u32,
    position: u32,
    page_start: u32,
}

/// Words of a unit and of a tile.
pub(crate) const UNIT_WORDS: usize = size_of::<Unit>() / 4;
pub(crate) const TILE_WORDS: usize = size_of::<Tile>() / 4;

/// Units as words, for upload.
pub(crate) fn unit_words(units: &[Unit]) -> &[u32] {
    // SAFETY: a unit is words and nothing else.
    unsafe { std::slice::from_raw_parts(units.as_ptr().cast(), units.len() * UNIT_WORDS) }
}

/// Tiles as words, for upload.
pub(crate) fn tile_words(tiles: &[Tile]) -> &[u32] {
    // SAFETY: a tile is words and nothing else.
    unsafe { std::slice::from_raw_parts(tiles.as_ptr().cast(), tiles.len() * TILE_WORDS) }
}

/// The work of one step for one shape of heads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// Rows with few packed query rows.
    pub(crate) units: Vec<Unit>,
    /// The others, long work first.
    pub(crate) tiles: Vec<Tile>,
    /// Slots of the workspace.
    pub(crate) slots: usize,
    /// Counters, times the number of key/value heads.
    pub(crate) counters: usize,
}

impl Work {
    /// Cuts a step's attention.
    pub(crate) fn of(plan: &StepPlan, shape: HeadShape) -> Self {
        let group = shape.group();
        let mut work = Work::default();
        let unit_blocks = unit_blocks(plan, shape);
        let mut page_start = 0;
        for row in 0..plan.rows() {
            let tokens = plan.token_range(row);
            let (past, pages) = (plan.past(row), plan.pages(row));
            let packed = tokens.start * group..tokens.end * group;
            let position = |packed_row: usize| past + (packed_row / group - tokens.start);
            let is_few = tokens.len() == 1 || packed.len() <= UNIT_ROWS;
            let step = if is_few { UNIT_ROWS } else { TILE_ROWS };
            for first in packed.clone().step_by(step) {
                let rows = step.min(packed.end - first);
                let last = position(first + rows - 1);
                if is_few {
                    work.add_units((first, rows), (position(first), last), pages, unit_blocks);
                } else {
                    work.tiles.push(Tile {
                        first_row: first as u32,
                        rows: rows as u32,
                        position: position(first) as u32,
                        page_start: page_start as u32,
                    });
                }
            }
            page_start += pages.len();
        }
        work.tiles.sort_by_key(|tile| std::cmp::Reverse(tile.position));
        work
    }

    /// Adds the units of some packed query rows, which see keys up to `last`.
    fn add_units(
        &mut self,
        (first_row, rows): (usize, usize),
        (position, last): (usize, usize),
        pages: &[u32],
        unit_blocks: usize,
    ) {
        let blocks = last / BLOCK_KEYS + 1;
        let spans = last / SPAN_KEYS + 1;
        let page = |index: usize| pages.get(index).or(pages.last()).copied().unwrap_or(0);
        for first_block in (0..blocks).step_by(unit_blocks) {
            let first_page = first_block / SPAN_BLOCKS * (SPAN_KEYS / PAGE_TOKENS);
            self.units.push(Unit {
                first_row: first_row as u32,
                rows: rows as u32 | unit_blocks.ilog2() << 8,
                position: position as u32,
                first_block: first_block as u32,
                slot: self.slots as u32,
                counter: self.counters as u32,
                pages: [page(first_page), page(first_page + 1)],
            });
        }
        let is_split = unit_blocks < SPAN_BLOCKS;
        self.slots += spans + if is_split { blocks } else { 0 };
        self.counters += 1 + if is_split { spans } else { 0 };
    }
}

/// Blocks per unit, by how many there are over all rows and key/value heads: single ones for little
/// work, so that all multiprocessors have some; whole spans for much, which saves merging. Measured.
fn unit_blocks(plan: &StepPlan, shape: HeadShape) -> usize {
    let blocks = |row: usize| (plan.past(row) + plan.token_range(row).len()).div_ceil(BLOCK_KEYS);
    let tiles = shape.group().div_ceil(UNIT_ROWS);
    let few = (0..plan.rows()).filter(|row| plan.token_range(*row).len() == 1);
    match few.map(blocks).sum::<usize>() * tiles * shape.kv_heads {
        0..=256 => 1,
        257..=512 => 2,
        513..=1024 => 4,
        _ => SPAN_BLOCKS,
    }
}

#[cfg(test)]
mod tests {
    use pagella_backend::{LogitUse, StepRow};

    use super::*;

    fn plan(rows: &[(usize, usize)]) -> StepPlan {
        let pages: Vec<u32> = (0..64).collect();
        let ids = vec![0; 4096];
        let rows: Vec<StepRow<'_>> = rows
            .iter()
            .map(|&(past, new)| StepRow::new(&ids[..new], past, &pages, LogitUse::Choice))
            .collect();
        StepPlan::new(&rows).unwrap()
    }

    #[test]
    fn every_key_of_every_row_is_in_exactly_one_unit() {
        for (heads, kv_heads) in [(8, 8), (8, 2), (40, 2), (64, 1)] {
            let shape = HeadShape { heads, kv_heads };
            let all = [(0, 1), (63, 1), (64, 1), (511, 1), (512, 1), (5000, 1), (15_000, 1)];
            for n in 1..=all.len() {
                let plan = plan(&all[..n]);
                let work = Work::of(&plan, shape);
                for row in 0..plan.rows() {
                    let blocks = plan.past(row) / BLOCK_KEYS + 1;
                    for tile in 0..shape.group().div_ceil(UNIT_ROWS) {
                        let first = (row * shape.group() + tile * UNIT_ROWS) as u32;
                        let units = work.units.iter().filter(|unit| unit.first_row == first);
                        let seen: usize = units.clone().map(|unit| 1 << (unit.rows >> 8)).sum();
                        assert!(seen >= blocks && seen < blocks + SPAN_BLOCKS, "{row} of {n}");
                        assert!(units.clone().all(|unit| unit.rows & 0xff <= 16));
                    }
                }
                assert!(work.tiles.is_empty());
            }
        }
    }

    #[test]
    fn slots_and_counters_of_tiles_do_not_overlap() {
        let plan = plan(&[(700, 1), (10, 1), (2000, 1)]);
        let work = Work::of(&plan, HeadShape { heads: 32, kv_heads: 2 });
        let mut starts: Vec<(u32, u32)> =
            work.units.iter().map(|unit| (unit.slot, unit.counter)).collect();
        starts.dedup();
        // Spans and blocks of 701, 11 and 2001 keys.
        assert_eq!(starts, [(0, 0), (2 + 11, 3), (2 + 11 + 1 + 1, 3 + 2)]);
        assert_eq!((work.slots, work.counters), (15 + 4 + 32, 5 + 5));
    }

    #[test]
    fn long_rows_become_tiles_that_cover_all_packed_rows() {
        let plan = plan(&[(5, 1), (100, 37)]);
        let work = Work::of(&plan, HeadShape { heads: 8, kv_heads: 2 });
        let mut rows: Vec<u32> =
            work.tiles.iter().flat_map(|tile| tile.first_row..tile.first_row + tile.rows).collect();
        rows.sort_unstable();
        assert_eq!(rows, (4..4 * 38).collect::<Vec<u32>>());
        assert!(work.tiles.is_sorted_by_key(|tile| std::cmp::Reverse(tile.position)));
        assert!(work.tiles.iter().all(|tile| tile.page_start == 1));
    }
}
