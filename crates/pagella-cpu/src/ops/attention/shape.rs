//! Sizes of one call: how many queries go together, how pages are read, and the memory that takes.

use std::ops::Range;

use pagella_backend::{AttentionOp, KvValues, PAGE_TOKENS};

use super::LayerPages;
use super::merge::STATE_TAIL;
use super::product::rows_max;
use super::tile::{Tile, seen_in_page};
use crate::kv::code::ROTATION;
use crate::kv::coded::rows_max as rows_in_codes;
use crate::simd::{Isa, LANES};

/// Passes per tile: enough to hide the widening, few enough for queries to stay in the cache.
const PASSES_PER_TILE: usize = 8;
/// Passes from which on widening a whole page pays.
const PASSES_TO_WIDEN: usize = 3;
/// Elements of a slice: half of a small first-level cache.
const SLICE_ELEMENTS: usize = 4096;
/// Query heads of a tile at most where all share their keys: enough to pay for the widening, few
/// enough that a single token has work for several threads.
const LATENT_HEADS_MAX: usize = 32;

/// What all spans of one call share.
pub(super) struct Spans<'a> {
    pub(super) isa: Isa,
    pub(super) op: &'a AttentionOp,
    pub(super) layer: &'a LayerPages,
    /// Query heads of a tile: those of a key/value head, or a part of them.
    pub(super) group: usize,
    /// Elements of a value, rounded up to whole vectors; to whole blocks in rotated keys.
    pub(super) padded: usize,
    pub(super) rows_max: usize,
}

impl<'a> Spans<'a> {
    pub(super) fn new(isa: Isa, op: &'a AttentionOp, layer: &'a LayerPages) -> Self {
        let of_kv_head = op.heads / op.kv_heads;
        let (group, padded) = match op.values {
            KvValues::Stored => (of_kv_head, op.head_dim.next_multiple_of(LANES)),
            KvValues::InKeys(elements) => {
                let divides = |n: &usize| of_kv_head.is_multiple_of(*n);
                let group = (1..=of_kv_head.min(LATENT_HEADS_MAX)).rev().find(divides);
                let block = if layer.is_rotated() { ROTATION } else { LANES };
                (group.unwrap_or(1), elements.next_multiple_of(block))
            }
        };
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

    /// Products of keys with queries at most, over all tiles.
    pub(super) fn products(&self, tiles: &[Tile]) -> usize {
        let keys = |tile: &Tile| (tile.position + tile.tokens).min(tile.pages * PAGE_TOKENS);
        tiles.iter().map(|tile| self.rows(tile) * keys(tile)).sum::<usize>() * self.op.head_dim
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

    pub(super) fn reading(&self, rows: usize) -> Reading {
        let few = rows < PASSES_TO_WIDEN * self.rows_max && self.op.values == KvValues::Stored;
        match (few, self.layer.is_f16(), self.layer.is_rotated()) {
            (true, true, _) => Reading::Stored,
            (true, _, true) if rows <= rows_in_codes(self.isa) => Reading::Coded,
            (true, _, true) => Reading::Slices,
            _ => Reading::Panels,
        }
    }

    /// Tokens of a slice.
    pub(super) fn slice_tokens(&self) -> usize {
        (SLICE_ELEMENTS / self.op.head_dim / LANES * LANES).clamp(LANES, PAGE_TOKENS)
    }

    /// Elements of scratch that [`super::span::Span::new`] needs for `rows` queries.
    pub(super) fn scratch_len(&self, rows: usize) -> usize {
        let [keys, values] = self.panel_lens(rows);
        self.queries_len(rows) + self.scores_len(rows) + keys + values
    }

    pub(super) fn scores_len(&self, rows: usize) -> usize {
        match self.reading(rows) {
            Reading::Coded | Reading::Slices => PAGE_TOKENS * rows,
            _ => PAGE_TOKENS * self.rows_max,
        }
    }

    pub(super) fn queries_len(&self, rows: usize) -> usize {
        (rows * self.op.head_dim).next_multiple_of(LANES)
    }

    /// Keys and values. Slices of both share one panel.
    pub(super) fn panel_lens(&self, rows: usize) -> [usize; 2] {
        match self.reading(rows) {
            Reading::Stored | Reading::Coded => [0, 0],
            Reading::Slices => [self.op.head_dim * self.slice_tokens(), 0],
            Reading::Panels => [self.op.head_dim * PAGE_TOKENS, PAGE_TOKENS * self.padded],
        }
    }
}

/// How the pages of a tile are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// As they are: binary16, few queries.
    Stored,
    /// Code by code: quantised, very few queries.
    Coded,
    /// Decoded a few tokens at a time: quantised, few queries.
    Slices,
    /// Widened or decoded as a whole: many queries.
    Panels,
}
