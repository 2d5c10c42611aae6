//! AVX2 with FMA and F16C: two registers per vector.

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
    const GEMM_ROWS: usize = 6;
    const GEMV_TILES: usize = 4;

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
        add_i(a: I, b: I) -> I = |a, b| _mm256_add_epi32(a, b);
        sub_i(a: I, b: I) -> I = |a, b| _mm256_sub_epi32(a, b);
        mul_i(a: I, b: I) -> I = |a, b| _mm256_mullo_epi32(a, b);
        dot16(acc: I, a: I, b: I) -> I =
            |acc, a, b| _mm256_add_epi32(acc, _mm256_madd_epi16(a, b));
    }

    whole! {
        splat(x: f32) -> F = { let v = _mm256_set1_ps(x); F(v, v) };
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
        prefetch(p: *const u8) -> () = _mm_prefetch::<_MM_HINT_T0>(p.cast());
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
