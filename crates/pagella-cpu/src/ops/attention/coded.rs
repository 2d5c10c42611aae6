//! A quantised page for very few queries: every code is widened where it is multiplied.

use pagella_backend::PAGE_TOKENS;

use super::span::Span;
use crate::simd::LANES;

impl Span<'_> {
    pub(super) fn coded_page(&mut self, pages: &[u32], page: usize, states: &mut [f32]) {
        let (spans, tile, physical) = (self.spans, self.tile, pages[page] as usize);
        // Queries ascend, so do both ends of what they see.
        let seen = spans.visible(tile, 0, page).start..spans.visible(tile, self.rows - 1, page).end;
        if seen.is_empty() {
            return;
        }
        let stride = spans.state_len();
        assert!(states.len() >= self.rows * stride, "a state for every query");
        let next = pages.get(page + 1).map_or(physical, |&p| p as usize);
        let computed = seen.start / LANES * LANES..seen.end.next_multiple_of(LANES);
        let (layer, isa) = (spans.layer, spans.isa);
        for (first, count) in Self::passes(spans, self.rows) {
            let queries = self.queries[first * spans.op.head_dim..].as_ptr();
            let scores = self.scores[first * PAGE_TOKENS..].as_mut_ptr();
            // SAFETY: packed queries hold `head_dim · count` elements, score rows a page.
            unsafe {
                layer
                    .key_pass(physical, tile.head, computed.clone(), queries, scores)
                    .score(isa, count);
            }
        }
        for row in 0..self.rows {
            self.softmax(page, row, row, computed.clone(), states);
        }
        for (first, count) in Self::passes(spans, self.rows) {
            let exponentials = self.scores[first * PAGE_TOKENS..].as_ptr();
            let out = (states[first * stride..].as_mut_ptr(), stride);
            // SAFETY: score rows hold a page, states whole heads.
            unsafe {
                let pass =
                    layer.value_pass(physical, tile.head, seen.clone(), exponentials, out, next);
                pass.weigh(isa, count);
            }
        }
    }
}
