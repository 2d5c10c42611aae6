//! AVX-512 (F, BW, DQ, VL, VNNI): one register per vector.

use std::arch::x86_64::*;

use super::avx2::widen_f8;
use super::{Kernel, Simd};

/// One 512-bit register.
#[derive(Clone, Copy)]
pub(crate) struct Avx512;

/// Runs a kernel compiled for this level.
///
/// # Safety
/// The CPU must have the features named here.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
pub(crate) unsafe fn enter<K: Kernel>(kernel: K) -> K::Out {
    // SAFETY: the caller vouches for the features; `Isa::run` is the only caller.
    unsafe { kernel.run::<Avx512>() }
}

/// Wraps register-only intrinsics, whose one precondition is the level's features.
macro_rules! ops {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $out:ty = $body:expr;)*) => {$(
        #[inline(always)]
        unsafe fn $name($($arg: $ty),*) -> $out {
            // SAFETY: the features are there (trait contract); pointers are the caller's duty.
            unsafe { $body }
        }
    )*};
}

impl Simd for Avx512 {
    type F = __m512;
    type I = __m512i;
    type Table = __m512;
    const GEMM_ROWS: usize = 12;
    const REGISTERS: usize = 1;
    const WIDE_TILES: [usize; 3] = [4, 4, 2];

    const BYTE_BITS_MAX: [u8; 3] = [8, 8, 8];

    #[inline(always)]
    fn byte_quads(_: u8) -> usize {
        usize::MAX
    }

    ops! {
        splat(x: f32) -> __m512 = _mm512_set1_ps(x);
        splat_halves(low: f32, high: f32) -> __m512 =
            _mm512_mask_blend_ps(0xFF00, _mm512_set1_ps(low), _mm512_set1_ps(high));
        low_halves(a: __m512, b: __m512) -> __m512 = _mm512_shuffle_f32x4::<0b01_00_01_00>(a, b);
        high_halves(a: __m512, b: __m512) -> __m512 = _mm512_shuffle_f32x4::<0b11_10_11_10>(a, b);
        load(p: *const f32) -> __m512 = _mm512_loadu_ps(p);
        store(p: *mut f32, v: __m512) -> () = _mm512_storeu_ps(p, v);
        load_f16(p: *const u16) -> __m512 = _mm512_cvtph_ps(_mm256_loadu_si256(p.cast()));
        store_f16(p: *mut u16, v: __m512) -> () = _mm256_storeu_si256(
            p.cast(),
            _mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(v),
        );
        load_bf16(p: *const u16) -> __m512 = _mm512_castsi512_ps(_mm512_slli_epi32::<16>(
            _mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast())),
        ));
        add(a: __m512, b: __m512) -> __m512 = _mm512_add_ps(a, b);
        sub(a: __m512, b: __m512) -> __m512 = _mm512_sub_ps(a, b);
        mul(a: __m512, b: __m512) -> __m512 = _mm512_mul_ps(a, b);
        div(a: __m512, b: __m512) -> __m512 = _mm512_div_ps(a, b);
        fma(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fmadd_ps(a, b, c);
        fnma(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fnmadd_ps(a, b, c);
        max(a: __m512, b: __m512) -> __m512 = _mm512_max_ps(a, b);
        min(a: __m512, b: __m512) -> __m512 = _mm512_min_ps(a, b);
        abs(a: __m512) -> __m512 = _mm512_abs_ps(a);
        select_lt(a: __m512, b: __m512, yes: __m512, no: __m512) -> __m512 =
            _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b), no, yes);
        round_i(a: __m512) -> __m512i = _mm512_cvtps_epi32(a);
        to_f(a: __m512i) -> __m512 = _mm512_cvtepi32_ps(a);
        bits_f(a: __m512i) -> __m512 = _mm512_castsi512_ps(a);
        splat_i(x: i32) -> __m512i = _mm512_set1_epi32(x);
        load_i(p: *const u32) -> __m512i = _mm512_loadu_si512(p.cast());
        store_i(p: *mut i32, v: __m512i) -> () = _mm512_storeu_si512(p.cast(), v);
        load_u8(p: *const u8) -> __m512i = _mm512_cvtepu8_epi32(_mm_loadu_si128(p.cast()));
        table(p: *const f32) -> __m512 = _mm512_loadu_ps(p);
        lookup(table: __m512, codes: __m512i) -> __m512 = _mm512_permutexvar_ps(codes, table);
        and(a: __m512i, b: __m512i) -> __m512i = _mm512_and_si512(a, b);
        or(a: __m512i, b: __m512i) -> __m512i = _mm512_or_si512(a, b);
        xor(a: __m512i, b: __m512i) -> __m512i = _mm512_xor_si512(a, b);
        sum_bytes(a: __m512i) -> __m512i =
            _mm512_dpbusd_epi32(_mm512_setzero_si512(), a, _mm512_set1_epi8(1));
        shr_by(a: __m512i, bits: u32) -> __m512i =
            _mm512_srl_epi32(a, _mm_cvtsi32_si128(bits as i32));
        shl_by(a: __m512i, bits: u32) -> __m512i =
            _mm512_sll_epi32(a, _mm_cvtsi32_si128(bits as i32));
        add_i(a: __m512i, b: __m512i) -> __m512i = _mm512_add_epi32(a, b);
        sub_i(a: __m512i, b: __m512i) -> __m512i = _mm512_sub_epi32(a, b);
        mul_i(a: __m512i, b: __m512i) -> __m512i = _mm512_mullo_epi32(a, b);
        dot16(acc: __m512i, a: __m512i, b: __m512i) -> __m512i = _mm512_dpwssd_epi32(acc, a, b);
        dot_bytes(sums: [__m512i; 2], codes: __m512i, high: __m512i, low: __m512i) -> [__m512i; 2] = [
            _mm512_dpbusd_epi32(sums[0], codes, high),
            _mm512_dpbusd_epi32(sums[1], codes, low),
        ];
        fold_bytes(acc: __m512i, sums: [__m512i; 2]) -> __m512i = _mm512_add_epi32(
            acc,
            _mm512_add_epi32(_mm512_slli_epi32::<8>(sums[0]), sums[1]),
        );
        prefetch(p: *const u8) -> () = _mm_prefetch::<_MM_HINT_T0>(p.cast());
    }

    #[inline(always)]
    unsafe fn load_f8<const DIGITS: u32>(p: *const u8) -> __m512 {
        // SAFETY: the caller gives 16 readable bytes; the features are there.
        unsafe { _mm512_cvtph_ps(widen_f8::<DIGITS>(p)) }
    }
    #[inline(always)]
    unsafe fn swap<const N: usize>(a: __m512) -> __m512 {
        // SAFETY: the features are there (trait contract).
        unsafe {
            match N {
                2 => _mm512_permute_ps::<0b01_00_11_10>(a),
                4 => _mm512_shuffle_f32x4::<0b10_11_00_01>(a, a),
                _ => _mm512_shuffle_f32x4::<0b01_00_11_10>(a, a),
            }
        }
    }
    #[inline(always)]
    unsafe fn shr<const N: i32>(a: __m512i) -> __m512i {
        // SAFETY: the features are there (trait contract).
        unsafe { _mm512_srl_epi32(a, _mm_cvtsi32_si128(N)) }
    }
    #[inline(always)]
    unsafe fn shl<const N: i32>(a: __m512i) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_sll_epi32(a, _mm_cvtsi32_si128(N)) }
    }
    #[inline(always)]
    unsafe fn shr16<const N: i32>(a: __m512i) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_srl_epi16(a, _mm_cvtsi32_si128(N)) }
    }
}
