//! Products straight from codes, for few queries: nothing is stored in between.
//!
//! Every code is widened in registers, `(code − half) · scale`, which is exact, and chained with `fma`:
//! scores over the elements of the head, outputs over the tokens. These are the chains of decoded
//! slots, bit by bit.

use pagella_backend::PAGE_TOKENS;

use super::code::{Bits, SCALED};
use super::quantized::Slot;
use crate::simd::{Isa, Kernel, LANES, Simd};

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;
/// Most queries of one pass where a vector is several registers.
const ROWS_FEW_REGISTERS: usize = 4;

/// What is read next: codes and scales of a slot.
#[derive(Clone, Copy)]
pub(crate) struct Ahead {
    pub(super) codes: *const u8,
    pub(super) bytes: usize,
    pub(super) scales: *const u16,
}

impl Ahead {
    /// Fetches the scales of a slot of heads of `width`.
    ///
    /// # Safety
    /// As for [`Simd`].
    #[inline(always)]
    unsafe fn fetch_scales<S: Simd>(&self, width: usize) {
        let bytes = width / SCALED * PAGE_TOKENS * size_of::<u16>();
        for line in (0..bytes).step_by(LINE_BYTES) {
            // SAFETY: passed on to the caller; fetching needs no valid place.
            unsafe { S::prefetch(self.scales.cast::<u8>().wrapping_add(line)) };
        }
    }

    /// Fetches as much of the codes as the line at offset `at` is of `own` bytes.
    ///
    /// # Safety
    /// As for [`Simd`].
    #[inline(always)]
    unsafe fn fetch<S: Simd>(&self, at: usize, own: usize) {
        let lines = self.bytes.div_ceil(own);
        for line in 0..lines {
            let place = at * lines + line * LINE_BYTES;
            if place < self.bytes {
                // SAFETY: as above.
                unsafe { S::prefetch(self.codes.wrapping_add(place)) };
            }
        }
    }
}

/// Most queries of one pass.
pub(crate) fn rows_max(isa: Isa) -> usize {
    struct Rows;
    impl Kernel for Rows {
        type Out = usize;
        #[inline(always)]
        unsafe fn run<S: Simd>(self) -> usize {
            if S::REGISTERS == 1 { 8 } else { ROWS_FEW_REGISTERS }
        }
    }
    isa.run(Rows)
}

/// Queries of the next pass when `rows` are left.
pub(crate) fn pass_rows(isa: Isa, rows: usize) -> usize {
    1 << rows.min(rows_max(isa)).ilog2()
}

/// Calls a kernel with the number of queries as a constant.
macro_rules! with_rows {
    ($isa:expr, $rows:expr, $kernel:ident($pass:expr)) => {
        match $rows {
            1 => $isa.run($kernel::<1>($pass)),
            2 => $isa.run($kernel::<2>($pass)),
            4 => $isa.run($kernel::<4>($pass)),
            8 => $isa.run($kernel::<8>($pass)),
            rows => unreachable!("{rows} queries in one pass"),
        }
    };
}

/// One slot and some queries.
pub(crate) struct Pass {
    pub(super) slot: Slot,
    /// Keys: queries `[width][rows]`. Values: exponentials `[rows][256]`.
    pub(super) a: *const f32,
    /// Keys: scores `[rows][256]`. Values: outputs `[rows][out_step]`.
    pub(super) out: *mut f32,
    pub(super) out_step: usize,
    pub(super) ahead: Ahead,
}

impl Pass {
    /// Scores of all wanted tokens, whole vectors of them, for `rows` queries, a number that
    /// [`pass_rows`] gives.
    ///
    /// # Safety
    /// `a` and `out` hold what they should; the slot belongs to a page that exists.
    pub(crate) unsafe fn score(self, isa: Isa, rows: usize) {
        with_rows!(isa, rows, KeyPass(self));
    }

    /// Sums of the wanted values, each times its exponential.
    ///
    /// # Safety
    /// As for [`Pass::score`].
    pub(crate) unsafe fn weigh(self, isa: Isa, rows: usize) {
        with_rows!(isa, rows, ValuePass(self));
    }
}

/// `(code − half) · scale`.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
unsafe fn value<S: Simd>(code: S::I, scale: S::F, zero: S::F) -> S::F {
    // SAFETY: register operations of the level the caller is compiled for.
    unsafe { S::fma(S::to_f(code), scale, zero) }
}

struct KeyPass<const R: usize>(Pass);

impl<const R: usize> Kernel for KeyPass<R> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        if const { R > ROWS_FEW_REGISTERS && S::REGISTERS > 1 } {
            return; // never asked for, see `rows_max`
        }
        // SAFETY: the contract of `Pass::score`.
        unsafe {
            self.0.ahead.fetch_scales::<S>(self.0.slot.width);
            let start = self.0.slot.tokens.start;
            let vectors = (self.0.slot.tokens.end - start).div_ceil(LANES);
            let mut done = 0;
            if const { S::REGISTERS == 1 && R <= 4 } {
                while done + 2 <= vectors {
                    self.tokens::<S, 2>(start + done * LANES);
                    done += 2;
                }
            }
            while done < vectors {
                self.tokens::<S, 1>(start + done * LANES);
                done += 1;
            }
        }
    }
}

impl<const R: usize> KeyPass<R> {
    /// Scores of `C` vectors of tokens from `first` on.
    ///
    /// # Safety
    /// As for [`Pass::score`]; the tokens are in the page.
    #[inline(always)]
    unsafe fn tokens<S: Simd, const C: usize>(&self, first: usize) {
        // SAFETY: words, scales, queries and scores of these tokens exist.
        unsafe {
            match self.0.slot.bits {
                Bits::Eight => self.chains::<S, C, 8>(first),
                Bits::Four => self.chains::<S, C, 4>(first),
            }
        }
    }

    /// # Safety
    /// As for [`KeyPass::tokens`]; `B` is the width of the codes.
    #[inline(always)]
    unsafe fn chains<S: Simd, const C: usize, const B: usize>(&self, first: usize) {
        let Pass { slot, a, out, ahead, .. } = &self.0;
        let (per_word, half) = (32 / B, slot.bits.half());
        let own = slot.width / per_word * PAGE_TOKENS * 4;
        // SAFETY: as promised by the caller.
        unsafe {
            let mut sums = [[S::splat(0.0); C]; R];
            let mut words = slot.codes.cast::<u32>().add(first);
            let mut x = *a;
            for part in 0..slot.width / SCALED {
                let scales = slot.scales.add(part * PAGE_TOKENS + first);
                let mut scale = [S::splat(0.0); C];
                let mut zero = [S::splat(0.0); C];
                for c in 0..C {
                    scale[c] = S::load_f16(scales.add(c * LANES));
                    zero[c] = S::mul(scale[c], S::splat(-half));
                }
                for word in 0..SCALED / per_word {
                    let mut codes = [S::splat_i(0); C];
                    for (c, codes) in codes.iter_mut().enumerate() {
                        *codes = S::load_i(words.add(c * LANES));
                        let row = (part * SCALED / per_word + word) * PAGE_TOKENS;
                        ahead.fetch::<S>((row + first + c * LANES) * 4, own);
                    }
                    macro_rules! chain {
                        ($element:expr, $codes:expr, $byte:literal) => {
                            for c in 0..C {
                                let k = value::<S>(S::byte::<$byte>($codes[c]), scale[c], zero[c]);
                                for r in 0..R {
                                    let x = S::splat(*x.add($element * R + r));
                                    sums[r][c] = S::fma(x, k, sums[r][c]);
                                }
                            }
                        };
                    }
                    macro_rules! bytes {
                        ($from:expr, $codes:expr) => {
                            chain!($from, $codes, 0);
                            chain!($from + 1, $codes, 1);
                            chain!($from + 2, $codes, 2);
                            chain!($from + 3, $codes, 3);
                        };
                    }
                    if B == 8 {
                        bytes!(0, codes);
                    } else {
                        let nibbles = S::splat_i(0x0F0F_0F0F);
                        let mut low = codes;
                        let mut high = codes;
                        for c in 0..C {
                            low[c] = S::and(codes[c], nibbles);
                            high[c] = S::and(S::shr::<4>(codes[c]), nibbles);
                        }
                        bytes!(0, low);
                        bytes!(4, high);
                    }
                    words = words.add(PAGE_TOKENS);
                    x = x.add(per_word * R);
                }
            }
            for (r, sums) in sums.into_iter().enumerate() {
                for (c, sum) in sums.into_iter().enumerate() {
                    S::store(out.add(r * PAGE_TOKENS + first + c * LANES), sum);
                }
            }
        }
    }
}

struct ValuePass<const R: usize>(Pass);

impl<const R: usize> Kernel for ValuePass<R> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        if const { R > ROWS_FEW_REGISTERS && S::REGISTERS > 1 } {
            return; // never asked for, see `rows_max`
        }
        let Pass { slot, ahead, .. } = &self.0;
        // SAFETY: the contract of `Pass::weigh`.
        unsafe {
            ahead.fetch_scales::<S>(slot.width);
            for part in 0..slot.width / SCALED {
                let scales = Widened::new::<S>(slot.scales.add(part * PAGE_TOKENS), slot.bits);
                // Both halves at once read every code once, if their sums fit the registers.
                if const { S::REGISTERS == 1 } {
                    match slot.bits {
                        Bits::Eight => self.chains::<S, 2, 8>(part, 0, &scales),
                        Bits::Four => self.chains::<S, 2, 4>(part, 0, &scales),
                    }
                    continue;
                }
                for half in 0..2 {
                    match slot.bits {
                        Bits::Eight => self.chains::<S, 1, 8>(part, half, &scales),
                        Bits::Four => self.chains::<S, 1, 4>(part, half, &scales),
                    }
                }
            }
        }
    }
}

/// Scales of 32 elements of all tokens of a page, and what belongs to the code of zero.
struct Widened {
    scales: [f32; PAGE_TOKENS],
    zeros: [f32; PAGE_TOKENS],
}

impl Widened {
    /// # Safety
    /// As for [`Simd`]; `scales` points to those of a page.
    #[inline(always)]
    unsafe fn new<S: Simd>(scales: *const u16, bits: Bits) -> Self {
        let mut widened = Widened { scales: [0.0; PAGE_TOKENS], zeros: [0.0; PAGE_TOKENS] };
        for token in (0..PAGE_TOKENS).step_by(LANES) {
            // SAFETY: all arrays have a page of elements.
            unsafe {
                let scale = S::load_f16(scales.add(token));
                S::store(widened.scales.as_mut_ptr().add(token), scale);
                let zero = S::mul(scale, S::splat(-bits.half()));
                S::store(widened.zeros.as_mut_ptr().add(token), zero);
            }
        }
        widened
    }
}

impl<const R: usize> ValuePass<R> {
    /// `C` vectors of the 32 elements of `part`, from vector `half` on.
    ///
    /// # Safety
    /// As for [`Pass::weigh`]; the part exists, `B` is the width of the codes.
    #[inline(always)]
    unsafe fn chains<S: Simd, const C: usize, const B: usize>(
        &self,
        part: usize,
        half: usize,
        scales: &Widened,
    ) {
        let Pass { slot, a, out, out_step, ahead } = &self.0;
        let row_bytes = slot.width * B / 8;
        let own = row_bytes * PAGE_TOKENS;
        let part_bytes = SCALED * B / 8;
        // SAFETY: codes, scales and exponentials of these tokens exist.
        unsafe {
            let mut sums = [[S::splat(0.0); C]; R];
            for token in slot.tokens.clone() {
                let at = token * row_bytes + part * part_bytes;
                let codes = slot.codes.add(at);
                if half == 0 && at.is_multiple_of(LINE_BYTES) {
                    ahead.fetch::<S>(at, own);
                }
                let scale = S::splat(scales.scales[token]);
                let zero = S::splat(scales.zeros[token]);
                let mut values = [S::splat(0.0); C];
                for (c, v) in values.iter_mut().enumerate() {
                    let code = match (B, half + c) {
                        (8, n) => S::load_u8(codes.add(n * LANES)),
                        (_, 0) => S::and(S::load_u8(codes), S::splat_i(0xF)),
                        _ => S::shr::<4>(S::load_u8(codes)),
                    };
                    *v = value::<S>(code, scale, zero);
                }
                for (r, sums) in sums.iter_mut().enumerate() {
                    let e = S::splat(*a.add(r * PAGE_TOKENS + token));
                    for (sum, v) in sums.iter_mut().zip(values) {
                        *sum = S::fma(e, v, *sum);
                    }
                }
            }
            for (r, sums) in sums.into_iter().enumerate() {
                for (c, sum) in sums.into_iter().enumerate() {
                    S::store(out.add(r * out_step + part * SCALED + (half + c) * LANES), sum);
                }
            }
        }
    }
}
