//! One page of one tile: scores, softmax, weighted values.
//!
//! A few queries read a binary16 page as it is stored. Many first widen it to f32 panels in the
//! cache: keys `[D][256]`, values `[256][padded D]`. Both ways give the same bits. Quantised pages
//! are always decoded into panels; where these stay rotated, so are the queries and the output.

use std::ops::Range;

use pagella_backend::{AttentionOp, PAGE_TOKENS};

use super::merge::STATE_TAIL;
use super::product::{Element, Left, Product, pass_rows, rows_max};
use super::softmax::Softmax;
use super::tile::{Tile, seen_in_page};
use super::{LayerPages, Tensor};
use crate::kv::code::{ROTATION, UNROTATE, rotate_row};
use crate::simd::{Isa, LANES};

/// Passes per tile: enough to hide the widening, few enough for queries to stay in the cache.
const PASSES_PER_TILE: usize = 8;
/// Passes from which on widening pays.
const PASSES_TO_WIDEN: usize = 3;

/// What all spans of one call share.
pub(super) struct Spans<'a> {
    pub(super) isa: Isa,
    pub(super) op: &'a AttentionOp,
    layer: &'a LayerPages,
    /// Query heads per key/value head.
    group: usize,
    /// Head size, rounded up to whole vectors.
    padded: usize,
    rows_max: usize,
}

impl<'a> Spans<'a> {
    pub(super) fn new(isa: Isa, op: &'a AttentionOp, layer: &'a LayerPages) -> Self {
        let group = op.heads / op.kv_heads;
        let padded = op.head_dim.next_multiple_of(LANES);
        Spans { isa, op, layer, group, padded, rows_max: rows_max(isa) }
    }

    /// Tokens per tile.
    pub(super) fn tile_tokens(&self) -> usize {
        (PASSES_PER_TILE * self.rows_max / self.group).max(1)
    }

    /// Queries of a tile.
    pub(super) fn rows(&self, tile: &Tile) -> usize {
        tile.tokens * self.group
    }

    /// Elements of one query's state.
    pub(super) fn state_len(&self) -> usize {
        self.padded + STATE_TAIL
    }

    /// What query `row` of a tile sees of a page.
    pub(super) fn visible(&self, tile: &Tile, row: usize, page: usize) -> Range<usize> {
        seen_in_page(self.op, tile.position + row / self.group, page)
    }

    /// Whether keys and values are rotated.
    pub(super) fn is_rotated(&self) -> bool {
        self.layer.is_rotated()
    }

    /// Whether `rows` queries need a panel or are worth one.
    fn widens(&self, rows: usize) -> bool {
        !self.layer.is_f16() || rows > (PASSES_TO_WIDEN - 1) * self.rows_max
    }

    /// Elements of scratch that [`Span::new`] needs for `rows` queries.
    pub(super) fn scratch_len(&self, rows: usize) -> usize {
        let panels = if self.widens(rows) { self.panel_lens().iter().sum() } else { 0 };
        self.queries_len(rows) + self.rows_max * PAGE_TOKENS + panels
    }

    fn queries_len(&self, rows: usize) -> usize {
        (rows * self.op.head_dim).next_multiple_of(LANES)
    }

    /// Keys and values.
    fn panel_lens(&self) -> [usize; 2] {
        [self.op.head_dim * PAGE_TOKENS, PAGE_TOKENS * self.padded]
    }
}

/// A tile made ready: queries scaled and packed.
pub(super) struct Span<'a> {
    spans: &'a Spans<'a>,
    tile: &'a Tile,
    rows: usize,
    /// Per pass of `r` queries `[D][r]`, back to back.
    queries: &'a mut [f32],
    /// `[rows_max][PAGE_TOKENS]`.
    scores: &'a mut [f32],
    /// Keys and values, empty when the page is read as stored.
    key_panel: &'a mut [f32],
    value_panel: &'a mut [f32],
}

/// Where a page is read from.
#[derive(Clone, Copy)]
struct Source<E> {
    /// `[D][PAGE_TOKENS]`.
    keys: *const E,
    /// `[PAGE_TOKENS][value_step]`.
    values: *const E,
    value_step: usize,
    /// Keys of the page after this one.
    next_keys: *const u8,
}

impl<'a> Span<'a> {
    pub(super) fn new(
        spans: &'a Spans<'a>,
        tile: &'a Tile,
        q: &Tensor,
        scratch: &'a mut [f32],
    ) -> Self {
        let rows = spans.rows(tile);
        let (queries, scratch) = scratch.split_at_mut(spans.queries_len(rows));
        let (scores, scratch) = scratch.split_at_mut(spans.rows_max * PAGE_TOKENS);
        let (key_panel, scratch) =
            scratch.split_at_mut(if spans.widens(rows) { spans.panel_lens()[0] } else { 0 });
        let value_panel = scratch;
        let mut span = Span { spans, tile, rows, queries, scores, key_panel, value_panel };
        span.pack(q);
        span
    }

    /// Passes as (first query, queries).
    fn passes(rows: usize, rows_max: usize) -> impl Iterator<Item = (usize, usize)> {
        let mut first = 0;
        std::iter::from_fn(move || {
            let count = (first < rows).then(|| pass_rows(rows - first, rows_max))?;
            first += count;
            Some((first - count, count))
        })
    }

    fn pack(&mut self, q: &Tensor) {
        let (op, group) = (self.spans.op, self.spans.group);
        for (first, count) in Self::passes(self.rows, self.spans.rows_max) {
            let packed = &mut self.queries[first * op.head_dim..(first + count) * op.head_dim];
            for r in 0..count {
                let row = first + r;
                let start = (self.tile.head * group + row % group) * op.head_dim;
                let query = &q.row(self.tile.token + row / group)[start..start + op.head_dim];
                let mut packed = packed[r..].iter_mut().step_by(count);
                for part in query.chunks(ROTATION) {
                    let mut block = [0.0; ROTATION];
                    block.iter_mut().zip(part).for_each(|(b, x)| *b = x * op.scale);
                    if self.spans.is_rotated() {
                        rotate_row(self.spans.isa, &mut block, UNROTATE);
                    }
                    block[..part.len()].iter().zip(&mut packed).for_each(|(b, p)| *p = *b);
                }
            }
        }
    }

    /// Writes the states of all queries over page `page` of the sequence, whose pages are `pages`.
    /// States of queries that see nothing there are not meaningful.
    pub(super) fn page(&mut self, pages: &[u32], page: usize, states: &mut [f32]) {
        let (layer, head) = (self.spans.layer, self.tile.head);
        let physical = pages[page] as usize;
        let keys = layer.keys.elements.slot_ptr(physical, head);
        let values = layer.values.elements.slot_ptr(physical, head);
        let next = pages.get(page + 1).map_or(physical, |&p| p as usize);
        let next_keys = layer.keys.elements.slot_ptr(next, head);
        let head_dim = self.spans.op.head_dim;
        if self.key_panel.is_empty() {
            let (keys, values) = (keys.cast::<u16>(), values.cast::<u16>());
            let source = Source { keys, values, value_step: head_dim, next_keys };
            // SAFETY: slots of this layer hold `[D][256]` keys and `[256][D]` values, with slack
            // for a vector behind the last.
            unsafe { self.run(page, &source, values.cast(), states) };
            return;
        }
        let last = self.tile.position + self.tile.tokens - 1;
        let tokens = seen_in_page(self.spans.op, last, page).end;
        layer.widen(self.spans.isa, physical, head, tokens, self.key_panel, self.value_panel);
        let (keys, values) = (self.key_panel.as_ptr(), self.value_panel.as_ptr());
        let source = Source { keys, values, value_step: self.spans.padded, next_keys };
        // SAFETY: the panels hold `[D][256]` keys and `[256][padded]` values, filled up to the last
        // token that any query sees.
        unsafe { self.run(page, &source, values.cast(), states) };
    }

    /// # Safety
    /// `source` is valid for all tokens that any query of the tile sees in the page.
    unsafe fn run<E: Element>(
        &mut self,
        page: usize,
        source: &Source<E>,
        values: *const u8,
        states: &mut [f32],
    ) {
        let (spans, stride) = (self.spans, self.spans.state_len());
        let (head_dim, padded) = (spans.op.head_dim, spans.padded);
        assert!(states.len() >= self.rows * stride, "a state for every query");
        for (first, count) in Self::passes(self.rows, spans.rows_max) {
            let visible = |r: usize| spans.visible(self.tile, first + r, page);
            // Queries ascend, so do both ends of what they see.
            let seen = visible(0).start..visible(count - 1).end;
            if seen.is_empty() {
                continue;
            }
            let computed = seen.start / LANES * LANES..seen.end.next_multiple_of(LANES);
            let scores = self.scores.as_mut_ptr();
            // SAFETY: columns are inside the page and the score rows; packed queries hold
            // `head_dim · count` elements; values are read for tokens of the page only.
            unsafe {
                let product = Product {
                    left: Left::Packed,
                    a: self.queries.as_ptr().add(first * head_dim),
                    b: source.keys.add(computed.start),
                    b_step: PAGE_TOKENS,
                    depth: head_dim,
                    columns: computed.len() / LANES,
                    out: scores.add(computed.start),
                    out_step: PAGE_TOKENS,
                    ahead: values,
                };
                product.run(spans.isa, count);
            }
            for r in 0..count {
                let softmax = Softmax {
                    scores: &mut self.scores[r * PAGE_TOKENS..(r + 1) * PAGE_TOKENS],
                    computed: computed.clone(),
                    seen: visible(r),
                    softcap: spans.op.softcap,
                };
                let (top, sum) = softmax.run(spans.isa);
                let tail = (first + r) * stride + padded;
                (states[tail], states[tail + 1]) = (top, sum);
            }
            // SAFETY: as above; states hold `padded` values each.
            unsafe {
                let product = Product {
                    left: Left::Exponentials,
                    a: self.scores.as_ptr().add(seen.start),
                    b: source.values.add(seen.start * source.value_step),
                    b_step: source.value_step,
                    depth: seen.len(),
                    columns: padded / LANES,
                    out: states.as_mut_ptr().add(first * stride),
                    out_step: stride,
                    ahead: source.next_keys,
                };
                product.run(spans.isa, count);
            }
        }
    }
}
