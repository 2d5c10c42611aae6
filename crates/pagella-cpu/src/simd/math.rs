//! Elementary functions on vectors: one polynomial each, the same bits on every level.

use super::Simd;

/// Below this `exp` is 0; it keeps 2ⁿ a normal number.
const EXP_MIN: f32 = -87.3;
/// Above this the result is clamped; it keeps 2ⁿ finite.
const EXP_MAX: f32 = 88.7;

/// `eˣ` within 1 ulp on [−87.3, 88.7]; 0 below, clamped above; NaN gives NaN... never a trap.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
pub(crate) unsafe fn exp<S: Simd>(x: S::F) -> S::F {
    // SAFETY: register operations of the level the caller is compiled for.
    unsafe {
        let clamped = S::max(S::min(S::splat(EXP_MAX), x), S::splat(EXP_MIN));
        let n = S::round_i(S::mul(clamped, S::splat(std::f32::consts::LOG2_E)));
        let nf = S::to_f(n);
        // ln 2 in two parts, so that n · ln 2 is exact to well below one ulp.
        let r = S::fnma(nf, S::splat(0.693_359_4), clamped);
        let r = S::fnma(nf, S::splat(-2.121_944_4e-4), r);
        let mut p = S::splat(1.0 / 5040.0);
        for c in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
            p = S::fma(p, r, S::splat(c));
        }
        let two_n = S::bits_f(S::shl::<23>(S::add_i(n, S::splat_i(127))));
        let y = S::mul(p, two_n);
        S::select_lt(x, S::splat(EXP_MIN), S::splat(0.0), y)
    }
}
