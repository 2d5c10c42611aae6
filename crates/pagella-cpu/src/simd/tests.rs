//! Tests of the vector levels: accuracy against f64, and equal bits on all of them.

use super::{Isa, Kernel, LANES, Simd, math};

/// The functions of `math`.
#[derive(Clone, Copy, Debug)]
enum Function {
    Exp,
    Silu,
    QuickGelu,
    GeluTanh,
    GeluErf,
    Tanh,
    Relu2,
    /// With a cap of 30.
    Softcap,
}

const ALL: [Function; 8] = [
    Function::Exp,
    Function::Silu,
    Function::QuickGelu,
    Function::GeluTanh,
    Function::GeluErf,
    Function::Tanh,
    Function::Relu2,
    Function::Softcap,
];

impl Function {
    fn exact(self, x: f64) -> f64 {
        match self {
            Function::Exp => x.exp(),
            Function::Silu => x / (1.0 + (-x).exp()),
            Function::QuickGelu => x / (1.0 + (-f64::from(1.702f32) * x).exp()),
            Function::GeluTanh => {
                let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
                x / (1.0 + (-2.0 * u).exp())
            }
            Function::GeluErf => 0.5 * x * erfc(-x * std::f64::consts::FRAC_1_SQRT_2),
            Function::Tanh => x.tanh(),
            Function::Relu2 => x.max(0.0).powi(2),
            Function::Softcap => 30.0 * (x / 30.0).tanh(),
        }
    }
}

/// Complementary error function: its series below 2.5, a continued fraction above.
fn erfc(x: f64) -> f64 {
    if x < 0.0 {
        return 2.0 - erfc(-x);
    }
    let root_pi = std::f64::consts::PI.sqrt();
    if x < 2.5 {
        let (mut term, mut sum) = (x, x);
        for n in 1..80 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        return 1.0 - 2.0 / root_pi * sum;
    }
    let fraction = (1..80).rev().fold(0.0, |f, n| f64::from(n) / 2.0 / (x + f));
    (-x * x).exp() / root_pi / (x + fraction)
}

struct Apply<'a> {
    function: Function,
    values: &'a mut [[f32; LANES]],
}

impl Kernel for Apply<'_> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        for lanes in self.values {
            // SAFETY: reached through `Isa::run`; `lanes` holds 16 elements.
            unsafe {
                let x = S::load(lanes.as_ptr());
                let y = match self.function {
                    Function::Exp => math::exp::<S>(x),
                    Function::Silu => math::silu::<S>(x),
                    Function::QuickGelu => math::quick_gelu::<S>(x),
                    Function::GeluTanh => math::gelu_tanh::<S>(x),
                    Function::GeluErf => math::gelu_erf::<S>(x),
                    Function::Tanh => math::tanh::<S>(x),
                    Function::Relu2 => math::relu2::<S>(x),
                    Function::Softcap => math::softcap::<S>(x, S::splat(30.0)),
                };
                S::store(lanes.as_mut_ptr(), y);
            }
        }
    }
}

/// Every `stride`-th float between `low` and `high`, in batches of vectors.
fn sweep(low: f32, high: f32, stride: usize, mut check: impl FnMut(&[[f32; LANES]])) {
    let bits = |from: u32, to: u32| (from..=to).step_by(stride).map(f32::from_bits);
    let negative = bits((-0.0f32).to_bits(), low.to_bits()).filter(|_| low < 0.0);
    let all = negative.chain(bits(0, high.to_bits()));
    let mut batch = Vec::with_capacity(1024);
    let mut lanes = [0.0f32; LANES];
    for (i, x) in all.enumerate() {
        lanes[i % LANES] = x;
        if i % LANES == LANES - 1 {
            batch.push(lanes);
            if batch.len() == 1024 {
                check(&batch);
                batch.clear();
            }
        }
    }
    check(&batch);
}

/// Largest value of `error(result, exact, x)` over the sweep, and where it is.
fn worst(
    function: Function,
    (low, high): (f32, f32),
    stride: usize,
    error: impl Fn(f64, f64, f64) -> f64,
) -> (f64, f32) {
    let mut worst = (0.0, 0.0);
    sweep(low, high, stride, |inputs| {
        let mut values = inputs.to_vec();
        Isa::best().run(Apply { function, values: &mut values });
        for (&x, &y) in inputs.as_flattened().iter().zip(values.as_flattened()) {
            let found = error(f64::from(y), function.exact(f64::from(x)), f64::from(x));
            // A NaN must not pass as small.
            if found > worst.0 || found.is_nan() {
                worst = (if found.is_nan() { f64::INFINITY } else { found }, x);
            }
        }
    });
    worst
}

/// Error in units of the last place of an f32 near the exact value.
fn ulps(y: f64, exact: f64, _: f64) -> f64 {
    let exponent = exact.abs().max(f64::from(f32::MIN_POSITIVE)).log2().floor() as i32;
    (y - exact).abs() / 2f64.powi(exponent - 23)
}

#[test]
fn exp_stays_within_one_ulp() {
    let found = worst(Function::Exp, (-87.3, 88.37), 97, ulps);
    assert!(found.0 <= 1.0, "{found:?}");
}

#[test]
fn silu_and_tanh_stay_within_a_few_ulp() {
    for (function, range, cap) in [
        (Function::Silu, (-80.0, 1e4), 2.5),
        (Function::QuickGelu, (-1.0, 1e4), 3.5),
        (Function::Tanh, (-100.0, 100.0), 2.0),
        (Function::Relu2, (-10.0, 1e4), 0.5),
    ] {
        let found = worst(function, range, 97, ulps);
        assert!(found.0 <= cap, "{function:?}: {found:?}");
    }
}

#[test]
fn softcap_stays_within_three_ulp_of_normal_numbers() {
    // A tiny input divided by the cap is subnormal and has lost bits.
    let found = worst(Function::Softcap, (-1e4, 1e4), 97, |y, exact, x| {
        if x.abs() < 1e-30 { (y - exact).abs() } else { ulps(y, exact, x) }
    });
    assert!(found.0 <= 3.0, "{found:?}");
}

#[test]
fn gelu_errors_are_small_against_the_input() {
    // Far in the negative tail a relative error of the exponent is a relative error of a result
    // that is itself close to 0, so the measure is absolute there.
    for function in [Function::QuickGelu, Function::GeluTanh, Function::GeluErf] {
        let found = worst(function, (-100.0, 1e4), 499, |y, exact, x| {
            (y - exact).abs() / x.abs().max(f64::from(f32::MIN_POSITIVE))
        });
        assert!(found.0 <= 2e-7, "{function:?}: {found:?}");
    }
}

#[test]
fn special_values_come_out_as_limits_and_nan_stays_nan() {
    let inf = f32::INFINITY;
    let run = |function, x: f32| {
        let mut values = [[x; LANES]];
        Isa::best().run(Apply { function, values: &mut values });
        values[0][0]
    };
    for function in ALL {
        assert!(run(function, f32::NAN).is_nan(), "{function:?}");
        assert!(run(function, -f32::NAN).is_nan(), "{function:?}");
    }
    assert_eq!(run(Function::Exp, -inf), 0.0);
    assert_eq!(run(Function::Exp, -87.4), 0.0);
    assert_eq!(run(Function::Exp, 0.0), 1.0);
    assert_eq!(run(Function::Exp, inf), inf);
    assert_eq!(run(Function::Tanh, inf), 1.0);
    assert_eq!(run(Function::Tanh, -inf), -1.0);
    assert_eq!(run(Function::Softcap, inf), 30.0);
    assert_eq!(run(Function::GeluErf, inf), inf);
    for function in [Function::Silu, Function::GeluTanh, Function::GeluErf, Function::QuickGelu] {
        assert_eq!(run(function, -1e30), 0.0, "{function:?}");
        assert_eq!(run(function, 1e30), 1e30, "{function:?}");
    }
}

/// Equal bits, any NaN being equal to any other.
#[track_caller]
fn assert_same(what: &str, expected: &[f32], found: &[f32]) {
    for (i, (a, b)) in expected.iter().zip(found).enumerate() {
        assert!(a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()), "{what} [{i}]: {a} {b}");
    }
}

#[test]
fn every_level_computes_the_same_functions() {
    for function in ALL {
        for (low, high) in [(-100.0, 100.0), (-f32::MAX, f32::MAX)] {
            sweep(low, high, 100_003, |inputs| {
                let mut expected = inputs.to_vec();
                Isa::available()[0].run(Apply { function, values: &mut expected });
                for isa in Isa::available() {
                    let mut found = inputs.to_vec();
                    isa.run(Apply { function, values: &mut found });
                    let what = format!("{} {function:?}", isa.name());
                    assert_same(&what, expected.as_flattened(), found.as_flattened());
                }
            });
        }
    }
}

type Named = Vec<(&'static str, [u32; LANES])>;

/// One use of every operation of [`Simd`].
struct Every {
    f: [[f32; LANES]; 3],
    i: [[i32; LANES]; 3],
    halves: [u16; LANES],
    bytes: [u8; LANES],
}

/// # Safety
/// As for [`Simd`].
#[inline(always)]
unsafe fn lanes_f<S: Simd>(v: S::F) -> [u32; LANES] {
    let mut out = [0.0f32; LANES];
    // SAFETY: 16 elements.
    unsafe { S::store(out.as_mut_ptr(), v) };
    // One NaN for all: which one comes out is the CPU's choice.
    out.map(|x| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() })
}

/// # Safety
/// As for [`Simd`].
#[inline(always)]
unsafe fn lanes_i<S: Simd>(v: S::I) -> [u32; LANES] {
    let mut out = [0i32; LANES];
    // SAFETY: 16 elements.
    unsafe { S::store_i(out.as_mut_ptr(), v) };
    out.map(|x| x as u32)
}

impl Kernel for Every {
    type Out = Named;
    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> Named {
        // SAFETY: reached through `Isa::run`; all arrays hold 16 elements.
        unsafe {
            let [a, b, c] = self.f.map(|x| S::load(x.as_ptr()));
            let [i, j, k] = self.i.map(|x| S::load_i(x.as_ptr().cast()));
            let mut narrow = [0u16; LANES];
            S::store_f16(narrow.as_mut_ptr(), a);
            // Only the integers of moderate floats are specified.
            let moderate = S::min(S::max(b, S::splat(-1e9)), S::splat(1e9));
            vec![
                ("add", lanes_f::<S>(S::add(a, b))),
                ("sub", lanes_f::<S>(S::sub(a, b))),
                ("mul", lanes_f::<S>(S::mul(a, b))),
                ("div", lanes_f::<S>(S::div(a, b))),
                ("fma", lanes_f::<S>(S::fma(a, b, c))),
                ("fnma", lanes_f::<S>(S::fnma(a, b, c))),
                ("max", lanes_f::<S>(S::max(a, b))),
                ("min", lanes_f::<S>(S::min(a, b))),
                ("abs", lanes_f::<S>(S::abs(a))),
                ("select_lt", lanes_f::<S>(S::select_lt(a, b, c, a))),
                ("swap 2", lanes_f::<S>(S::swap::<2>(a))),
                ("swap 4", lanes_f::<S>(S::swap::<4>(a))),
                ("swap 8", lanes_f::<S>(S::swap::<8>(a))),
                ("splat", lanes_f::<S>(S::splat(self.f[0][3]))),
                ("round_i", lanes_i::<S>(S::round_i(moderate))),
                ("to_f", lanes_f::<S>(S::to_f(i))),
                ("bits_f", lanes_f::<S>(S::bits_f(i))),
                ("load_f16", lanes_f::<S>(S::load_f16(self.halves.as_ptr()))),
                ("load_bf16", lanes_f::<S>(S::load_bf16(self.halves.as_ptr()))),
                (
                    "store_f16",
                    narrow.map(|h| u32::from(if h & 0x7FFF > 0x7C00 { 0x7E00 } else { h })),
                ),
                ("load_u8", lanes_i::<S>(S::load_u8(self.bytes.as_ptr()))),
                ("splat_i", lanes_i::<S>(S::splat_i(self.i[0][5]))),
                ("and", lanes_i::<S>(S::and(i, j))),
                ("or", lanes_i::<S>(S::or(i, j))),
                ("add_i", lanes_i::<S>(S::add_i(i, j))),
                ("sub_i", lanes_i::<S>(S::sub_i(i, j))),
                ("mul_i", lanes_i::<S>(S::mul_i(i, j))),
                ("shl", lanes_i::<S>(S::shl::<5>(i))),
                ("shr", lanes_i::<S>(S::shr::<3>(i))),
                ("shr16", lanes_i::<S>(S::shr16::<4>(i))),
                ("dot16", lanes_i::<S>(S::dot16(i, j, k))),
                ("byte 0", lanes_i::<S>(S::byte::<0>(i))),
                ("byte 1", lanes_i::<S>(S::byte::<1>(i))),
                ("byte 2", lanes_i::<S>(S::byte::<2>(i))),
                ("byte 3", lanes_i::<S>(S::byte::<3>(i))),
                ("settle", lanes_f::<S>(S::settle(b))),
                ("settle_i", lanes_i::<S>(S::settle_i(k))),
                ("sum", lanes_f::<S>(S::splat(S::sum(b)))),
                ("max_lane", [S::max_lane(moderate).to_bits(); LANES]),
            ]
        }
    }
}

/// A small generator, so that inputs are the same everywhere.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state ^ (*state >> 29)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16
}

#[test]
fn every_level_computes_the_same_operations() {
    let specials =
        [0.0, -0.0, 1.0, -1.0, 65504.0, 65520.0, 6e-8, 1e-40, f32::INFINITY, f32::NAN, 0.5, 1.5];
    let mut state = 7;
    for round in 0..4_000 {
        let float = |state: &mut u64| match random(state) % 4 {
            0 => specials[random(state) as usize % specials.len()],
            1 => f32::from_bits(random(state) as u32),
            _ => (random(state) % 20_001) as f32 / 100.0 - 100.0,
        };
        let f = std::array::from_fn(|_| std::array::from_fn(|_| float(&mut state)));
        let i = std::array::from_fn(|_| std::array::from_fn(|_| random(&mut state) as i32));
        let halves = std::array::from_fn(|_| random(&mut state) as u16);
        let bytes = std::array::from_fn(|_| random(&mut state) as u8);
        let run = |isa: Isa| isa.run(Every { f, i, halves, bytes });
        let expected = run(Isa::available()[0]);
        for isa in Isa::available() {
            for ((name, expected), (_, found)) in expected.iter().zip(run(isa)) {
                assert_eq!(*expected, found, "round {round}: {name} on {}", isa.name());
            }
        }
    }
}

/// Products of as many bytes as a level says it can add, all at their extremes.
struct Bytes {
    bits: u8,
    high: i8,
    low: i8,
}

impl Kernel for Bytes {
    /// Quads that were added, and the sum of a lane; nothing where codes of these bits are no bytes.
    type Out = Option<(usize, [u32; LANES])>;
    #[inline(always)]
    unsafe fn run<S: Simd>(self) -> Self::Out {
        if self.bits > *S::BYTE_BITS_MAX.iter().max()? {
            return None;
        }
        let splat = |byte: u8| i32::from_le_bytes([byte; 4]);
        let quads = S::byte_quads(self.bits).min(32);
        // SAFETY: reached through `Isa::run`.
        unsafe {
            let codes = S::splat_i(splat((1u16 << self.bits).wrapping_sub(1) as u8));
            let (high, low) = (splat(self.high as u8), splat(self.low as u8));
            let mut sums = [S::splat_i(0); 2];
            for _ in 0..quads {
                sums = S::dot_bytes(sums, codes, S::splat_i(high), S::splat_i(low));
            }
            Some((quads, lanes_i::<S>(S::fold_bytes(S::splat_i(7), sums))))
        }
    }
}

#[test]
fn sums_of_bytes_hold_the_largest_products() {
    for isa in Isa::available() {
        for bits in [2, 3, 4, 5, 6, 8] {
            for (high, low) in [(127, 127), (-127, -128), (127, -128), (-127, 127)] {
                let Some((quads, found)) = isa.run(Bytes { bits, high, low }) else { continue };
                let code = (1 << bits) - 1;
                let product = code * (256 * i32::from(high) + i32::from(low));
                let expected = 7 + 4 * quads as i32 * product;
                assert_eq!(found, [expected as u32; LANES], "{bits} bits on {}", isa.name());
            }
        }
    }
}

#[test]
fn sums_follow_the_tree() {
    let mut values = [[0.0f32; LANES]; 3];
    values[1] = std::array::from_fn(|i| 1.0 + i as f32 * 1e-7);
    let v = values[1];
    let mut level = v.to_vec();
    while level.len() > 1 {
        let half = level.len() / 2;
        level = (0..half).map(|i| level[i] + level[i + half]).collect();
    }
    for isa in Isa::available() {
        let every = Every { f: values, i: [[0; LANES]; 3], halves: [0; LANES], bytes: [0; LANES] };
        let named = isa.run(every);
        let sum = named.iter().find(|(name, _)| *name == "sum").unwrap().1[0];
        assert_eq!(sum, level[0].to_bits(), "{}", isa.name());
    }
}
