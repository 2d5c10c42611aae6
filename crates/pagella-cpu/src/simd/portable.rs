//! The portable level: plain arrays, also the reference of the others.

use super::{LANES, Simd};

/// Arrays of 16.
///
/// What is sixteen calls, or dozens of instructions outside of the hottest loops, is a function of its
/// own: written out in every kernel it is no faster and takes long to compile.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

type F = [f32; LANES];
type I = [i32; LANES];

#[inline(always)]
fn map(a: F, f: impl Fn(f32) -> f32) -> F {
    std::array::from_fn(|i| f(a[i]))
}

#[inline(always)]
fn zip(a: F, b: F, f: impl Fn(f32, f32) -> f32) -> F {
    std::array::from_fn(|i| f(a[i], b[i]))
}

#[inline(always)]
fn map_i(a: I, f: impl Fn(i32) -> i32) -> I {
    std::array::from_fn(|i| f(a[i]))
}

#[inline(always)]
fn zip_i(a: I, b: I, f: impl Fn(i32, i32) -> i32) -> I {
    std::array::from_fn(|i| f(a[i], b[i]))
}

#[inline(always)]
fn halves(x: i32) -> (i16, i16) {
    (x as i16, (x >> 16) as i16)
}

impl Simd for Portable {
    type F = F;
    type I = I;
    type Table = F;
    const GEMM_ROWS: usize = 4;
    const REGISTERS: usize = 16;
    const WIDE_TILES: [usize; 3] = [1; 3];

    const BYTE_BITS_MAX: [u8; 3] = [0; 3];

    #[inline(always)]
    fn byte_quads(_: u8) -> usize {
        usize::MAX
    }

    #[inline(always)]
    unsafe fn splat(x: f32) -> F {
        [x; LANES]
    }
    #[inline(always)]
    unsafe fn splat_halves(low: f32, high: f32) -> F {
        std::array::from_fn(|i| if i < LANES / 2 { low } else { high })
    }
    #[inline(always)]
    unsafe fn low_halves(a: F, b: F) -> F {
        std::array::from_fn(|i| if i < LANES / 2 { a[i] } else { b[i - LANES / 2] })
    }
    #[inline(always)]
    unsafe fn high_halves(a: F, b: F) -> F {
        std::array::from_fn(|i| if i < LANES / 2 { a[i + LANES / 2] } else { b[i] })
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> F {
        // SAFETY: the caller gives 16 readable elements.
        unsafe { p.cast::<F>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: F) {
        // SAFETY: the caller gives 16 writable elements.
        unsafe { p.cast::<F>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn table(p: *const f32) -> F {
        // SAFETY: the caller gives 16 readable elements.
        unsafe { Self::load(p) }
    }
    #[inline(never)]
    unsafe fn lookup(table: F, codes: I) -> F {
        std::array::from_fn(|i| table[codes[i] as usize & 15])
    }
    #[inline(never)]
    unsafe fn load_f16(p: *const u16) -> F {
        // SAFETY: the caller gives 16 readable elements.
        let bits = unsafe { p.cast::<[u16; LANES]>().read_unaligned() };
        std::array::from_fn(|i| half::f16::from_bits(bits[i]).to_f32())
    }
    #[inline(never)]
    unsafe fn store_f16(p: *mut u16, v: F) {
        let bits: [u16; LANES] = std::array::from_fn(|i| half::f16::from_f32(v[i]).to_bits());
        // SAFETY: the caller gives 16 writable elements.
        unsafe { p.cast::<[u16; LANES]>().write_unaligned(bits) }
    }
    #[inline(never)]
    unsafe fn load_bf16(p: *const u16) -> F {
        // SAFETY: the caller gives 16 readable elements.
        let bits = unsafe { p.cast::<[u16; LANES]>().read_unaligned() };
        std::array::from_fn(|i| f32::from_bits(u32::from(bits[i]) << 16))
    }
    #[inline(always)]
    unsafe fn add(a: F, b: F) -> F {
        zip(a, b, |x, y| x + y)
    }
    #[inline(always)]
    unsafe fn sub(a: F, b: F) -> F {
        zip(a, b, |x, y| x - y)
    }
    #[inline(always)]
    unsafe fn mul(a: F, b: F) -> F {
        zip(a, b, |x, y| x * y)
    }
    #[inline(never)]
    unsafe fn div(a: F, b: F) -> F {
        zip(a, b, |x, y| x / y)
    }
    #[inline(never)]
    unsafe fn fma(a: F, b: F, c: F) -> F {
        std::array::from_fn(|i| a[i].mul_add(b[i], c[i]))
    }
    #[inline(never)]
    unsafe fn fnma(a: F, b: F, c: F) -> F {
        std::array::from_fn(|i| (-a[i]).mul_add(b[i], c[i]))
    }
    #[inline(never)]
    unsafe fn max(a: F, b: F) -> F {
        zip(a, b, |x, y| if x > y { x } else { y })
    }
    #[inline(never)]
    unsafe fn min(a: F, b: F) -> F {
        zip(a, b, |x, y| if x < y { x } else { y })
    }
    #[inline(always)]
    unsafe fn abs(a: F) -> F {
        map(a, f32::abs)
    }
    #[inline(never)]
    unsafe fn select_lt(a: F, b: F, yes: F, no: F) -> F {
        std::array::from_fn(|i| if a[i] < b[i] { yes[i] } else { no[i] })
    }
    #[inline(never)]
    unsafe fn round_i(a: F) -> I {
        std::array::from_fn(|i| a[i].round_ties_even() as i32)
    }
    #[inline(always)]
    unsafe fn to_f(a: I) -> F {
        std::array::from_fn(|i| a[i] as f32)
    }
    #[inline(always)]
    unsafe fn bits_f(a: I) -> F {
        std::array::from_fn(|i| f32::from_bits(a[i] as u32))
    }
    #[inline(always)]
    unsafe fn splat_i(x: i32) -> I {
        [x; LANES]
    }
    #[inline(always)]
    unsafe fn load_i(p: *const u32) -> I {
        // SAFETY: the caller gives 16 readable elements.
        unsafe { p.cast::<I>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store_i(p: *mut i32, v: I) {
        // SAFETY: the caller gives 16 writable elements.
        unsafe { p.cast::<I>().write_unaligned(v) }
    }
    #[inline(never)]
    unsafe fn load_u8(p: *const u8) -> I {
        // SAFETY: the caller gives 16 readable bytes.
        let bytes = unsafe { p.cast::<[u8; LANES]>().read_unaligned() };
        std::array::from_fn(|i| i32::from(bytes[i]))
    }
    #[inline(always)]
    unsafe fn and(a: I, b: I) -> I {
        zip_i(a, b, |x, y| x & y)
    }
    #[inline(always)]
    unsafe fn or(a: I, b: I) -> I {
        zip_i(a, b, |x, y| x | y)
    }
    #[inline(always)]
    unsafe fn xor(a: I, b: I) -> I {
        zip_i(a, b, |x, y| x ^ y)
    }
    #[inline(never)]
    unsafe fn sum_bytes(a: I) -> I {
        map_i(a, |x| x.to_le_bytes().into_iter().map(i32::from).sum())
    }
    #[inline(always)]
    unsafe fn shr_by(a: I, bits: u32) -> I {
        map_i(a, |x| (x as u32 >> bits) as i32)
    }
    #[inline(always)]
    unsafe fn shl_by(a: I, bits: u32) -> I {
        map_i(a, |x| x << bits)
    }
    #[inline(always)]
    unsafe fn add_i(a: I, b: I) -> I {
        zip_i(a, b, i32::wrapping_add)
    }
    #[inline(always)]
    unsafe fn sub_i(a: I, b: I) -> I {
        zip_i(a, b, i32::wrapping_sub)
    }
    #[inline(never)]
    unsafe fn mul_i(a: I, b: I) -> I {
        zip_i(a, b, i32::wrapping_mul)
    }
    #[inline(always)]
    unsafe fn swap<const N: usize>(a: F) -> F {
        std::array::from_fn(|i| a[i ^ N])
    }
    #[inline(always)]
    unsafe fn shr<const N: i32>(a: I) -> I {
        map_i(a, |x| ((x as u32) >> N) as i32)
    }
    #[inline(always)]
    unsafe fn shl<const N: i32>(a: I) -> I {
        map_i(a, |x| x << N)
    }
    #[inline(always)]
    unsafe fn shr16<const N: i32>(a: I) -> I {
        let mask = (0xFFFFu32 >> N) | ((0xFFFFu32 >> N) << 16);
        map_i(a, |x| (((x as u32) >> N) & mask) as i32)
    }
    #[inline(always)]
    unsafe fn dot16(acc: I, a: I, b: I) -> I {
        std::array::from_fn(|i| {
            let ((a0, a1), (b0, b1)) = (halves(a[i]), halves(b[i]));
            let pair = (i32::from(a0) * i32::from(b0)).wrapping_add(i32::from(a1) * i32::from(b1));
            acc[i].wrapping_add(pair)
        })
    }
    #[inline(never)]
    unsafe fn dot_bytes(sums: [I; 2], codes: I, high: I, low: I) -> [I; 2] {
        let add = |sum: I, x: I| -> I {
            std::array::from_fn(|i| {
                let products = codes[i].to_le_bytes().into_iter().zip(x[i].to_le_bytes());
                let of = |(code, x): (u8, u8)| i32::from(code) * i32::from(x.cast_signed());
                sum[i].wrapping_add(products.map(of).sum())
            })
        };
        [add(sums[0], high), add(sums[1], low)]
    }
    #[inline(always)]
    unsafe fn fold_bytes(acc: I, sums: [I; 2]) -> I {
        let of = |i: usize| (sums[0][i] << 8).wrapping_add(sums[1][i]).wrapping_add(acc[i]);
        std::array::from_fn(of)
    }
    #[inline(always)]
    unsafe fn prefetch(_: *const u8) {}
}
