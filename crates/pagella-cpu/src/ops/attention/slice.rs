//! A quantised page for a few queries: decoded a slice of tokens at a time, so that what was
//! decoded is still in the nearest cache when it is used. The chains over the tokens go on from
//! slice to slice, which gives the same bits as a panel of the whole page.

use pagella_backend::PAGE_TOKENS;

use super::product::{Left, Product};
use super::span::Span;
use crate::simd::LANES;

impl Span<'_> {
    pub(super) fn sliced_page(&mut self, physical: usize, page: usize, states: &mut [f32]) {
        let (spans, tile) = (self.spans, self.tile);
        // Queries ascend, so do both ends of what they see.
        let seen = spans.visible(tile, 0, page).start..spans.visible(tile, self.rows - 1, page).end;
        if seen.is_empty() {
            return;
        }
        assert!(states.len() >= self.rows * spans.state_len(), "a state for every query");
        let computed = seen.start / LANES * LANES..seen.end.next_multiple_of(LANES);
        let slice = spans.slice_tokens();
        for start in computed.clone().step_by(slice) {
            self.key_slice(physical, start, slice.min(computed.end - start));
        }
        for row in 0..self.rows {
            self.softmax(page, row, row, computed.clone(), states);
        }
        for start in computed.clone().step_by(slice) {
            let from = start.max(seen.start);
            let end = (start + slice).min(seen.end);
            let (isa, width) = (spans.isa, spans.op.head_dim);
            let panel = &mut *self.key_panel;
            spans.layer.decode_values(isa, physical, tile.head, start..end, panel, width);
            for (first, count) in Self::passes(spans, self.rows) {
                // SAFETY: score rows hold a page, the panel the tokens from `start` to `end`, states
                // whole heads.
                unsafe {
                    let product = Product {
                        left: Left::Exponentials,
                        a: self.scores.as_ptr().add(first * PAGE_TOKENS + from),
                        b: self.key_panel.as_ptr().add((from - start) * width),
                        b_step: width,
                        depth: end - from,
                        columns: width / LANES,
                        out: states.as_mut_ptr().add(first * spans.state_len()),
                        out_step: spans.state_len(),
                        resume: start > computed.start,
                        ahead: std::ptr::null(),
                    };
                    product.run(isa, count);
                }
            }
        }
    }

    /// Scores of `tokens` tokens from `start` on, both multiples of 16, for all queries.
    fn key_slice(&mut self, physical: usize, start: usize, tokens: usize) {
        let (spans, slice) = (self.spans, self.spans.slice_tokens());
        let (isa, width) = (spans.isa, spans.op.head_dim);
        let (range, panel) = (start..start + tokens, &mut *self.key_panel);
        spans.layer.decode_keys(isa, physical, self.tile.head, range, panel, slice);
        for (first, count) in Self::passes(spans, self.rows) {
            // SAFETY: packed queries hold `width` elements each, the panel `[width][slice]`, score
            // rows a page.
            unsafe {
                let product = Product {
                    left: Left::Packed,
                    a: self.queries.as_ptr().add(first * width),
                    b: self.key_panel.as_ptr(),
                    b_step: slice,
                    depth: width,
                    columns: tokens / LANES,
                    out: self.scores.as_mut_ptr().add(first * PAGE_TOKENS + start),
                    out_step: PAGE_TOKENS,
                    resume: false,
                    ahead: std::ptr::null(),
                };
                product.run(isa, count);
            }
        }
    }
}
