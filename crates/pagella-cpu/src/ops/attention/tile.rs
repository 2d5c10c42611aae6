//! Tiles: consecutive new tokens of one row, for query heads that share a key/value head.

use std::ops::Range;

use pagella_backend::{AttentionOp, PAGE_TOKENS, StepPlan};

/// Queries that are worked on together. Query `i` is token `i / group`, head `query + i % group`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tile {
    /// Row of the plan.
    pub(super) row: usize,
    /// Key/value head.
    pub(super) head: usize,
    /// First query head.
    pub(super) query: usize,
    /// Index of the first token in the step.
    pub(super) token: usize,
    /// Its position in the sequence.
    pub(super) position: usize,
    pub(super) tokens: usize,
    /// First page, counted within the sequence, that any of the queries sees.
    pub(super) first_page: usize,
    /// Pages from there to the last one seen.
    pub(super) pages: usize,
    /// Where the partial results start, when pages are shared among threads.
    pub(super) partial: usize,
}

/// Keys that the query at `position` sees, as positions.
pub(super) fn seen(op: &AttentionOp, position: usize) -> Range<usize> {
    let end = position + 1;
    let chunk = op.chunk.map_or(0, |chunk| position / chunk.max(1) * chunk);
    (end - op.window.unwrap_or(end).min(end)).max(chunk)..end
}

/// Keys of page `page` (counted within the sequence) that the query sees, as places in the page.
pub(super) fn seen_in_page(op: &AttentionOp, position: usize, page: usize) -> Range<usize> {
    let (seen, start) = (seen(op, position), page * PAGE_TOKENS);
    let place = |p: usize| p.saturating_sub(start).min(PAGE_TOKENS);
    place(seen.start)..place(seen.end)
}

/// Cuts all new tokens of a plan into tiles of at most `tile_tokens` tokens and `group` query heads.
pub(super) fn cut(
    plan: &StepPlan,
    op: &AttentionOp,
    (tile_tokens, group): (usize, usize),
    tiles: &mut Vec<Tile>,
) {
    let of_kv_head = op.heads / op.kv_heads;
    tiles.clear();
    for row in 0..plan.rows() {
        let range = plan.token_range(row);
        for token in range.clone().step_by(tile_tokens) {
            let tokens = tile_tokens.min(range.end - token);
            let position = plan.past(row) + token - range.start;
            let first_page = seen(op, position).start / PAGE_TOKENS;
            let pages = (position + tokens - 1) / PAGE_TOKENS + 1 - first_page;
            tiles.extend((0..op.heads).step_by(group).map(|query| Tile {
                row,
                head: query / of_kv_head,
                query,
                token,
                position,
                tokens,
                first_page,
                pages,
                partial: 0,
            }));
        }
    }
}
