//! One page of one tile: scores, softmax, weighted values.
//!
//! A few queries read a binary16 page as it is stored. Many first widen it to f32 panels in the
//! cache: keys `[D][256]`, values `[256][padded D]`. Quantised pages are decoded, into such panels,
//! for fewer queries in slices, for very few where they are multiplied. All ways give the same bits. Where decoded pages stay rotated,
//! so are the queries and the output.

use std::ops::Range;

use pagella_backend::PAGE_TOKENS;

use super::Tensor;
use super::product::{Element, Left, Product, pass_rows};
use super::shape::{Reading, Spans};
use super::softmax::Softmax;
use super::tile::Tile;
use crate::kv::code::{ROTATION, UNROTATE, rotate_row};
use crate::kv::coded;
use crate::simd::LANES;

/// A tile made ready: queries scaled and packed.
pub(super) struct Span<'a> {
    pub(super) spans: &'a Spans<'a>,
    pub(super) tile: &'a Tile,
    pub(super) rows: usize,
    /// Per pass of `r` queries `[D][r]`, back to back.
    pub(super) queries: &'a mut [f32],
    /// `[rows_max][PAGE_TOKENS]`, or `[rows][PAGE_TOKENS]` for quantised pages.
    pub(super) scores: &'a mut [f32],
    /// Keys; for slices values, too. Empty when the page is read as stored.
    pub(super) key_panel: &'a mut [f32],
    /// Values.
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
        let (scores, scratch) = scratch.split_at_mut(spans.scores_len(rows));
        let (key_panel, value_panel) = scratch.split_at_mut(spans.panel_lens(rows)[0]);
        let mut span = Span { spans, tile, rows, queries, scores, key_panel, value_panel };
        span.pack(q);
        span
    }

    /// Passes as (first query, queries).
    pub(super) fn passes(
        spans: &Spans<'_>,
        rows: usize,
    ) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (isa, rows_max) = (spans.isa, spans.rows_max);
        let coded = spans.reading(rows) == Reading::Coded;
        let of =
            move |left| if coded { coded::pass_rows(isa, left) } else { pass_rows(left, rows_max) };
        let mut first = 0;
        std::iter::from_fn(move || {
            let count = (first < rows).then(|| of(rows - first))?;
            first += count;
            Some((first - count, count))
        })
    }

    fn pack(&mut self, q: &Tensor) {
        let (op, group) = (self.spans.op, self.spans.group);
        for (first, count) in Self::passes(self.spans, self.rows) {
            let packed = &mut self.queries[first * op.head_dim..(first + count) * op.head_dim];
            for r in 0..count {
                let row = first + r;
                let start = (self.tile.query + row % group) * op.head_dim;
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
        let physical = pages[page] as usize;
        match self.spans.reading(self.rows) {
            Reading::Stored => self.stored_page(pages, page, states),
            Reading::Coded => self.coded_page(pages, page, states),
            Reading::Slices => self.sliced_page(physical, page, states),
            Reading::Panels => self.widened_page(physical, page, states),
        }
    }

    fn stored_page(&mut self, pages: &[u32], page: usize, states: &mut [f32]) {
        let (layer, head, physical) = (self.spans.layer, self.tile.head, pages[page] as usize);
        let Some(values) = &layer.values else { unreachable!("such pages are widened") };
        let keys = layer.keys.elements.slot_ptr(physical, head).cast::<u16>();
        let values = values.elements.slot_ptr(physical, head).cast::<u16>();
        let next = pages.get(page + 1).map_or(physical, |&p| p as usize);
        let next_keys = layer.keys.elements.slot_ptr(next, head);
        let source = Source { keys, values, value_step: layer.head_dim, next_keys };
        // SAFETY: slots of this layer hold `[D][256]` keys and `[256][D]` values, with slack for a
        // vector behind the last.
        unsafe { self.run(page, &source, states) };
    }

    fn widened_page(&mut self, physical: usize, page: usize, states: &mut [f32]) {
        let (layer, head) = (self.spans.layer, self.tile.head);
        let tokens = self.spans.visible(self.tile, self.rows - 1, page).end;
        let (isa, step) = (self.spans.isa, self.spans.padded);
        layer.widen(isa, physical, head, tokens, self.key_panel, self.value_panel, step);
        let (keys, values) = (self.key_panel.as_ptr(), self.value_panel.as_ptr());
        // Nothing is fetched ahead of panels.
        let next_keys = std::ptr::null();
        let source = Source { keys, values, value_step: self.spans.padded, next_keys };
        // SAFETY: the panels hold `[D][256]` keys and `[256][padded]` values, filled up to the last
        // token that any query sees.
        unsafe { self.run(page, &source, states) };
    }

    /// # Safety
    /// `source` is valid for all tokens that any query of the tile sees in the page.
    unsafe fn run<E: Element>(&mut self, page: usize, source: &Source<E>, states: &mut [f32]) {
        let (spans, stride) = (self.spans, self.spans.state_len());
        let (head_dim, padded) = (spans.op.head_dim, spans.padded);
        assert!(states.len() >= self.rows * stride, "a state for every query");
        for (first, count) in Self::passes(spans, self.rows) {
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
                    resume: false,
                    ahead: source.values.cast(),
                };
                product.run(spans.isa, count);
            }
            for r in 0..count {
                self.softmax(page, first + r, r, computed.clone(), states);
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
                    resume: false,
                    ahead: source.next_keys,
                };
                product.run(spans.isa, count);
            }
        }
    }

    /// Turns the scores of query `row`, in score row `r`, into exponentials; puts their maximum and
    /// sum into its state.
    pub(super) fn softmax(
        &mut self,
        page: usize,
        row: usize,
        r: usize,
        computed: Range<usize>,
        states: &mut [f32],
    ) {
        let spans = self.spans;
        let softmax = Softmax {
            scores: &mut self.scores[r * PAGE_TOKENS..(r + 1) * PAGE_TOKENS],
            computed,
            seen: spans.visible(self.tile, row, page),
            softcap: spans.op.softcap,
        };
        let (top, sum) = softmax.run(spans.isa);
        let tail = row * spans.state_len() + spans.padded;
        (states[tail], states[tail + 1]) = (top, sum);
    }
}
