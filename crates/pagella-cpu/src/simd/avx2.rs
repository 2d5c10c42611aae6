//! AVX2 with FMA and F16C: two registers per vector.

use std::arch::asm;
use std::arch::x86_64::*;

use super::{Kernel, Simd};

/// Two 256-bit registers, low lanes first.
#[derive(Clone, Copy)]
pub(crate) struct Avx2;

/// 16 × f32.
#[derive(Clone, Copy)]
pub(crate) struct F(__m256, __m256);

/// 16 × i32.
#[derive(Clone, Copy)]
pub(crate) struct I(__m256i, __m256i);

/// Runs a kernel compiled for this level.
///
/// # Safety
/// The CPU must have the features named here.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) unsafe fn enter<K: Kernel>(kernel: K) -> K::Out {
    // SAFETY: the caller vouches for the features; `Isa::run` is the only caller.
    unsafe { kernel.run::<Avx2>() }
}

/// Lifts an intrinsic to both registers.
macro_rules! both {
    ($($name:ident($($arg:ident: $ty:ident),*) -> $out:ident = |$($x:ident),*| $body:expr;)*) => {$(
        #[inline(always)]
        unsafe fn $name($($arg: $ty),*) -> $out {
            // SAFETY: the features are there (trait contract).
            unsafe {
                let low = { $(let $x = $arg.0;)* $body };
                let high = { $(let $x = $arg.1;)* $body };
                $out(low, high)
            }
        }
    )*};
}

/// Everything that touches memory or makes vectors.
macro_rules! whole {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $out:ty = $body:expr;)*) => {$(
        #[inline(always)]
        unsafe fn $name($($arg: $ty),*) -> $out {
            // SAFETY: the features are there (trait contract); pointers are the caller's duty.
            unsafe { $body }
        }
    )*};
}

impl Simd for Avx2 {
    type F = F;
    type I = I;
    type Table = F;
    const GEMM_ROWS: usize = 6;
    const REGISTERS: usize = 2;
    const WIDE_TILES: [usize; 3] = [2, 1, 1];
    /// With more rows the sums of both halves would not fit the registers; two products of wider codes
    /// would not fit 16 bits.
    const BYTE_BITS_MAX: [u8; 3] = [6, 0, 0];

    /// As many as two products each, of the largest code with 128, are below 2¹⁵.
    #[inline(always)]
    fn byte_quads(bits: u8) -> usize {
        match bits {
            6 => 2,
            5 => 4,
            _ => 8,
        }
    }

    both! {
        add(a: F, b: F) -> F = |a, b| _mm256_add_ps(a, b);
        sub(a: F, b: F) -> F = |a, b| _mm256_sub_ps(a, b);
        mul(a: F, b: F) -> F = |a, b| _mm256_mul_ps(a, b);
        div(a: F, b: F) -> F = |a, b| _mm256_div_ps(a, b);
        fma(a: F, b: F, c: F) -> F = |a, b, c| _mm256_fmadd_ps(a, b, c);
        fnma(a: F, b: F, c: F) -> F = |a, b, c| _mm256_fnmadd_ps(a, b, c);
        max(a: F, b: F) -> F = |a, b| _mm256_max_ps(a, b);
        min(a: F, b: F) -> F = |a, b| _mm256_min_ps(a, b);
        abs(a: F) -> F = |a| _mm256_andnot_ps(_mm256_set1_ps(-0.0), a);
        select_lt(a: F, b: F, yes: F, no: F) -> F =
            |a, b, y, n| _mm256_blendv_ps(n, y, _mm256_cmp_ps::<_CMP_LT_OQ>(a, b));
        round_i(a: F) -> I = |a| _mm256_cvtps_epi32(a);
        to_f(a: I) -> F = |a| _mm256_cvtepi32_ps(a);
        bits_f(a: I) -> F = |a| _mm256_castsi256_ps(a);
        and(a: I, b: I) -> I = |a, b| _mm256_and_si256(a, b);
        or(a: I, b: I) -> I = |a, b| _mm256_or_si256(a, b);
        xor(a: I, b: I) -> I = |a, b| _mm256_xor_si256(a, b);
        sum_bytes(a: I) -> I = |a| _mm256_madd_epi16(
            _mm256_maddubs_epi16(a, _mm256_set1_epi8(1)),
            _mm256_set1_epi16(1),
        );
        add_i(a: I, b: I) -> I = |a, b| _mm256_add_epi32(a, b);
        sub_i(a: I, b: I) -> I = |a, b| _mm256_sub_epi32(a, b);
        mul_i(a: I, b: I) -> I = |a, b| _mm256_mullo_epi32(a, b);
        dot16(acc: I, a: I, b: I) -> I =
            |acc, a, b| _mm256_add_epi32(acc, _mm256_madd_epi16(a, b));
    }

    whole! {
        splat(x: f32) -> F = { let v = _mm256_set1_ps(x); F(v, v) };
        splat_halves(low: f32, high: f32) -> F =
            F(_mm256_set1_ps(low), _mm256_set1_ps(high));
        shr_by(a: I, bits: u32) -> I = {
            let bits = _mm_cvtsi32_si128(bits as i32);
            I(_mm256_srl_epi32(a.0, bits), _mm256_srl_epi32(a.1, bits))
        };
        shl_by(a: I, bits: u32) -> I = {
            let bits = _mm_cvtsi32_si128(bits as i32);
            I(_mm256_sll_epi32(a.0, bits), _mm256_sll_epi32(a.1, bits))
        };
        load(p: *const f32) -> F = F(_mm256_loadu_ps(p), _mm256_loadu_ps(p.add(8)));
        store(p: *mut f32, v: F) -> () = {
            _mm256_storeu_ps(p, v.0);
            _mm256_storeu_ps(p.add(8), v.1)
        };
        load_f16(p: *const u16) -> F = F(
            _mm256_cvtph_ps(_mm_loadu_si128(p.cast())),
            _mm256_cvtph_ps(_mm_loadu_si128(p.add(8).cast())),
        );
        store_f16(p: *mut u16, v: F) -> () = {
            const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT;
            _mm_storeu_si128(p.cast(), _mm256_cvtps_ph::<NEAREST>(v.0));
            _mm_storeu_si128(p.add(8).cast(), _mm256_cvtps_ph::<NEAREST>(v.1))
        };
        load_bf16(p: *const u16) -> F = F(widen_bf16(p), widen_bf16(p.add(8)));
        splat_i(x: i32) -> I = { let v = _mm256_set1_epi32(x); I(v, v) };
        load_i(p: *const u32) -> I =
            I(_mm256_loadu_si256(p.cast()), _mm256_loadu_si256(p.add(8).cast()));
        store_i(p: *mut i32, v: I) -> () = {
            _mm256_storeu_si256(p.cast(), v.0);
            _mm256_storeu_si256(p.add(8).cast(), v.1)
        };
        load_u8(p: *const u8) -> I = I(
            _mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast())),
            _mm256_cvtepu8_epi32(_mm_loadl_epi64(p.add(8).cast())),
        );
        table(p: *const f32) -> F = Self::load(p);
        lookup(table: F, codes: I) -> F = {
            F(lookup_half(table, codes.0), lookup_half(table, codes.1))
        };
        prefetch(p: *const u8) -> () = _mm_prefetch::<_MM_HINT_T0>(p.cast());
    }

    #[inline(always)]
    unsafe fn load_f8<const DIGITS: u32>(p: *const u8) -> F {
        // SAFETY: the caller gives 16 readable bytes; the features are there.
        unsafe {
            let halves = widen_f8::<DIGITS>(p);
            F(
                _mm256_cvtph_ps(_mm256_castsi256_si128(halves)),
                _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(halves)),
            )
        }
    }
    #[inline(always)]
    unsafe fn byte<const N: usize>(a: I) -> I {
        // Of each 32-bit lane byte `N`, then zeros.
        const CHOICE: [[i8; 16]; 4] = {
            let mut choice = [[-1; 16]; 4];
            let mut i = 0;
            while i < 16 {
                choice[i % 4][i / 4 * 4] = i as i8;
                i += 1;
            }
            choice
        };
        // SAFETY: the features are there (trait contract); a choice has 16 bytes.
        unsafe {
            match N {
                0 => Self::and(a, Self::splat_i(0xFF)),
                3 => Self::shr::<24>(a),
                _ => {
                    let choice = _mm_loadu_si128(CHOICE[N].as_ptr().cast());
                    let choice = _mm256_broadcastsi128_si256(choice);
                    I(_mm256_shuffle_epi8(a.0, choice), _mm256_shuffle_epi8(a.1, choice))
                }
            }
        }
    }
    #[inline(always)]
    unsafe fn settle(a: F) -> F {
        // SAFETY: the features are there (trait contract).
        unsafe { F(settle(a.0), settle(a.1)) }
    }
    #[inline(always)]
    unsafe fn settle_i(a: I) -> I {
        // SAFETY: as above.
        unsafe {
            let settle = |v| _mm256_castps_si256(settle(_mm256_castsi256_ps(v)));
            I(settle(a.0), settle(a.1))
        }
    }
    /// The sums are of 16 bits, two a lane.
    #[inline(always)]
    unsafe fn dot_bytes(sums: [I; 2], codes: I, high: I, low: I) -> [I; 2] {
        // SAFETY: the features are there (trait contract).
        unsafe {
            let add = |sum: __m256i, x: __m256i, codes: __m256i| {
                _mm256_add_epi16(sum, _mm256_maddubs_epi16(codes, x))
            };
            [
                I(add(sums[0].0, high.0, codes.0), add(sums[0].1, high.1, codes.1)),
                I(add(sums[1].0, low.0, codes.0), add(sums[1].1, low.1, codes.1)),
            ]
        }
    }
    #[inline(always)]
    unsafe fn fold_bytes(acc: I, sums: [I; 2]) -> I {
        // SAFETY: the features are there (trait contract).
        unsafe {
            let fold = |acc: __m256i, high: __m256i, low: __m256i| {
                let high = _mm256_madd_epi16(high, _mm256_set1_epi16(256));
                let low = _mm256_madd_epi16(low, _mm256_set1_epi16(1));
                _mm256_add_epi32(acc, _mm256_add_epi32(high, low))
            };
            I(fold(acc.0, sums[0].0, sums[1].0), fold(acc.1, sums[0].1, sums[1].1))
        }
    }
    #[inline(always)]
    unsafe fn low_halves(a: F, b: F) -> F {
        F(a.0, b.0)
    }
    #[inline(always)]
    unsafe fn high_halves(a: F, b: F) -> F {
        F(a.1, b.1)
    }
    #[inline(always)]
    unsafe fn swap<const N: usize>(a: F) -> F {
        // SAFETY: the features are there (trait contract).
        unsafe {
            match N {
                2 => F(
                    _mm256_permute_ps::<0b01_00_11_10>(a.0),
                    _mm256_permute_ps::<0b01_00_11_10>(a.1),
                ),
                4 => {
                    F(_mm256_permute2f128_ps::<1>(a.0, a.0), _mm256_permute2f128_ps::<1>(a.1, a.1))
                }
                _ => F(a.1, a.0),
            }
        }
    }
    #[inline(always)]
    unsafe fn shr<const N: i32>(a: I) -> I {
        // SAFETY: the features are there (trait contract).
        unsafe { I(_mm256_srli_epi32::<N>(a.0), _mm256_srli_epi32::<N>(a.1)) }
    }
    #[inline(always)]
    unsafe fn shl<const N: i32>(a: I) -> I {
        // SAFETY: as above.
        unsafe { I(_mm256_slli_epi32::<N>(a.0), _mm256_slli_epi32::<N>(a.1)) }
    }
    #[inline(always)]
    unsafe fn shr16<const N: i32>(a: I) -> I {
        // SAFETY: as above.
        unsafe { I(_mm256_srli_epi16::<N>(a.0), _mm256_srli_epi16::<N>(a.1)) }
    }
}

/// # Safety
/// `p` points to 8 readable elements; AVX2 is there.
#[inline(always)]
unsafe fn widen_bf16(p: *const u16) -> __m256 {
    // SAFETY: as promised by the caller.
    unsafe {
        let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast()));
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
    }
}

/// The upper parts of 16 binary16 values, from bytes with `DIGITS` digits.
///
/// # Safety
/// `p` points to 16 readable bytes; AVX2 is there.
#[inline(always)]
pub(super) unsafe fn widen_f8<const DIGITS: u32>(p: *const u8) -> __m256i {
    // SAFETY: as promised by the caller.
    unsafe {
        let wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(p.cast()));
        match DIGITS {
            // The sign comes twice; the lower copy would be the top bit of the exponent.
            3 => {
                _mm256_and_si256(_mm256_slli_epi16::<7>(wide), _mm256_set1_epi16(0xBFFFu16 as i16))
            }
            _ => _mm256_slli_epi16::<8>(wide),
        }
    }
}

/// Eight entries of a table of 16.
///
/// # Safety
/// AVX2 is there.
#[inline(always)]
unsafe fn lookup_half(table: F, codes: __m256i) -> __m256 {
    // SAFETY: as promised by the caller.
    unsafe {
        let low = _mm256_permutevar8x32_ps(table.0, codes);
        let high = _mm256_permutevar8x32_ps(table.1, codes);
        // The fourth bit of a code becomes the sign, by which the blend chooses.
        _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32::<28>(codes)))
    }
}

/// The value itself; the compiler computes it here.
///
/// # Safety
/// AVX is there.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn settle(mut v: __m256) -> __m256 {
    // SAFETY: there is no instruction in it.
    unsafe { asm!("/* {} */", inout(ymm_reg) v, options(nomem, nostack, preserves_flags)) };
    v
}
