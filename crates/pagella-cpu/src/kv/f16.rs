//! Elements of binary16.

use super::narrow::Narrow;
use crate::ops::lanes::store_part_f16;
use crate::simd::Simd;

impl Narrow for u16 {
    #[inline(always)]
    fn from_half(bits: u16) -> Self {
        bits
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(p: *const u16) -> S::F {
        // SAFETY: passed on to the caller.
        unsafe { S::load_f16(p) }
    }

    #[inline(always)]
    unsafe fn store_part<S: Simd>(p: *mut u16, n: usize, v: S::F) {
        // SAFETY: passed on to the caller.
        unsafe { store_part_f16::<S>(p, n, v) };
    }
}
