//! Rotary position embedding: tables that grow with the positions in use, and the rotation.
//!
//! An angle is a product in f32, as the models were trained with; its sine and cosine are taken in
//! f64 and rounded once. Table rows are computed once and shared by all layers.

use std::sync::{Arc, PoisonError, RwLock};

use pagella_arch::{RopeSpec, RopeStyle};
use pagella_backend::BackendError;

use crate::simd::{LANES, Simd};

/// Positions computed together when the table grows.
const BLOCK_POSITIONS: usize = 512;

/// A rotary table.
pub struct CpuRope {
    spec: RopeSpec,
    table: RwLock<Arc<RopeTable>>,
}

/// Cosines and sines of the positions prepared so far; immutable.
pub(crate) struct RopeTable {
    style: RopeStyle,
    /// Pairs per position.
    pairs: usize,
    /// `[BLOCK_POSITIONS][2][pairs]` each: cosines, then sines.
    blocks: Vec<Arc<[f32]>>,
}

impl CpuRope {
    /// A table that is ready for the first positions below `context`; others follow on demand.
    pub(crate) fn new(spec: &RopeSpec, context: usize) -> Result<Self, BackendError> {
        if spec.rotary_dim != 2 * spec.inv_freq.len() {
            let (expected, found) = (spec.rotary_dim / 2, spec.inv_freq.len());
            return Err(BackendError::Size { what: "rotary frequencies", expected, found });
        }
        let table = RopeTable { style: spec.style, pairs: spec.inv_freq.len(), blocks: Vec::new() };
        let rope = CpuRope { spec: spec.clone(), table: RwLock::new(Arc::new(table)) };
        rope.table(context.min(BLOCK_POSITIONS));
        Ok(rope)
    }

    /// Rotated elements of a head.
    pub(crate) fn rotary_dim(&self) -> usize {
        self.spec.rotary_dim
    }

    /// The table, ready for positions below `positions`.
    pub(crate) fn table(&self, positions: usize) -> Arc<RopeTable> {
        // A table is replaced only when complete, so a poisoned lock still guards a good one.
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner).clone();
        let needed = positions.div_ceil(BLOCK_POSITIONS);
        if table.blocks.len() >= needed {
            return table;
        }
        let mut current = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let mut blocks = current.blocks.clone();
        while blocks.len() < needed {
            blocks.push(block(&self.spec, blocks.len() * BLOCK_POSITIONS));
        }
        *current = Arc::new(RopeTable { style: current.style, pairs: current.pairs, blocks });
        current.clone()
    }
}

impl RopeTable {
    /// Cosines, then sines, of `position`, which must be prepared.
    fn row(&self, position: usize) -> &[f32] {
        let width = 2 * self.pairs;
        let start = position % BLOCK_POSITIONS * width;
        &self.blocks[position / BLOCK_POSITIONS][start..start + width]
    }
}

fn block(spec: &RopeSpec, first: usize) -> Arc<[f32]> {
    let factor = f64::from(spec.attention_factor);
    let mut values = Vec::with_capacity(BLOCK_POSITIONS * spec.rotary_dim);
    for position in first..first + BLOCK_POSITIONS {
        let position = (position as u64 + u64::from(spec.position_offset)) as f32;
        let angle = |frequency: &f32| f64::from(position * frequency);
        values.extend(spec.inv_freq.iter().map(|f| (angle(f).cos() * factor) as f32));
        values.extend(spec.inv_freq.iter().map(|f| (angle(f).sin() * factor) as f32));
    }
    values.into()
}

/// Rotates one head to `position`: `(a, b) → (a·cos − b·sin, b·cos + a·sin)`, where the product
/// with the cosine is rounded and the other one fused.
///
/// # Safety
/// As for [`Simd`]; `x` points to `2 · pairs` elements, and `position` is prepared.
#[inline(always)]
pub(crate) unsafe fn rotate<S: Simd>(table: &RopeTable, position: usize, x: *mut f32) {
    let pairs = table.pairs;
    let (cos, sin) = table.row(position).split_at(pairs);
    // SAFETY: all offsets are below `pairs` or, in `x`, below `2 · pairs`.
    unsafe {
        match table.style {
            RopeStyle::Neox => {
                let whole = pairs / LANES * LANES;
                for j in (0..whole).step_by(LANES) {
                    let (c, s) = (S::load(cos.as_ptr().add(j)), S::load(sin.as_ptr().add(j)));
                    let (a, b) = (S::load(x.add(j)), S::load(x.add(pairs + j)));
                    S::store(x.add(j), S::fnma(b, s, S::mul(a, c)));
                    S::store(x.add(pairs + j), S::fma(a, s, S::mul(b, c)));
                }
                for j in whole..pairs {
                    rotate_pair(cos[j], sin[j], x.add(j), x.add(pairs + j));
                }
            }
            RopeStyle::GptJ => {
                for j in 0..pairs {
                    rotate_pair(cos[j], sin[j], x.add(2 * j), x.add(2 * j + 1));
                }
            }
        }
    }
}

/// # Safety
/// Both pointers are valid and differ.
#[inline(always)]
unsafe fn rotate_pair(cos: f32, sin: f32, first: *mut f32, second: *mut f32) {
    // SAFETY: as promised by the caller.
    unsafe {
        let (a, b) = (*first, *second);
        *first = (-b).mul_add(sin, a * cos);
        *second = a.mul_add(sin, b * cos);
    }
}

#[cfg(test)]
mod tests;
