//! Appending the new tokens of a step: clip, norm and rotation in place, then into pages.
//!
//! A task is one key/value head (with its query heads) of the tokens that one row adds to one page;
//! two heads where rotation blocks cross the border between them.

use std::ops::Range;

use pagella_arch::{QkNormOrder, QkNormSpan, QueryGrowth};
use pagella_backend::{AttentionOp, BackendError, PAGE_TOKENS, StepPlan};

use super::code::{ROTATION, SCALED, encode};
use super::layer::KvElement;
use super::prepare::{Turn, head_of, prepare_head};
use super::quantized::SlotMut;
use super::shares::StoreShares;
use super::{KvPages, KvValues, f32, narrow};
use crate::Tensor;
use crate::ops::norm::{CpuNorm, norm_rows_in_place};
use crate::ops::rope::{CpuRope, RopeTable};
use crate::simd::{Isa, Kernel, Simd};
use crate::threads::{Pool, Shares};

/// Fewer heads than this (over all tokens) are not worth waking the pool.
const SHARED_HEADS_MIN: usize = 16;

/// New tokens of one row that fall into one page.
#[derive(Clone, Copy)]
pub(super) struct Segment {
    /// Index of the first token in the step.
    token: usize,
    /// Its position in the sequence.
    pub(super) position: usize,
    pub(super) tokens: usize,
    page: usize,
}

/// See [`pagella_backend::Backend::append`].
#[allow(clippy::too_many_arguments)]
pub(crate) fn append(
    isa: Isa,
    pool: &Pool,
    plan: &StepPlan,
    op: &AttentionOp,
    qk_norm: Option<(&CpuNorm, &CpuNorm)>,
    rope: Option<&CpuRope>,
    q: &mut Tensor,
    k: &mut Tensor,
    v: &mut Tensor,
    kv: &mut KvPages,
) -> Result<(), BackendError> {
    let tokens = plan.tokens();
    q.expect("queries", tokens, op.heads * op.head_dim)?;
    k.expect("keys", tokens, op.kv_heads * op.head_dim)?;
    v.expect("values", tokens, op.kv_heads * op.head_dim)?;
    expect_norms(op, qk_norm)?;
    expect_rope(op, rope)?;
    kv.layer(op)?;
    if op.values != KvValues::Stored {
        let (expected, found) = (op.head_dim, op.value_dim());
        return Err(BackendError::Size { what: "values beside the keys", expected, found });
    }
    expect_groups(op)?;
    kv.expect_pages(plan)?;
    kv.expect_own_pages(plan)?;

    // A norm over all heads is done before tasks share the heads of a token.
    let of_heads = qk_norm.filter(|_| op.qk_norm_span == QkNormSpan::Head);
    if let (Some((q_norm, k_norm)), None) = (qk_norm, of_heads) {
        norm_rows_in_place(isa, pool, tokens, q_norm, q)?;
        norm_rows_in_place(isa, pool, tokens, k_norm, k)?;
    }
    let mut segments = std::mem::take(&mut kv.segments);
    cut(plan, &mut segments);
    let reach = segments.iter().map(|s| s.position + s.tokens).max().unwrap_or(0);
    let rope = rope.map(|rope| rope.table(reach));
    let layer = &mut kv.layers[op.layer];
    let (together, element) = (layer.heads_together(), layer.element);
    let Some(values) = &mut layer.values else { unreachable!("values are stored") };
    let turn = TurnTask { qk_norm: of_heads, rope: rope.as_deref(), q: &Shares::new(&mut q.data) };
    let shared = AppendTask {
        op,
        turn: Some(turn),
        keys: (&Shares::new(&mut k.data), &StoreShares::new(&mut layer.keys, op.kv_heads)),
        values: Some((&Shares::new(&mut v.data), &StoreShares::new(values, op.kv_heads))),
        element,
    };
    let groups = op.kv_heads / together;
    let task = |i: usize| {
        let (segment, first) = (&segments[i / groups], i % groups * together);
        isa.run(HeadTask { shared, segment, heads: first..first + together });
    };
    let tasks = segments.len() * groups;
    let outcome = pool.run_if(tokens * op.kv_heads >= SHARED_HEADS_MIN, tasks, &task);
    kv.segments = segments;
    outcome
}

/// Checks that norms fit the heads.
fn expect_norms(
    op: &AttentionOp,
    qk_norm: Option<(&CpuNorm, &CpuNorm)>,
) -> Result<(), BackendError> {
    if let Some((q_norm, k_norm)) = qk_norm {
        match op.qk_norm_span {
            QkNormSpan::Head => {
                q_norm.expect_heads(op.heads, op.head_dim)?;
                k_norm.expect_heads(op.kv_heads, op.head_dim)?;
            }
            QkNormSpan::Token => {
                q_norm.expect(op.heads * op.head_dim)?;
                k_norm.expect(op.kv_heads * op.head_dim)?;
                expect_first(op)?;
            }
        }
    }
    Ok(())
}

/// Checks that no more is rotated than a head has.
fn expect_rope(op: &AttentionOp, rope: Option<&CpuRope>) -> Result<(), BackendError> {
    if let Some(rope) = rope
        && rope.rotary_dim() > op.head_dim
    {
        let (expected, found) = (op.head_dim, rope.rotary_dim());
        return Err(BackendError::Size { what: "rotary width", expected, found });
    }
    Ok(())
}

/// Checks that a norm over all heads is the first thing that happens to them.
fn expect_first(op: &AttentionOp) -> Result<(), BackendError> {
    let what = match (op.clip_qkv, op.qk_norm_order) {
        (None, QkNormOrder::BeforeRope) => return Ok(()),
        (Some(_), _) => "a clamp before a norm over all heads",
        (None, QkNormOrder::AfterRope) => "a norm over all heads after rotation",
    };
    let hint = "no known model has it".to_owned();
    Err(BackendError::unsupported("cpu", what, hint))
}

/// What the query at `position` is multiplied by.
fn growth_at(growth: &QueryGrowth, position: usize) -> f32 {
    let steps = (position + growth.offset) / growth.length.max(1);
    1.0 + growth.weight * (steps as f32).ln_1p()
}

/// Checks that every key/value head serves the same number of query heads.
pub(crate) fn expect_groups(op: &AttentionOp) -> Result<(), BackendError> {
    if op.kv_heads > 0 && op.heads > 0 && op.heads.is_multiple_of(op.kv_heads) {
        return Ok(());
    }
    Err(BackendError::Size { what: "query heads", expected: op.kv_heads, found: op.heads })
}

/// Cuts the new tokens of every row at page borders.
pub(super) fn cut(plan: &StepPlan, segments: &mut Vec<Segment>) {
    segments.clear();
    for r in 0..plan.rows() {
        let (mut token, mut position) = (plan.token_range(r).start, plan.past(r));
        let end = plan.token_range(r).end;
        while token < end {
            let tokens = (end - token).min(PAGE_TOKENS - position % PAGE_TOKENS);
            let page = plan.pages(r)[position / PAGE_TOKENS] as usize;
            segments.push(Segment { token, position, tokens, page });
            token += tokens;
            position += tokens;
        }
    }
}

/// What all tasks of one append share.
#[derive(Clone, Copy)]
pub(super) struct AppendTask<'a> {
    pub(super) op: &'a AttentionOp,
    /// What is done to heads first; absent where it was done before.
    pub(super) turn: Option<TurnTask<'a>>,
    /// New keys and where they go.
    pub(super) keys: (&'a Shares<'a, f32>, &'a StoreShares<'a>),
    /// The same for values, where they are stored.
    pub(super) values: Option<(&'a Shares<'a, f32>, &'a StoreShares<'a>)>,
    pub(super) element: KvElement,
}

/// What happens to heads before they are stored.
#[derive(Clone, Copy)]
pub(super) struct TurnTask<'a> {
    qk_norm: Option<(&'a CpuNorm, &'a CpuNorm)>,
    rope: Option<&'a RopeTable>,
    q: &'a Shares<'a, f32>,
}

/// Heads that are stored together, of one segment. No other task has the same heads of the same
/// segment, and no two segments share a page.
pub(super) struct HeadTask<'a> {
    pub(super) shared: AppendTask<'a>,
    pub(super) segment: &'a Segment,
    pub(super) heads: Range<usize>,
}

impl Kernel for HeadTask<'_> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: the parts of a head and token, and the slot of a head and page, belong to this
        // task alone; heads are `head_dim` elements, which is what the callees touch.
        unsafe {
            if let Some(turn) = &self.shared.turn {
                for head in self.heads.clone() {
                    self.prepare::<S>(turn, head);
                }
            }
            match self.shared.element {
                KvElement::F32 | KvElement::F16 | KvElement::F8 => self.store_floats::<S>(),
                KvElement::Code(_) => self.store_codes::<S>(),
            }
        }
    }
}

impl HeadTask<'_> {
    /// Clips, norms and rotates a key/value head and its query heads.
    ///
    /// # Safety
    /// As for [`Simd`]; the heads belong to this task.
    #[inline(always)]
    unsafe fn prepare<S: Simd>(&self, task: &TurnTask<'_>, head: usize) {
        let HeadTask { shared, segment, .. } = self;
        let (op, width) = (shared.op, shared.op.head_dim);
        let group = op.heads / op.kv_heads;
        for i in 0..segment.tokens {
            let token = segment.token + i;
            let position = segment.position + i;
            let rope = task.rope.map(|table| (table, position));
            let growth = op.query_growth.as_ref().map(|growth| growth_at(growth, position));
            let order = op.qk_norm_order;
            // SAFETY: passed on to the caller.
            unsafe {
                for query in head * group..(head + 1) * group {
                    let x = head_of(task.q, token, op.heads, query, width);
                    let norm = task.qk_norm.map(|(q, _)| q.head(query, width));
                    let turn = Turn { norm, rope, order, growth };
                    prepare_head::<S>(x, width, op.clip_qkv, &turn);
                }
                let x = head_of(shared.keys.0, token, op.kv_heads, head, width);
                let norm = task.qk_norm.map(|(_, k)| k.head(head, width));
                let turn = Turn { norm, rope, order, growth: None };
                prepare_head::<S>(x, width, op.clip_qkv, &turn);
                if let Some((values, _)) = shared.values {
                    let x = head_of(values, token, op.kv_heads, head, width);
                    prepare_head::<S>(x, width, op.clip_qkv, &Turn::NONE);
                }
            }
        }
    }

    /// # Safety
    /// As for [`Simd`]; the heads belong to this task.
    #[inline(always)]
    unsafe fn store_floats<S: Simd>(&self) {
        let HeadTask { shared, segment, heads } = self;
        let (op, width, head) = (shared.op, shared.op.head_dim, heads.start);
        let rows = narrow::HeadRows {
            first: segment.position % PAGE_TOKENS,
            tokens: segment.tokens,
            width,
            stride: op.kv_heads * width,
        };
        // SAFETY: passed on to the caller; slots of the page hold the segment's tokens.
        unsafe {
            let new = |rows| head_of(rows, segment.token, op.kv_heads, head, width);
            let (k, keys) = shared.keys;
            let (k, keys) = (new(k), keys.elements.slot(segment.page, head));
            match shared.element {
                KvElement::F32 => f32::store_keys(&rows, k, keys.cast()),
                KvElement::F8 => narrow::store_keys::<S, u8>(&rows, k, keys),
                _ => narrow::store_keys::<S, u16>(&rows, k, keys.cast()),
            }
            let Some((v, values)) = shared.values else { return };
            let (v, values) = (new(v), values.elements.slot(segment.page, head));
            match shared.element {
                KvElement::F32 => f32::store_values(&rows, v, values.cast()),
                KvElement::F8 => narrow::store_values::<S, u8>(&rows, v, values),
                _ => narrow::store_values::<S, u16>(&rows, v, values.cast()),
            }
        }
    }

    /// # Safety
    /// As for [`Simd`]; the heads belong to this task.
    #[inline(always)]
    unsafe fn store_codes<S: Simd>(&self) {
        let HeadTask { shared, segment, heads } = self;
        let (op, width) = (shared.op, shared.op.head_dim);
        let place = segment.position % PAGE_TOKENS;
        let sides = [(Some(shared.keys), true), (shared.values, false)];
        for (side, keys) in sides {
            let Some((rows, store)) = side else { continue };
            let Some((bits, scales)) = &store.code else { continue };
            for start in (0..heads.len() * width).step_by(ROTATION) {
                for i in 0..segment.tokens {
                    let row = (segment.token + i) * op.kv_heads * width + heads.start * width;
                    // SAFETY: heads that are stored together lie together; passed on to the caller.
                    unsafe {
                        let x = rows.part(row + start..row + start + ROTATION);
                        let encoded = encode::<S>(x.as_ptr(), *bits);
                        for part in 0..ROTATION / SCALED {
                            let element = start + part * SCALED;
                            let (head, d) = (heads.start + element / width, element % width);
                            let slot = SlotMut {
                                codes: store.elements.slot(segment.page, head),
                                scales: scales.slot(segment.page, head).cast(),
                                bits: *bits,
                            };
                            if keys {
                                slot.put_keys(&encoded, part, place + i, d);
                            } else {
                                slot.put_values(&encoded, part, place + i, d, width);
                            }
                        }
                    }
                }
            }
        }
    }
}
