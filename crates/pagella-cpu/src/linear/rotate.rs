//! Inputs that are scaled and rotated before they meet the weights, as EXL3 wants them.
//!
//! Every 128 features are multiplied with a Hadamard matrix over √128: seven stages of sums and
//! differences in f32, strides ascending, so a row's bits are the same on every level.

use pagella_formats::exl3::rotate::{ROTATED, ROTATION_SCALE};
use pagella_formats::exl3::tile::{TILE, position};

use crate::simd::{Isa, Kernel, LANES, Simd};

/// What happens to a row before it is packed.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rotation {
    /// Features of the source; the rest of a row is zero.
    features: usize,
    /// Bits of the scales over √128, one per packed row.
    scales: Vec<u32>,
}

impl Rotation {
    /// Scales for padded rows, of which the source has `features`.
    pub(crate) fn new(features: usize, scales: &[f32]) -> Self {
        let scales = scales.iter().map(|scale| (scale * ROTATION_SCALE).to_bits()).collect();
        Rotation { features, scales }
    }

    /// Packed rows.
    pub(crate) fn rows(&self) -> usize {
        self.scales.len()
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        4 * self.scales.len()
    }

    /// Rotates a row, which `source` writes, and packs it in the order of tiles.
    pub(crate) fn apply(
        &self,
        isa: Isa,
        source: impl FnOnce(&mut [f32]),
        natural: &mut [f32],
        packed: &mut [f32],
    ) {
        let (row, padding) = natural.split_at_mut(self.features);
        source(row);
        padding.fill(0.0);
        for (value, scale) in natural.iter_mut().zip(&self.scales) {
            *value *= f32::from_bits(*scale);
        }
        isa.run(Rotate { values: natural });
        for (packed, natural) in packed.chunks_exact_mut(TILE).zip(natural.chunks_exact(TILE)) {
            for (u, out) in packed.iter_mut().enumerate() {
                *out = natural[tile_row(u)];
            }
        }
    }
}

/// The row of a tile that stands in place `u` of its packed order: the order in which a stream comes
/// by the rows of one column.
pub(crate) fn tile_row(u: usize) -> usize {
    position(8 * (u / 4) + u % 4).0
}

/// Multiplies every 128 values with the Hadamard matrix, not scaled.
pub(crate) struct Rotate<'a> {
    pub(crate) values: &'a mut [f32],
}

impl Kernel for Rotate<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        for block in self.values.chunks_exact_mut(ROTATED) {
            // SAFETY: a block holds eight vectors.
            unsafe { rotate_block::<S>(block) };
        }
    }
}

/// Lanes whose index has this bit are subtracted from their partners.
const fn signs(bit: usize) -> [f32; LANES] {
    let mut signs = [1.0; LANES];
    let mut lane = 0;
    while lane < LANES {
        if lane & bit != 0 {
            signs[lane] = -1.0;
        }
        lane += 1;
    }
    signs
}

/// # Safety
/// As for [`Simd`]; `block` holds 128 values.
#[inline(always)]
pub(crate) unsafe fn rotate_block<S: Simd>(block: &mut [f32]) {
    const SIGNS: [[f32; LANES]; 3] = [signs(2), signs(4), signs(8)];
    for pair in block.chunks_exact_mut(2) {
        (pair[0], pair[1]) = (pair[0] + pair[1], pair[0] - pair[1]);
    }
    // SAFETY: eight vectors of 16 values.
    unsafe {
        let at = block.as_mut_ptr();
        let mut v = [S::splat(0.0); ROTATED / LANES];
        for (i, vector) in v.iter_mut().enumerate() {
            let a = S::load(at.add(i * LANES));
            let a = S::fma(a, S::load(SIGNS[0].as_ptr()), S::swap::<2>(a));
            let a = S::fma(a, S::load(SIGNS[1].as_ptr()), S::swap::<4>(a));
            *vector = S::fma(a, S::load(SIGNS[2].as_ptr()), S::swap::<8>(a));
        }
        for stride in [1, 2, 4] {
            for i in (0..v.len()).filter(|i| i & stride == 0) {
                (v[i], v[i + stride]) = (S::add(v[i], v[i + stride]), S::sub(v[i], v[i + stride]));
            }
        }
        for (i, vector) in v.into_iter().enumerate() {
            S::store(at.add(i * LANES), vector);
        }
    }
}
