//! Elementary functions on vectors: one formula each, the same bits on every level.
//!
//! NaN always comes out as NaN: a broken activation must stay visible. Polynomials are minimax
//! fits evaluated with `fma` from the highest coefficient down.

use super::Simd;

/// Below this `exp` is 0; it keeps 2ⁿ a normal number.
const EXP_MIN: f32 = -87.3;
/// Arguments are clamped here; 2ⁿ is already infinite.
const EXP_MAX: f32 = 88.7;
/// `tanh` uses its polynomial below this and `exp` above.
const TANH_SMALL: f32 = 0.625;
/// `erf` uses its polynomial below this and `exp` above.
const ERF_SMALL: f32 = 1.0;
/// `erfc` is 0 beyond this: less than half an ulp of `1 + erf`.
const ERF_LARGE: f32 = 4.0;

/// `(tanh x − x) / x³` in x², highest coefficient first; error 1.6e-9 on [0, 0.625²].
const TANH: [f32; 6] =
    [0.002_292_744_8, -0.008_343_945, 0.021_768_918, -0.053_959_258, 0.133_333_04, -0.333_333_34];
/// `erf x / x` in x²; error 1.3e-9 on [0, 1].
const ERF: [f32; 7] = [
    7.875_875e-5,
    -8.016_864e-4,
    0.005_189_087,
    -0.026_854_211,
    0.112_835_94,
    -0.376_126_26,
    std::f32::consts::FRAC_2_SQRT_PI,
];
/// `ln erfc x` in x; error 1.7e-8 on [1, 4].
const LN_ERFC: [f32; 9] = [
    1.637_151_4e-6,
    -4.605_804e-5,
    5.968_057e-4,
    -0.004_759_596,
    0.026_421_135,
    -0.110_080_086,
    -0.631_826_04,
    -1.130_233_4,
    3.201_380_6e-4,
];

/// Horner's rule, highest coefficient first.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
unsafe fn horner<S: Simd, const N: usize>(x: S::F, coefficients: &[f32; N]) -> S::F {
    // SAFETY: register operations of the level the caller is compiled for.
    unsafe {
        let mut p = S::splat(coefficients[0]);
        for &c in &coefficients[1..] {
            p = S::fma(p, x, S::splat(c));
        }
        p
    }
}

/// `eˣ` within 1 ulp on [−87.3, 88.37]; 0 below, infinite above.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
pub(crate) unsafe fn exp<S: Simd>(x: S::F) -> S::F {
    // SAFETY: register operations of the level the caller is compiled for.
    unsafe {
        // Both keep their second operand when it is NaN. The integer a NaN rounds to differs
        // between levels, but the polynomial of a NaN is NaN whatever it is multiplied with.
        let clamped = S::max(S::splat(EXP_MIN), S::min(S::splat(EXP_MAX), x));
        let n = S::round_i(S::mul(clamped, S::splat(std::f32::consts::LOG2_E)));
        let nf = S::to_f(n);
        // ln 2 in two parts; the first has so few bits that n · ln 2 is exact.
        let r = S::fnma(nf, S::splat(0.693_359_4), clamped);
        let r = S::fnma(nf, S::splat(-2.121_944_4e-4), r);
        const TAYLOR: [f32; 8] =
            [1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0];
        let p = horner::<S, 8>(r, &TAYLOR);
        let two_n = S::bits_f(S::shl::<23>(S::add_i(n, S::splat_i(127))));
        S::select_lt(x, S::splat(EXP_MIN), S::splat(0.0), S::mul(p, two_n))
    }
}

/// `1 + e⁻ˣ`, the divisor of every sigmoid.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
unsafe fn one_plus_exp_neg<S: Simd>(x: S::F) -> S::F {
    // SAFETY: register operations of the level the caller is compiled for.
    unsafe { S::add(S::splat(1.0), exp::<S>(S::sub(S::splat(0.0), x))) }
}

/// `1 / (1 + e⁻ˣ)`.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
pub(crate) unsafe fn sigmoid<S: Simd>(x: S::F) -> S::F {
    // SAFETY: register operations of the level the caller is compiled for.
    unsafe { S::div(S::splat(1.0), one_plus_exp_neg::<S>(x)) }
}

/// `x · sigmoid(x)`.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
pub(crate) unsafe fn silu<S: Simd>(x: S::F) -> S::F {
    // SAFETY: register operations of the level the caller is compiled for.
    unsafe { S::div(x, one_plus_exp_neg::<S>(x)) }
}

/// `x · sigmoid(1.702 x)`.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
pub(crate) unsafe fn quick_gelu<S: Simd>(x: S::F) -> S::F {
    // SAFETY: register operations of the level the caller is compiled for.
    unsafe { S::div(x, one_plus_exp_neg::<S>(S::mul(x, S::splat(1.702)))) }
}

/// GELU, tanh form: `x/2 · (1 + tanh u) = x · sigmoid(2u)` with `u = √(2/π) (x + 0.044715 x³)`.
/// The sigmoid does not cancel for negative x.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
pub(crate) unsafe fn gelu_tanh<S: Simd>(x: S::F) -> S::F {
    const TWO_SQRT_2_OVER_PI: f32 = 1.595_769;
    const CUBIC: f32 = 0.044_715 * TWO_SQRT_2_OVER_PI;
    // SAFETY: register operations of the level the caller is compiled for.
    unsafe {
        let factor = S::fma(S::mul(x, x), S::splat(CUBIC), S::splat(TWO_SQRT_2_OVER_PI));
        S::div(x, one_plus_exp_neg::<S>(S::mul(x, factor)))
    }
}

/// GELU, exact form: `x/2 · (1 + erf(x / √2))`.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
pub(crate) unsafe fn gelu_erf<S: Simd>(x: S::F) -> S::F {
    // SAFETY: register operations of the level the caller is compiled for.
    unsafe {
        let u = S::mul(x, S::splat(std::f32::consts::FRAC_1_SQRT_2));
        S::mul(S::mul(x, S::splat(0.5)), one_plus_erf::<S>(u))
    }
}

/// `1 + erf x`, within 1.5e-7; near 0 for negative x as `erfc` of the opposite.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
unsafe fn one_plus_erf<S: Simd>(x: S::F) -> S::F {
    // SAFETY: register operations of the level the caller is compiled for.
    unsafe {
        let size = S::abs(x);
        let small = S::fma(x, horner::<S, 7>(S::mul(x, x), &ERF), S::splat(1.0));
        let erfc = exp::<S>(horner::<S, 9>(size, &LN_ERFC));
        let erfc = S::select_lt(S::splat(ERF_LARGE), size, S::splat(0.0), erfc);
        let large = S::select_lt(x, S::splat(0.0), erfc, S::sub(S::splat(2.0), erfc));
        S::select_lt(size, S::splat(ERF_SMALL), small, large)
    }
}

/// Hyperbolic tangent, within 2 ulp.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
pub(crate) unsafe fn tanh<S: Simd>(x: S::F) -> S::F {
    // SAFETY: register operations of the level the caller is compiled for.
    unsafe {
        let size = S::abs(x);
        let z = S::mul(x, x);
        let small = S::fma(S::mul(x, z), horner::<S, 6>(z, &TANH), x);
        let e = exp::<S>(S::add(size, size));
        let large = S::sub(S::splat(1.0), S::div(S::splat(2.0), S::add(e, S::splat(1.0))));
        let large = S::select_lt(x, S::splat(0.0), S::sub(S::splat(0.0), large), large);
        S::select_lt(size, S::splat(TANH_SMALL), small, large)
    }
}

/// `max(x, 0)²`.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
pub(crate) unsafe fn relu2<S: Simd>(x: S::F) -> S::F {
    // SAFETY: register operations of the level the caller is compiled for.
    unsafe {
        let positive = S::max(S::splat(0.0), x);
        S::mul(positive, positive)
    }
}

/// `cap · tanh(x / cap)`.
///
/// # Safety
/// As for [`Simd`].
#[inline(always)]
pub(crate) unsafe fn softcap<S: Simd>(x: S::F, cap: S::F) -> S::F {
    // SAFETY: register operations of the level the caller is compiled for.
    unsafe { S::mul(cap, tanh::<S>(S::div(x, cap))) }
}
