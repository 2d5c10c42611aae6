//! Causal attention over paged keys and values.
//!
//! The canonical order, the same for one query or a thousand, on any number of threads: a span is
//! one page. Inside it, a score is one `fma` chain over the elements of the head; then one maximum,
//! all exponentials, a 16-lane sum, and for every output element one `fma` chain over the tokens.
//! Spans are merged in ascending order. A masked token is an exact 0 and never moves the maximum;
//! pages that are masked as a whole are skipped.
//!
//! - `shape`: sizes that all of a call shares;
//! - `tile`: which queries are worked on together, and what they see;
//! - `span`, `coded`, `slice`: one page of one tile, made of the kernels in `product` and `softmax`;
//! - `merge`: spans put together;
//! - `scratch`: memory that a thread keeps between calls.

mod coded;
mod merge;
pub(super) mod product;
pub(super) mod scratch;
mod shape;
mod slice;
mod softmax;
mod span;
mod tile;

use std::cell::RefCell;

use pagella_backend::{AttentionOp, BackendError, StepPlan};

use self::merge::{absorb, clear, finish};
use self::scratch::with_scratch;
use self::shape::Spans;
use self::span::Span;
use self::tile::{Tile, cut};
use crate::Tensor;
use crate::kv::code::{ROTATION, UNROTATE, rotate_row};
use crate::kv::{KvPages, LayerPages, expect_groups};
use crate::simd::Isa;
use crate::threads::{Pool, Shares};

/// Products that are worth handing to others: computing them takes some microseconds.
const SHARED_PRODUCTS_MIN: usize = 1 << 17;
/// Tiles per thread below which the pages of a tile are shared among threads.
const TILES_PER_THREAD_MIN: usize = 3;
/// Pieces per thread to cut into then; more pieces balance better, longer ones prefetch better.
const PIECES_PER_THREAD: usize = 3;

thread_local! {
    /// Work lists of the calling thread, kept to be allocated once.
    static LISTS: RefCell<Lists> = const { RefCell::new(Lists::new()) };
}

struct Lists {
    tiles: Vec<Tile>,
    pieces: Vec<Piece>,
    partials: Vec<f32>,
}

impl Lists {
    const fn new() -> Self {
        Lists { tiles: Vec::new(), pieces: Vec::new(), partials: Vec::new() }
    }
}

/// Some consecutive pages of one tile.
#[derive(Clone, Copy)]
struct Piece {
    tile: usize,
    first_page: usize,
    pages: usize,
}

/// See [`pagella_backend::Backend::attend`].
#[allow(clippy::too_many_arguments)]
pub(crate) fn attend(
    isa: Isa,
    pool: &Pool,
    plan: &StepPlan,
    op: &AttentionOp,
    sinks: Option<&[f32]>,
    q: &Tensor,
    kv: &KvPages,
    out: &mut Tensor,
) -> Result<(), BackendError> {
    if let Some(sinks) = sinks
        && sinks.len() != op.heads
    {
        let (expected, found) = (op.heads, sinks.len());
        return Err(BackendError::Size { what: "attention sinks", expected, found });
    }
    q.expect("queries", plan.tokens(), op.heads * op.head_dim)?;
    out.expect("attention output", plan.tokens(), op.heads * op.value_dim())?;
    let layer = kv.layer(op)?;
    expect_groups(op)?;
    kv.expect_pages(plan)?;
    let job = Job { spans: Spans::new(isa, op, layer), plan, sinks, q };
    LISTS.with_borrow_mut(|lists| {
        cut(plan, op, (job.spans.tile_tokens(), job.spans.group), &mut lists.tiles);
        let single_pages = lists.tiles.iter().all(|t| t.pages == 1);
        let enough = lists.tiles.len() >= TILES_PER_THREAD_MIN * pool.threads();
        let out = Shares::new(&mut out.data);
        if enough || single_pages || pool.threads() == 1 {
            let tiles = &lists.tiles;
            let worth = job.spans.products(tiles) >= SHARED_PRODUCTS_MIN;
            // The last tiles see the most: starting with them leaves no straggler.
            let task = |i: usize| job.whole_tile(&tiles[tiles.len() - 1 - i], &out);
            return pool.run_if(worth, tiles.len(), &task);
        }
        job.split(pool, lists, &out)
    })
}

/// One call of [`attend`].
struct Job<'a> {
    spans: Spans<'a>,
    plan: &'a StepPlan,
    /// One more logit per head.
    sinks: Option<&'a [f32]>,
    q: &'a Tensor,
}

impl Job<'_> {
    /// All pages of a tile, merged as they come.
    fn whole_tile(&self, tile: &Tile, out: &Shares<'_, f32>) {
        let (spans, rows) = (&self.spans, self.spans.rows(tile));
        let stride = spans.state_len();
        let len = 2 * rows * stride + spans.scratch_len(rows);
        with_scratch(len, |scratch| {
            let (states, scratch) = scratch.split_at_mut(rows * stride);
            let (parts, scratch) = scratch.split_at_mut(rows * stride);
            clear(states, stride);
            let mut span = Span::new(spans, tile, self.q, scratch);
            for page in tile.first_page..tile.first_page + tile.pages {
                span.page(self.plan.pages(tile.row), page, parts);
                for row in 0..rows {
                    if !spans.visible(tile, row, page).is_empty() {
                        let at = row * stride..(row + 1) * stride;
                        absorb(spans.isa, &mut states[at.clone()], &parts[at]);
                    }
                }
            }
            self.write(tile, states, out);
        });
    }

    /// Pages of a tile in parallel: first all spans, then their merge.
    fn split(
        &self,
        pool: &Pool,
        lists: &mut Lists,
        out: &Shares<'_, f32>,
    ) -> Result<(), BackendError> {
        let (spans, stride) = (&self.spans, self.spans.state_len());
        let pages: usize = lists.tiles.iter().map(|t| t.pages).sum();
        let piece_pages = pages.div_ceil(PIECES_PER_THREAD * pool.threads());
        lists.pieces.clear();
        let mut total = 0;
        for (index, tile) in lists.tiles.iter_mut().enumerate() {
            tile.partial = total;
            total += tile.pages * spans.rows(tile) * stride;
            let end = tile.first_page + tile.pages;
            let firsts = (tile.first_page..end).step_by(piece_pages);
            lists.pieces.extend(firsts.map(|first_page| Piece {
                tile: index,
                first_page,
                pages: piece_pages.min(end - first_page),
            }));
        }
        if lists.partials.len() < total {
            lists.partials.resize(total, 0.0);
        }
        let (tiles, pieces) = (&lists.tiles, &lists.pieces);
        let partials = Shares::new(&mut lists.partials);
        pool.run(pieces.len(), &|i| {
            let piece = &pieces[i];
            let tile = &tiles[piece.tile];
            let part_len = spans.rows(tile) * stride;
            with_scratch(spans.scratch_len(spans.rows(tile)), |scratch| {
                let mut span = Span::new(spans, tile, self.q, scratch);
                for page in piece.first_page..piece.first_page + piece.pages {
                    let start = tile.partial + (page - tile.first_page) * part_len;
                    // SAFETY: every page of every tile has its own partials, in one piece only.
                    let parts = unsafe { partials.part(start..start + part_len) };
                    span.page(self.plan.pages(tile.row), page, parts);
                }
            });
        })?;
        let partials = &lists.partials;
        pool.run(tiles.len(), &|i| self.merge(&tiles[i], partials, out))
    }

    /// Merges the partial results of a tile.
    fn merge(&self, tile: &Tile, partials: &[f32], out: &Shares<'_, f32>) {
        let (spans, rows) = (&self.spans, self.spans.rows(tile));
        let stride = spans.state_len();
        with_scratch(rows * stride, |states| {
            clear(states, stride);
            for page in tile.first_page..tile.first_page + tile.pages {
                let start = tile.partial + (page - tile.first_page) * rows * stride;
                for row in 0..rows {
                    if !spans.visible(tile, row, page).is_empty() {
                        let part = start + row * stride;
                        let state = &mut states[row * stride..(row + 1) * stride];
                        absorb(spans.isa, state, &partials[part..part + stride]);
                    }
                }
            }
            self.write(tile, states, out);
        });
    }

    /// Divides by the sums and writes the rows of a tile.
    fn write(&self, tile: &Tile, states: &[f32], out: &Shares<'_, f32>) {
        let (op, spans) = (self.spans.op, &self.spans);
        let (group, width) = (spans.group, op.value_dim());
        for (row, state) in states.chunks_exact(spans.state_len()).enumerate() {
            let head = tile.query + row % group;
            let start = ((tile.token + row / group) * op.heads + head) * width;
            // SAFETY: every query belongs to one tile.
            let out = unsafe { out.part(start..start + width) };
            let sink = self.sinks.map(|sinks| sinks[head]);
            if !spans.is_rotated() {
                finish(spans.isa, state, 0, sink, out);
                continue;
            }
            let (blocks, rest) = out.split_at_mut(width / ROTATION * ROTATION);
            finish(spans.isa, state, 0, sink, blocks);
            rotate_row(spans.isa, blocks, UNROTATE);
            // Values in keys may end within a block; a state holds all of it.
            if !rest.is_empty() {
                let mut block = [0.0; ROTATION];
                finish(spans.isa, state, blocks.len(), sink, &mut block);
                rotate_row(spans.isa, &mut block, UNROTATE);
                rest.copy_from_slice(&block[..rest.len()]);
            }
        }
    }
}

#[cfg(test)]
mod tests;
