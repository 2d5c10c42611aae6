//! The last, partly filled vector of a row.

use crate::simd::{LANES, Simd};

/// Loads `n` elements, at most 16; missing lanes are `fill`.
///
/// # Safety
/// As for [`Simd`]; `p` points to `n` readable elements.
#[inline(always)]
pub(crate) unsafe fn load_part<S: Simd>(p: *const f32, n: usize, fill: f32) -> S::F {
    // SAFETY: full vectors are read in place, the others through a buffer of 16 elements.
    unsafe {
        if n >= LANES {
            return S::load(p);
        }
        let mut lanes = [fill; LANES];
        std::ptr::copy_nonoverlapping(p, lanes.as_mut_ptr(), n);
        S::load(lanes.as_ptr())
    }
}

/// Stores the first `n` lanes, at most 16.
///
/// # Safety
/// As for [`Simd`]; `p` points to `n` writable elements.
#[inline(always)]
pub(crate) unsafe fn store_part<S: Simd>(p: *mut f32, n: usize, v: S::F) {
    // SAFETY: as for `load_part`.
    unsafe {
        if n >= LANES {
            return S::store(p, v);
        }
        let mut lanes = [0.0; LANES];
        S::store(lanes.as_mut_ptr(), v);
        std::ptr::copy_nonoverlapping(lanes.as_ptr(), p, n);
    }
}

/// Loads `n` binary16 elements, at most 16; missing lanes are 0.
///
/// # Safety
/// As for [`Simd`]; `p` points to `n` readable elements.
#[inline(always)]
pub(crate) unsafe fn load_part_f16<S: Simd>(p: *const u16, n: usize) -> S::F {
    // SAFETY: as for `load_part`.
    unsafe {
        if n >= LANES {
            return S::load_f16(p);
        }
        S::load_f16(widened_part(p, n).as_ptr())
    }
}

/// Loads `n` bfloat16 elements, at most 16; missing lanes are 0.
///
/// # Safety
/// As for [`Simd`]; `p` points to `n` readable elements.
#[inline(always)]
pub(crate) unsafe fn load_part_bf16<S: Simd>(p: *const u16, n: usize) -> S::F {
    // SAFETY: as for `load_part`.
    unsafe {
        if n >= LANES {
            return S::load_bf16(p);
        }
        S::load_bf16(widened_part(p, n).as_ptr())
    }
}

/// `n` elements and zeros; `p` may be unaligned.
///
/// # Safety
/// `n` is at most 16 and `p` points to `n` readable elements.
#[inline(always)]
unsafe fn widened_part(p: *const u16, n: usize) -> [u16; LANES] {
    let mut lanes = [0u16; LANES];
    // SAFETY: as promised by the caller; bytes need no alignment.
    unsafe { std::ptr::copy_nonoverlapping(p.cast::<u8>(), lanes.as_mut_ptr().cast(), 2 * n) };
    lanes
}

/// Narrows and stores the first `n` lanes, at most 16.
///
/// # Safety
/// As for [`Simd`]; `p` points to `n` writable elements.
#[inline(always)]
pub(crate) unsafe fn store_part_f16<S: Simd>(p: *mut u16, n: usize, v: S::F) {
    // SAFETY: as for `load_part`.
    unsafe {
        if n >= LANES {
            return S::store_f16(p, v);
        }
        let mut lanes = [0u16; LANES];
        S::store_f16(lanes.as_mut_ptr(), v);
        std::ptr::copy_nonoverlapping(lanes.as_ptr(), p, n);
    }
}
