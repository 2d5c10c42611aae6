//! NEON: four registers per vector.

use std::arch::aarch64::*;

use super::{Kernel, LANES, Simd};

/// Four 128-bit registers, low lanes first.
#[derive(Clone, Copy)]
pub(crate) struct Neon;

type F = [float32x4_t; 4];
type I = [int32x4_t; 4];

/// Runs a kernel compiled for this level.
///
/// # Safety
/// The CPU must have NEON.
#[target_feature(enable = "neon")]
pub(crate) unsafe fn enter<K: Kernel>(kernel: K) -> K::Out {
    // SAFETY: the caller vouches for the feature; `Isa::run` is the only caller.
    unsafe { kernel.run::<Neon>() }
}

/// Lifts an intrinsic to all four registers.
macro_rules! each {
    ($($name:ident($($arg:ident: $ty:ident),*) -> $out:ident = |$($x:ident),*| $body:expr;)*) => {$(
        #[inline(always)]
        unsafe fn $name($($arg: $ty),*) -> $out {
            // SAFETY: NEON is there (trait contract).
            unsafe {
                [
                    { $(let $x = $arg[0];)* $body },
                    { $(let $x = $arg[1];)* $body },
                    { $(let $x = $arg[2];)* $body },
                    { $(let $x = $arg[3];)* $body },
                ]
            }
        }
    )*};
}

impl Simd for Neon {
    type F = F;
    type I = I;
    type Table = uint8x16x4_t;
    const GEMM_ROWS: usize = 6;
    const REGISTERS: usize = 4;
    const WIDE_TILES: [usize; 3] = [2, 1, 1];
    /// Two products of wider codes would not fit 16 bits, and those codes no signed byte.
    const BYTE_BITS_MAX: [u8; 3] = [6, 0, 0];

    #[inline(always)]
    fn byte_quads(_: u8) -> usize {
        usize::MAX
    }

    each! {
        add(a: F, b: F) -> F = |a, b| vaddq_f32(a, b);
        sub(a: F, b: F) -> F = |a, b| vsubq_f32(a, b);
        mul(a: F, b: F) -> F = |a, b| vmulq_f32(a, b);
        div(a: F, b: F) -> F = |a, b| vdivq_f32(a, b);
        fma(a: F, b: F, c: F) -> F = |a, b, c| vfmaq_f32(c, a, b);
        fnma(a: F, b: F, c: F) -> F = |a, b, c| vfmsq_f32(c, a, b);
        max(a: F, b: F) -> F = |a, b| vbslq_f32(vcgtq_f32(a, b), a, b);
        min(a: F, b: F) -> F = |a, b| vbslq_f32(vcltq_f32(a, b), a, b);
        abs(a: F) -> F = |a| vabsq_f32(a);
        select_lt(a: F, b: F, yes: F, no: F) -> F = |a, b, y, n| vbslq_f32(vcltq_f32(a, b), y, n);
        round_i(a: F) -> I = |a| vcvtnq_s32_f32(a);
        to_f(a: I) -> F = |a| vcvtq_f32_s32(a);
        bits_f(a: I) -> F = |a| vreinterpretq_f32_s32(a);
        and(a: I, b: I) -> I = |a, b| vandq_s32(a, b);
        or(a: I, b: I) -> I = |a, b| vorrq_s32(a, b);
        xor(a: I, b: I) -> I = |a, b| veorq_s32(a, b);
        sum_bytes(a: I) -> I = |a| {
            vreinterpretq_s32_u32(vpaddlq_u16(vpaddlq_u8(vreinterpretq_u8_s32(a))))
        };
        add_i(a: I, b: I) -> I = |a, b| vaddq_s32(a, b);
        sub_i(a: I, b: I) -> I = |a, b| vsubq_s32(a, b);
        mul_i(a: I, b: I) -> I = |a, b| vmulq_s32(a, b);
        dot16(acc: I, a: I, b: I) -> I = |acc, a, b| {
            let (a, b) = (vreinterpretq_s16_s32(a), vreinterpretq_s16_s32(b));
            let low = vmull_s16(vget_low_s16(a), vget_low_s16(b));
            let high = vmull_high_s16(a, b);
            vaddq_s32(acc, vpaddq_s32(low, high))
        };
    }

    #[inline(always)]
    unsafe fn splat(x: f32) -> F {
        // SAFETY: NEON is there (trait contract).
        unsafe { [vdupq_n_f32(x); 4] }
    }
    #[inline(always)]
    unsafe fn splat_halves(low: f32, high: f32) -> F {
        // SAFETY: NEON is there (trait contract).
        unsafe {
            let (low, high) = (vdupq_n_f32(low), vdupq_n_f32(high));
            [low, low, high, high]
        }
    }
    #[inline(always)]
    unsafe fn low_halves(a: F, b: F) -> F {
        [a[0], a[1], b[0], b[1]]
    }
    #[inline(always)]
    unsafe fn high_halves(a: F, b: F) -> F {
        [a[2], a[3], b[2], b[3]]
    }
    #[inline(always)]
    unsafe fn shr_by(a: I, bits: u32) -> I {
        // SAFETY: NEON is there (trait contract).
        unsafe {
            let n = vdupq_n_s32(-(bits as i32));
            a.map(|v| vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(v), n)))
        }
    }
    #[inline(always)]
    unsafe fn shl_by(a: I, bits: u32) -> I {
        // SAFETY: NEON is there (trait contract).
        unsafe {
            let n = vdupq_n_s32(bits as i32);
            a.map(|v| vshlq_s32(v, n))
        }
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> F {
        // SAFETY: the caller gives 16 readable elements.
        unsafe { [vld1q_f32(p), vld1q_f32(p.add(4)), vld1q_f32(p.add(8)), vld1q_f32(p.add(12))] }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: F) {
        // SAFETY: the caller gives 16 writable elements.
        unsafe {
            vst1q_f32(p, v[0]);
            vst1q_f32(p.add(4), v[1]);
            vst1q_f32(p.add(8), v[2]);
            vst1q_f32(p.add(12), v[3]);
        }
    }
    #[inline(always)]
    unsafe fn table(p: *const f32) -> uint8x16x4_t {
        // SAFETY: the caller gives 16 readable elements.
        unsafe { vld1q_u8_x4(p.cast()) }
    }
    #[inline(always)]
    unsafe fn lookup(table: uint8x16x4_t, codes: I) -> F {
        // SAFETY: NEON is there (trait contract).
        unsafe {
            let (four, bytes) = (vdupq_n_s32(0x0404_0404), vdupq_n_s32(0x0302_0100));
            codes.map(|codes| {
                let code = vandq_s32(codes, vdupq_n_s32(15));
                let bytes = vmlaq_s32(bytes, code, four);
                vreinterpretq_f32_u8(vqtbl4q_u8(table, vreinterpretq_u8_s32(bytes)))
            })
        }
    }
    #[inline(always)]
    unsafe fn load_f16(p: *const u16) -> F {
        // Half-precision vector types are not stable in Rust; the scalar conversion compiles to
        // the hardware one.
        // SAFETY: the caller gives 16 readable elements; NEON is there.
        unsafe {
            let bits = p.cast::<[u16; LANES]>().read_unaligned();
            let wide: [f32; LANES] =
                std::array::from_fn(|i| half::f16::from_bits(bits[i]).to_f32());
            Self::load(wide.as_ptr())
        }
    }
    #[inline(always)]
    unsafe fn store_f16(p: *mut u16, v: F) {
        // SAFETY: the caller gives 16 writable elements; NEON is there.
        unsafe {
            let mut wide = [0.0f32; LANES];
            Self::store(wide.as_mut_ptr(), v);
            let bits: [u16; LANES] =
                std::array::from_fn(|i| half::f16::from_f32(wide[i]).to_bits());
            p.cast::<[u16; LANES]>().write_unaligned(bits);
        }
    }
    #[inline(always)]
    unsafe fn load_bf16(p: *const u16) -> F {
        // SAFETY: the caller gives 16 readable elements; NEON is there.
        unsafe {
            let (a, b) = (vld1q_u16(p), vld1q_u16(p.add(8)));
            [
                vreinterpretq_f32_u32(vshll_n_u16::<16>(vget_low_u16(a))),
                vreinterpretq_f32_u32(vshll_n_u16::<16>(vget_high_u16(a))),
                vreinterpretq_f32_u32(vshll_n_u16::<16>(vget_low_u16(b))),
                vreinterpretq_f32_u32(vshll_n_u16::<16>(vget_high_u16(b))),
            ]
        }
    }
    #[inline(always)]
    unsafe fn splat_i(x: i32) -> I {
        // SAFETY: NEON is there (trait contract).
        unsafe { [vdupq_n_s32(x); 4] }
    }
    #[inline(always)]
    unsafe fn load_i(p: *const u32) -> I {
        let p = p.cast::<i32>();
        // SAFETY: the caller gives 16 readable elements.
        unsafe { [vld1q_s32(p), vld1q_s32(p.add(4)), vld1q_s32(p.add(8)), vld1q_s32(p.add(12))] }
    }
    #[inline(always)]
    unsafe fn store_i(p: *mut i32, v: I) {
        // SAFETY: the caller gives 16 writable elements.
        unsafe {
            vst1q_s32(p, v[0]);
            vst1q_s32(p.add(4), v[1]);
            vst1q_s32(p.add(8), v[2]);
            vst1q_s32(p.add(12), v[3]);
        }
    }
    #[inline(always)]
    unsafe fn load_u8(p: *const u8) -> I {
        // SAFETY: the caller gives 16 readable bytes.
        unsafe {
            let bytes = vld1q_u8(p);
            let (a, b) = (vmovl_u8(vget_low_u8(bytes)), vmovl_u8(vget_high_u8(bytes)));
            [
                vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(a))),
                vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(a))),
                vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(b))),
                vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(b))),
            ]
        }
    }
    #[inline(always)]
    unsafe fn swap<const N: usize>(a: F) -> F {
        // SAFETY: NEON is there (trait contract).
        unsafe {
            match N {
                2 => a.map(|v| vextq_f32::<2>(v, v)),
                4 => [a[1], a[0], a[3], a[2]],
                _ => [a[2], a[3], a[0], a[1]],
            }
        }
    }
    #[inline(always)]
    unsafe fn shr<const N: i32>(a: I) -> I {
        // SAFETY: NEON is there (trait contract).
        unsafe {
            let n = vdupq_n_s32(-N);
            a.map(|v| vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(v), n)))
        }
    }
    #[inline(always)]
    unsafe fn shl<const N: i32>(a: I) -> I {
        // SAFETY: as above.
        unsafe {
            let n = vdupq_n_s32(N);
            a.map(|v| vshlq_s32(v, n))
        }
    }
    #[inline(always)]
    unsafe fn shr16<const N: i32>(a: I) -> I {
        // SAFETY: as above.
        unsafe {
            let n = vdupq_n_s16(-(N as i16));
            a.map(|v| vreinterpretq_s32_u16(vshlq_u16(vreinterpretq_u16_s32(v), n)))
        }
    }
    /// Codes fit signed bytes here, see `BYTE_BITS_MAX`, and two products 16 bits.
    #[inline(always)]
    unsafe fn dot_bytes(sums: [I; 2], codes: I, high: I, low: I) -> [I; 2] {
        // SAFETY: NEON is there (trait contract).
        unsafe {
            let add = |sum: int32x4_t, codes: int32x4_t, x: int32x4_t| {
                let (codes, x) = (vreinterpretq_s8_s32(codes), vreinterpretq_s8_s32(x));
                let first = vmull_s8(vget_low_s8(codes), vget_low_s8(x));
                vpadalq_s16(sum, vpaddq_s16(first, vmull_high_s8(codes, x)))
            };
            [
                std::array::from_fn(|i| add(sums[0][i], codes[i], high[i])),
                std::array::from_fn(|i| add(sums[1][i], codes[i], low[i])),
            ]
        }
    }
    #[inline(always)]
    unsafe fn fold_bytes(acc: I, sums: [I; 2]) -> I {
        // SAFETY: NEON is there (trait contract).
        unsafe {
            let of =
                |i: usize| vaddq_s32(acc[i], vaddq_s32(vshlq_n_s32::<8>(sums[0][i]), sums[1][i]));
            std::array::from_fn(of)
        }
    }
    #[inline(always)]
    unsafe fn prefetch(_: *const u8) {}
}
