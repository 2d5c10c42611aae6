//! Appending entries of latent attention: norm and rotation in place, then into the key pages.
//!
//! Tokens are prepared one by one, an entry with the query heads of its token; what is stored then
//! is a key like any other.

use pagella_backend::{AttentionOp, BackendError, KvValues, StepPlan};

use super::append::{AppendTask, HeadTask, cut};
use super::shares::StoreShares;
use super::{KvPages, Tensor};
use crate::ops::norm::{CpuNorm, NormArgs, normalize};
use crate::ops::rope::{CpuRope, RopeTable, rotate};
use crate::simd::{Isa, Kernel, Simd};
use crate::threads::{Pool, Shares};

/// See [`pagella_backend::Backend::append_latent`].
#[allow(clippy::too_many_arguments)]
pub(crate) fn append_latent(
    isa: Isa,
    pool: &Pool,
    plan: &StepPlan,
    op: &AttentionOp,
    norm: &CpuNorm,
    rope: &CpuRope,
    q: &mut Tensor,
    entry: &mut Tensor,
    kv: &mut KvPages,
) -> Result<(), BackendError> {
    let tokens = plan.tokens();
    kv.layer(op)?;
    let KvValues::InKeys(rank) = op.values else {
        let what = "values in the keys";
        return Err(BackendError::Size { what, expected: op.head_dim, found: 0 });
    };
    q.expect("queries", tokens, op.heads * op.head_dim)?;
    entry.expect("entries", tokens, op.head_dim)?;
    norm.expect(rank)?;
    if rope.rotary_dim() != op.head_dim - rank {
        let (expected, found) = (op.head_dim - rank, rope.rotary_dim());
        return Err(BackendError::Size { what: "rotary width", expected, found });
    }
    kv.expect_pages(plan)?;
    kv.expect_own_pages(plan)?;

    let mut segments = std::mem::take(&mut kv.segments);
    cut(plan, &mut segments);
    let reach = segments.iter().map(|s| s.position + s.tokens).max().unwrap_or(0);
    let rope = rope.table(reach);
    let turned = {
        let (q, entry) = (Shares::new(&mut q.data), Shares::new(&mut entry.data));
        let position = |token: usize| {
            // Rows are few, and tokens many only where they are of one row.
            let row = (0..plan.rows()).find(|r| plan.token_range(*r).contains(&token));
            row.map_or(0, |r| plan.past(r) + token - plan.token_range(r).start)
        };
        let rope = &*rope;
        pool.run(tokens, &|token| {
            let (heads, width) = (op.heads, op.head_dim);
            // SAFETY: every task has the rows of its own token.
            let (q, entry) = unsafe {
                (
                    q.part(token * heads * width..(token + 1) * heads * width),
                    entry.part(token * width..(token + 1) * width),
                )
            };
            let position = position(token);
            let norm = norm.head(0, rank);
            isa.run(TurnToken { norm, rope, position, rank, width, q, entry });
        })
    };
    let layer = &mut kv.layers[op.layer];
    let element = layer.element;
    let shared = AppendTask {
        op,
        turn: None,
        keys: (&Shares::new(&mut entry.data), &StoreShares::new(&mut layer.keys, 1)),
        values: None,
        element,
    };
    let stored = turned.and_then(|()| {
        pool.run(segments.len(), &|i| {
            isa.run(HeadTask { shared, segment: &segments[i], heads: 0..1 });
        })
    });
    kv.segments = segments;
    stored
}

/// One token: the entry normed and rotated, every query head rotated.
struct TurnToken<'a> {
    /// Of `rank` elements.
    norm: NormArgs<'a>,
    /// Of `width − rank` elements.
    rope: &'a RopeTable,
    position: usize,
    rank: usize,
    width: usize,
    /// `[heads · width]`.
    q: &'a mut [f32],
    /// `[width]`.
    entry: &'a mut [f32],
}

impl Kernel for TurnToken<'_> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let TurnToken { norm, rope, position, rank, width, q, entry } = self;
        let latent = entry.as_mut_ptr();
        // SAFETY: the norm takes the first `rank` elements of an entry, the rotation the others of
        // it and of a head; the position is prepared.
        unsafe {
            normalize::<S>(&norm, latent, latent);
            rotate::<S>(rope, position, latent.add(rank));
            for head in q.chunks_exact_mut(width) {
                rotate::<S>(rope, position, head.as_mut_ptr().add(rank));
            }
        }
    }
}
