//! Appending the new tokens of a step: clip, per-head norm and rotation in place, then into pages.
//!
//! A task is one key/value head (with its query heads) of the tokens that one row adds to one page.

use pagella_backend::{AttentionOp, BackendError, PAGE_TOKENS, StepPlan};

use super::f16;
use super::{KvPages, LayerPages};
use crate::Tensor;
use crate::ops::lanes::{load_part, store_part};
use crate::ops::norm::{CpuNorm, NormArgs, normalize};
use crate::ops::rope::{CpuRope, RopeTable, rotate};
use crate::simd::{Isa, Kernel, LANES, Simd};
use crate::threads::{Pool, Shares};

/// Fewer heads than this (over all tokens) are not worth waking the pool.
const HEADS_PER_TASK_MIN: usize = 16;

/// New tokens of one row that fall into one page.
#[derive(Clone, Copy)]
pub(super) struct Segment {
    /// Index of the first token in the step.
    token: usize,
    /// Its position in the sequence.
    position: usize,
    tokens: usize,
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
    if let Some((q_norm, k_norm)) = qk_norm {
        q_norm.expect_heads(op.heads, op.head_dim)?;
        k_norm.expect_heads(op.kv_heads, op.head_dim)?;
    }
    if let Some(rope) = rope
        && rope.rotary_dim() > op.head_dim
    {
        let (expected, found) = (op.head_dim, rope.rotary_dim());
        return Err(BackendError::Size { what: "rotary width", expected, found });
    }
    kv.layer(op.layer, op.kv_heads, op.head_dim)?;
    kv.expect_pages(plan)?;
    kv.expect_own_pages(plan)?;

    let mut segments = std::mem::take(&mut kv.segments);
    cut(plan, &mut segments);
    let reach = segments.iter().map(|s| s.position + s.tokens).max().unwrap_or(0);
    let rope = rope.map(|rope| rope.table(reach));
    let layer = &mut kv.layers[op.layer];
    let shared = AppendTask {
        op,
        qk_norm,
        rope: rope.as_deref(),
        q: &Shares::new(&mut q.data),
        k: &Shares::new(&mut k.data),
        v: &Shares::new(&mut v.data),
        pages: &LayerShares::new(layer),
    };
    let outcome = if tokens * op.kv_heads < HEADS_PER_TASK_MIN {
        pool.run(1, &|_| {
            for segment in &segments {
                (0..op.kv_heads).for_each(|head| isa.run(HeadTask { shared, segment, head }));
            }
        })
    } else {
        pool.run(segments.len() * op.kv_heads, &|i| {
            let (segment, head) = (&segments[i / op.kv_heads], i % op.kv_heads);
            isa.run(HeadTask { shared, segment, head });
        })
    };
    kv.segments = segments;
    outcome
}

/// Cuts the new tokens of every row at page borders.
fn cut(plan: &StepPlan, segments: &mut Vec<Segment>) {
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

/// The planes of a layer, to be written by several tasks.
struct LayerShares<'a> {
    keys: Shares<'a, u8>,
    key_bytes: usize,
    values: Shares<'a, u8>,
    value_bytes: usize,
    kv_heads: usize,
}

impl<'a> LayerShares<'a> {
    fn new(layer: &'a mut LayerPages) -> Self {
        LayerShares {
            key_bytes: layer.keys.slot_bytes,
            keys: Shares::new(&mut layer.keys.bytes),
            value_bytes: layer.values.slot_bytes,
            values: Shares::new(&mut layer.values.bytes),
            kv_heads: layer.kv_heads,
        }
    }
}

/// What all tasks of one append share.
#[derive(Clone, Copy)]
struct AppendTask<'a> {
    op: &'a AttentionOp,
    qk_norm: Option<(&'a CpuNorm, &'a CpuNorm)>,
    rope: Option<&'a RopeTable>,
    q: &'a Shares<'a, f32>,
    k: &'a Shares<'a, f32>,
    v: &'a Shares<'a, f32>,
    pages: &'a LayerShares<'a>,
}

/// One head of one segment. No other task has the same head of the same segment, and no two
/// segments share a page.
struct HeadTask<'a> {
    shared: AppendTask<'a>,
    segment: &'a Segment,
    head: usize,
}

impl Kernel for HeadTask<'_> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let HeadTask { shared, segment, head } = self;
        let (op, width) = (shared.op, shared.op.head_dim);
        let group = op.heads / op.kv_heads;
        // SAFETY: the parts of a head and token, and the slot of a head and page, belong to this
        // task alone; heads are `head_dim` elements, which is what the callees touch.
        unsafe {
            for i in 0..segment.tokens {
                let token = segment.token + i;
                let rope = shared.rope.map(|table| (table, segment.position + i));
                for query in head * group..(head + 1) * group {
                    let x = head_of(shared.q, token, op.heads, query, width);
                    let norm = shared.qk_norm.map(|(q, _)| q.head(query, width));
                    prepare::<S>(x, width, op.clip_qkv, norm, rope);
                }
                let x = head_of(shared.k, token, op.kv_heads, head, width);
                let norm = shared.qk_norm.map(|(_, k)| k.head(head, width));
                prepare::<S>(x, width, op.clip_qkv, norm, rope);
                let x = head_of(shared.v, token, op.kv_heads, head, width);
                prepare::<S>(x, width, op.clip_qkv, None, None);
            }
            let pages = shared.pages;
            let slot = segment.page * pages.kv_heads + head;
            let keys = pages.keys.part(slot * pages.key_bytes..(slot + 1) * pages.key_bytes);
            let values =
                pages.values.part(slot * pages.value_bytes..(slot + 1) * pages.value_bytes);
            let rows = f16::Rows {
                first: segment.position % PAGE_TOKENS,
                tokens: segment.tokens,
                width,
                stride: op.kv_heads * width,
            };
            let k = head_of(shared.k, segment.token, op.kv_heads, head, width);
            f16::store_keys::<S>(&rows, k, keys.as_mut_ptr().cast());
            let v = head_of(shared.v, segment.token, op.kv_heads, head, width);
            f16::store_values::<S>(&rows, v, values.as_mut_ptr().cast());
        }
    }
}

/// First element of a head.
///
/// # Safety
/// The head belongs to the caller's task alone.
#[inline(always)]
unsafe fn head_of(
    rows: &Shares<'_, f32>,
    token: usize,
    heads: usize,
    head: usize,
    width: usize,
) -> *mut f32 {
    let start = (token * heads + head) * width;
    // SAFETY: disjoint by the caller, in bounds by the assertion inside.
    unsafe { rows.part(start..start + width).as_mut_ptr() }
}

/// Clips, norms and rotates one head in place.
///
/// # Safety
/// As for [`Simd`]; `x` points to `width` elements, which norm and rotation fit into.
#[inline(always)]
unsafe fn prepare<S: Simd>(
    x: *mut f32,
    width: usize,
    clip: Option<f32>,
    norm: Option<NormArgs<'_>>,
    rope: Option<(&RopeTable, usize)>,
) {
    // SAFETY: as promised by the caller.
    unsafe {
        if let Some(limit) = clip {
            let (low, high) = (S::splat(-limit), S::splat(limit));
            for start in (0..width).step_by(LANES) {
                let v = load_part::<S>(x.add(start), width - start, 0.0);
                // The order of operands lets NaN through.
                store_part::<S>(x.add(start), width - start, S::min(high, S::max(low, v)));
            }
        }
        if let Some(norm) = norm {
            normalize::<S>(&norm, x, x);
        }
        if let Some((table, position)) = rope {
            rotate::<S>(table, position, x);
        }
    }
}
