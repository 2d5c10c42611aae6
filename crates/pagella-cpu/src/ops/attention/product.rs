//! `out = A · B` for a few rows of A, B streamed once: scores (`q · K`) and outputs (`p · V`), and
//! linears of heads.
//!
//! Every output element is one `fma` chain over the depth, ascending, from 0. How many rows and
//! columns share the registers depends on the machine and never changes a bit.

use pagella_backend::PAGE_TOKENS;

use crate::simd::{Isa, Kernel, LANES, Simd};

/// Rows that one pass can handle, largest first.
const ROW_COUNTS: [usize; 7] = [12, 8, 6, 4, 3, 2, 1];

/// Element type of B.
pub(in crate::ops) trait Element: Copy + 'static {
    /// Whether B comes from memory far away, so that what follows should be fetched early.
    const STREAMED: bool;

    /// Loads 16 elements.
    ///
    /// # Safety
    /// As for [`Simd`].
    unsafe fn load<S: Simd>(p: *const Self) -> S::F;
}

/// Binary16, straight from a page.
impl Element for u16 {
    const STREAMED: bool = true;
    #[inline(always)]
    unsafe fn load<S: Simd>(p: *const u16) -> S::F {
        // SAFETY: passed on to the caller.
        unsafe { S::load_f16(p) }
    }
}

/// The upper half of binary32.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub(in crate::ops) struct Bf16(pub(in crate::ops) u16);

impl Element for Bf16 {
    const STREAMED: bool = true;
    #[inline(always)]
    unsafe fn load<S: Simd>(p: *const Bf16) -> S::F {
        // SAFETY: passed on to the caller; a `Bf16` is its bits.
        unsafe { S::load_bf16(p.cast()) }
    }
}

/// f32, from a panel in the cache.
impl Element for f32 {
    const STREAMED: bool = false;
    #[inline(always)]
    unsafe fn load<S: Simd>(p: *const f32) -> S::F {
        // SAFETY: passed on to the caller.
        unsafe { S::load(p) }
    }
}

/// How A is stored. The strides are constants so that they vanish in the addresses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::ops) enum Left {
    /// `[depth][rows]`: packed queries.
    Packed,
    /// `[rows][PAGE_TOKENS]`: exponentials.
    Exponentials,
}

/// One product. B is `[depth][16 · columns]` with `b_step` elements between its rows.
pub(in crate::ops) struct Product<E> {
    pub(in crate::ops) left: Left,
    pub(in crate::ops) a: *const f32,
    pub(in crate::ops) b: *const E,
    pub(in crate::ops) b_step: usize,
    pub(in crate::ops) depth: usize,
    /// Vectors of 16 outputs.
    pub(in crate::ops) columns: usize,
    pub(in crate::ops) out: *mut f32,
    pub(in crate::ops) out_step: usize,
    /// Whether the chains go on from what `out` holds.
    pub(in crate::ops) resume: bool,
    /// What is needed next; fetched bit by bit, as many bytes as B has.
    pub(in crate::ops) ahead: *const u8,
}

/// Rows of one pass when `rows` are left, at most `rows_max`.
pub(in crate::ops) fn pass_rows(rows: usize, rows_max: usize) -> usize {
    ROW_COUNTS.into_iter().find(|&r| r <= rows && r <= rows_max).unwrap_or(1)
}

/// The largest pass of a level.
pub(in crate::ops) fn rows_max(isa: Isa) -> usize {
    struct Rows;
    impl Kernel for Rows {
        type Out = usize;
        #[inline(always)]
        unsafe fn run<S: Simd>(self) -> usize {
            S::GEMM_ROWS
        }
    }
    isa.run(Rows)
}

impl<E: Element> Product<E> {
    /// Computes `rows` rows, a count given by [`pass_rows`].
    ///
    /// # Safety
    /// `a`, `b` and `out` are valid for the shapes stated; `rows` is at most [`rows_max`].
    pub(in crate::ops) unsafe fn run(self, isa: Isa, rows: usize) {
        match rows {
            1 => isa.run(Pass::<E, 1>(self)),
            2 => isa.run(Pass::<E, 2>(self)),
            3 => isa.run(Pass::<E, 3>(self)),
            4 => isa.run(Pass::<E, 4>(self)),
            6 => isa.run(Pass::<E, 6>(self)),
            8 => isa.run(Pass::<E, 8>(self)),
            12 => isa.run(Pass::<E, 12>(self)),
            _ => unreachable!("{rows} rows in one pass"),
        }
    }
}

/// Vectors of 16 lanes that may accumulate: 24 of 32 registers, or 6 of 8 pairs.
const fn sums_max<S: Simd>() -> usize {
    if S::GEMM_ROWS >= 12 { 24 } else { 6 }
}

struct Pass<E, const R: usize>(Product<E>);

impl<E: Element, const R: usize> Kernel for Pass<E, R> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // A constant, so that nothing is compiled that is never asked for, see `pass_rows`.
        if const { R > S::GEMM_ROWS } {
            return;
        }
        // SAFETY: the contract of `Product::run`.
        unsafe {
            match self.0.left {
                Left::Packed => self.0.walk::<S, R, R, 1>(),
                Left::Exponentials => self.0.walk::<S, R, 1, PAGE_TOKENS>(),
            }
        }
    }
}

impl<E: Element> Product<E> {
    /// All columns, as many at a time as registers allow; A is at `depth · AD + row · AR`.
    ///
    /// # Safety
    /// As for [`Product::run`].
    #[inline(always)]
    unsafe fn walk<S: Simd, const R: usize, const AD: usize, const AR: usize>(&self) {
        let mut column = 0;
        // SAFETY: columns stay below `self.columns`.
        unsafe {
            if const { R * 8 <= sums_max::<S>() } {
                while column + 8 <= self.columns {
                    self.block::<S, R, AD, AR, 8>(column);
                    column += 8;
                }
            }
            if const { R * 4 <= sums_max::<S>() } {
                while column + 4 <= self.columns {
                    self.block::<S, R, AD, AR, 4>(column);
                    column += 4;
                }
            }
            if const { R * 2 <= sums_max::<S>() } {
                while column + 2 <= self.columns {
                    self.block::<S, R, AD, AR, 2>(column);
                    column += 2;
                }
            }
            while column < self.columns {
                self.block::<S, R, AD, AR, 1>(column);
                column += 1;
            }
        }
    }

    /// `R` rows × `C` vectors.
    ///
    /// # Safety
    /// As for [`Product::run`]; `column + C` is at most `columns`.
    // Plain indices unroll into registers.
    #[allow(clippy::needless_range_loop)]
    #[inline(always)]
    unsafe fn block<S: Simd, const R: usize, const AD: usize, const AR: usize, const C: usize>(
        &self,
        column: usize,
    ) {
        // SAFETY: indices stay below `depth`, `R` and `columns`.
        unsafe {
            let mut sums = [[S::splat(0.0); C]; R];
            let out = |r: usize, c: usize| self.out.add(r * self.out_step + (column + c) * LANES);
            if self.resume {
                for r in 0..R {
                    for c in 0..C {
                        sums[r][c] = S::load(out(r, c));
                    }
                }
            }
            let mut b = self.b.add(column * LANES);
            let mut a = self.a;
            let mut ahead = self.ahead.wrapping_add(column * self.depth * LANES * 2);
            for _ in 0..self.depth {
                let mut lanes = [S::splat(0.0); C];
                for c in 0..C {
                    lanes[c] = E::load::<S>(b.add(c * LANES));
                }
                for r in 0..R {
                    let x = S::splat(*a.add(r * AR));
                    for c in 0..C {
                        sums[r][c] = S::fma(x, lanes[c], sums[r][c]);
                    }
                }
                if E::STREAMED {
                    for c in (0..C).step_by(2) {
                        S::prefetch(ahead.wrapping_add(c * LANES * 2));
                    }
                    ahead = ahead.wrapping_add(C * LANES * 2);
                }
                a = a.add(AD);
                b = b.add(self.b_step);
            }
            for r in 0..R {
                for c in 0..C {
                    S::store(out(r, c), sums[r][c]);
                }
            }
        }
    }
}
