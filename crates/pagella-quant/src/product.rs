//! `C += AᵀB` and `C -= AᵀB` on row-major blocks: the one product that Hessians, factors and error
//! feedback are made of.
//!
//! Every element of C gets the sums of [`DEPTH`] terms each, in their order, every sum starting from
//! zero and rounding once per term. So a result does not depend on where C was cut.

use pagella_backend::isa::{self, Kernel};

/// Terms that are added up before they go to C.
pub(crate) const DEPTH: usize = 256;

/// Columns of a tile.
const LANES: usize = 16;
/// Rows of a tile: eight rows of two vectors use all registers of AVX-512 and spill few on AVX2.
const TILE_ROWS: usize = 8;

/// Rows and columns of a larger row-major matrix.
#[derive(Clone, Copy)]
pub(crate) struct Block<'a> {
    /// From the first element of the first row to the end of the last row or beyond.
    pub values: &'a [f32],
    /// Elements from one row to the next.
    pub stride: usize,
    /// Columns of the block.
    pub columns: usize,
}

impl<'a> Block<'a> {
    /// Columns `first..first + columns` of `values`, rows of `stride`.
    pub fn new(values: &'a [f32], stride: usize, first: usize, columns: usize) -> Self {
        Self { values: values.get(first..).unwrap_or_default(), stride, columns }
    }

    /// One of its rows.
    #[inline(always)]
    pub fn row(&self, row: usize) -> &'a [f32] {
        &self.values[row * self.stride..][..self.columns]
    }
}

/// Whether a product is added or taken away.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Sign {
    Plus,
    Minus,
}

/// `c ± aᵀb` over `depth` rows of `a` and `b`, into `[a.columns, b.columns]` of `c`, whose rows are
/// `c_stride` apart.
pub(crate) fn accumulate(
    c: &mut [f32],
    c_stride: usize,
    sign: Sign,
    depth: usize,
    a: Block<'_>,
    b: Block<'_>,
) {
    if a.columns > 0 && b.columns > 0 && depth > 0 {
        isa::run(Product { c, c_stride, sign, depth, a, b });
    }
}

struct Product<'a> {
    c: &'a mut [f32],
    c_stride: usize,
    sign: Sign,
    depth: usize,
    a: Block<'a>,
    b: Block<'a>,
}

impl Kernel for Product<'_> {
    type Out = ();

    #[inline(always)]
    fn run(self) {
        let mut a_tiles = Vec::new();
        let mut b_tile = Vec::new();
        for first in (0..self.depth).step_by(DEPTH) {
            let depth = DEPTH.min(self.depth - first);
            a_tiles.clear();
            for column in (0..self.a.columns).step_by(TILE_ROWS) {
                pack::<TILE_ROWS>(&mut a_tiles, self.a, first..first + depth, column);
            }
            for column in (0..self.b.columns).step_by(LANES) {
                b_tile.clear();
                pack::<LANES>(&mut b_tile, self.b, first..first + depth, column);
                let width = LANES.min(self.b.columns - column);
                for (tile, a) in a_tiles.chunks_exact(depth).enumerate() {
                    let row = tile * TILE_ROWS;
                    let sums = tile_sums(a, &b_tile);
                    let rows = TILE_ROWS.min(self.a.columns - row);
                    for (idx, sums) in sums.iter().take(rows).enumerate() {
                        let c = &mut self.c[(row + idx) * self.c_stride + column..][..width];
                        add_row(c, sums, self.sign);
                    }
                }
            }
        }
    }
}

/// Appends columns `column..column + W` of some rows, the missing ones as zeros.
#[inline(always)]
fn pack<const W: usize>(
    into: &mut Vec<[f32; W]>,
    block: Block<'_>,
    rows: std::ops::Range<usize>,
    column: usize,
) {
    let width = W.min(block.columns - column);
    for row in rows {
        let values = &block.row(row)[column..column + width];
        into.push(match values.first_chunk::<W>() {
            Some(whole) => *whole,
            None => std::array::from_fn(|idx| values.get(idx).copied().unwrap_or(0.0)),
        });
    }
}

/// Sums by value and row by row, which the compiler keeps in registers; in a loop over rows it would not.
#[inline(always)]
fn tile_sums(a: &[[f32; TILE_ROWS]], b: &[[f32; LANES]]) -> [[f32; LANES]; TILE_ROWS] {
    let [mut s0, mut s1, mut s2, mut s3, mut s4, mut s5, mut s6, mut s7] =
        [[0.0f32; LANES]; TILE_ROWS];
    for (a, b) in a.iter().zip(b) {
        s0 = fused(s0, a[0], b);
        s1 = fused(s1, a[1], b);
        s2 = fused(s2, a[2], b);
        s3 = fused(s3, a[3], b);
        s4 = fused(s4, a[4], b);
        s5 = fused(s5, a[5], b);
        s6 = fused(s6, a[6], b);
        s7 = fused(s7, a[7], b);
    }
    [s0, s1, s2, s3, s4, s5, s6, s7]
}

#[inline(always)]
fn fused(mut sums: [f32; LANES], a: f32, b: &[f32; LANES]) -> [f32; LANES] {
    for lane in 0..LANES {
        sums[lane] = a.mul_add(b[lane], sums[lane]);
    }
    sums
}

#[inline(always)]
fn add_row(c: &mut [f32], sums: &[f32; LANES], sign: Sign) {
    match sign {
        Sign::Plus => c.iter_mut().zip(sums).for_each(|(c, sum)| *c += sum),
        Sign::Minus => c.iter_mut().zip(sums).for_each(|(c, sum)| *c -= sum),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// The same in f64, term by term.
    fn reference(k: usize, m: usize, n: usize, a: &[f32], b: &[f32], i: usize, j: usize) -> f64 {
        (0..k).map(|k| f64::from(a[k * m + i]) * f64::from(b[k * n + j])).sum()
    }

    #[test]
    fn products_of_any_shape_agree_with_f64() {
        let mut random = Random::new(1);
        for (k, m, n) in [(1, 1, 1), (3, 9, 17), (256, 8, 16), (300, 13, 40), (513, 33, 5)] {
            let (a, b) = (random.normal(k * m), random.normal(k * n));
            let mut c = vec![1.0; m * n];
            let (left, right) = (Block::new(&a, m, 0, m), Block::new(&b, n, 0, n));
            accumulate(&mut c, n, Sign::Minus, k, left, right);
            for (at, c) in c.iter().enumerate() {
                let expected = 1.0 - reference(k, m, n, &a, &b, at / n, at % n);
                assert!((f64::from(*c) - expected).abs() < 1e-4, "{k} {m} {n}: {c} {expected}");
            }
        }
    }

    #[test]
    fn a_cut_anywhere_gives_the_same_bits() {
        let mut random = Random::new(2);
        let (k, m, n) = (400, 24, 70);
        let (a, b) = (random.normal(k * m), random.normal(k * n));
        let mut whole = vec![0.0; m * n];
        accumulate(&mut whole, n, Sign::Plus, k, Block::new(&a, m, 0, m), Block::new(&b, n, 0, n));
        let mut cut = vec![0.0; m * n];
        for (columns, rows) in [(0..31, 0..5), (31..70, 0..5), (0..31, 5..24), (31..70, 5..24)] {
            let at = rows.start * n + columns.start;
            let left = Block::new(&a, m, rows.start, rows.len());
            let right = Block::new(&b, n, columns.start, columns.len());
            accumulate(&mut cut[at..], n, Sign::Plus, k, left, right);
        }
        assert_eq!(whole, cut);
    }
}
