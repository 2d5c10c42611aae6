//! Sixteen lanes on every machine.
//!
//! Kernels are written once against [`Simd`], whose vectors always hold 16 lanes: one AVX-512
//! register, two of AVX2, four of NEON, an array elsewhere. Every operation is either exact or
//! correctly rounded, so all levels give the same bits and one set of goldens tests them all.
//!
//! A kernel is a struct of its arguments that implements [`Kernel`]; [`Isa::run`] enters the right
//! instruction set. All `unsafe` of vector code stays behind that door.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub(crate) mod math;
#[cfg(target_arch = "aarch64")]
mod neon;
pub(crate) mod portable;

/// Lanes of every vector.
pub(crate) const LANES: usize = 16;

/// Brings back binary16 values whose exponent was taken for that of an f32.
const HALF_SCALE: f32 = f32::from_bits((127 + 112) << 23);

/// Vector operations on 16 lanes.
///
/// # Safety
/// Every method needs the CPU features of the implementing level, and must be reached from
/// [`Isa::run`] so that it is compiled with them. `load`/`store` need valid pointers for 16
/// elements; they need no alignment.
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    /// 16 × f32.
    type F: Copy;
    /// 16 × 32-bit integers; also viewed as 32 × i16.
    type I: Copy;
    /// 16 × f32 to look up.
    type Table: Copy;
    /// Rows of an f32 or int16 micro-kernel that fit the register file.
    const GEMM_ROWS: usize;
    /// Registers of one vector.
    const REGISTERS: usize;
    /// Tiles that a GEMV in wide arithmetic walks in lockstep with 1, 2 and 4 rows: all sums fit the register file.
    const WIDE_TILES: [usize; 3];

    /// Widest codes that a GEMV of 1, 2 and 4 rows multiplies as bytes, see [`Simd::dot_bytes`].
    const BYTE_BITS_MAX: [u8; 3];

    /// Quads of codes of `bits` whose products [`Simd::dot_bytes`] can add before they are folded.
    fn byte_quads(bits: u8) -> usize;

    unsafe fn splat(x: f32) -> Self::F;
    /// Eight lanes of each.
    unsafe fn splat_halves(low: f32, high: f32) -> Self::F;
    /// The low lanes of `a`, the low lanes of `b`.
    unsafe fn low_halves(a: Self::F, b: Self::F) -> Self::F;
    /// The high lanes of `a`, the high lanes of `b`.
    unsafe fn high_halves(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn load(p: *const f32) -> Self::F;
    unsafe fn store(p: *mut f32, v: Self::F);
    /// Widens 16 binary16 values.
    unsafe fn load_f16(p: *const u16) -> Self::F;
    /// Narrows to binary16, nearest even.
    unsafe fn store_f16(p: *mut u16, v: Self::F);
    /// Widens 16 bfloat16 values.
    unsafe fn load_bf16(p: *const u16) -> Self::F;
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn div(a: Self::F, b: Self::F) -> Self::F;
    /// `a · b + c`, rounded once.
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `c − a · b`, rounded once.
    unsafe fn fnma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// The larger of both; `b` where either is NaN.
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F;
    /// The smaller of both; `b` where either is NaN.
    unsafe fn min(a: Self::F, b: Self::F) -> Self::F;
    /// Absolute value.
    unsafe fn abs(a: Self::F) -> Self::F;
    /// `if a < b { yes } else { no }` per lane; false on NaN.
    unsafe fn select_lt(a: Self::F, b: Self::F, yes: Self::F, no: Self::F) -> Self::F;
    /// Lane `i` becomes lane `i xor N`; `N` is 2, 4 or 8.
    unsafe fn swap<const N: usize>(a: Self::F) -> Self::F;
    /// Nearest integer, ties to even; lanes must be within ±2³¹, NaN gives any integer.
    unsafe fn round_i(a: Self::F) -> Self::I;
    /// Integer to f32, nearest even.
    unsafe fn to_f(a: Self::I) -> Self::F;
    /// Reinterprets bits.
    unsafe fn bits_f(a: Self::I) -> Self::F;

    unsafe fn splat_i(x: i32) -> Self::I;
    unsafe fn load_i(p: *const u32) -> Self::I;
    unsafe fn store_i(p: *mut i32, v: Self::I);
    /// Widens 16 bytes.
    unsafe fn load_u8(p: *const u8) -> Self::I;
    /// A table of 16 values.
    unsafe fn table(p: *const f32) -> Self::Table;
    /// The values that the lowest four bits of every lane name.
    unsafe fn lookup(table: Self::Table, codes: Self::I) -> Self::F;
    unsafe fn and(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn or(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn xor(a: Self::I, b: Self::I) -> Self::I;
    /// The sum of the four bytes of every lane.
    unsafe fn sum_bytes(a: Self::I) -> Self::I;
    unsafe fn add_i(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn sub_i(a: Self::I, b: Self::I) -> Self::I;
    /// Low 32 bits of the products.
    unsafe fn mul_i(a: Self::I, b: Self::I) -> Self::I;
    /// Logical shift of 32-bit lanes.
    unsafe fn shr<const N: i32>(a: Self::I) -> Self::I;
    /// Shift of 32-bit lanes.
    unsafe fn shl<const N: i32>(a: Self::I) -> Self::I;
    /// Logical shift of 32-bit lanes by fewer than 32 bits; fast where the number is a constant.
    unsafe fn shr_by(a: Self::I, bits: u32) -> Self::I;
    /// Shift of 32-bit lanes by fewer than 32 bits; fast where the number is a constant.
    unsafe fn shl_by(a: Self::I, bits: u32) -> Self::I;
    /// Logical shift of 16-bit halves.
    unsafe fn shr16<const N: i32>(a: Self::I) -> Self::I;
    /// `acc + a₀·b₀ + a₁·b₁` on the signed 16-bit halves of every lane.
    unsafe fn dot16(acc: Self::I, a: Self::I, b: Self::I) -> Self::I;
    /// Adds the products of the unsigned bytes of `codes` with the signed ones of `high` and of `low`,
    /// four by four, to running sums. Their form is the level's own: after [`Simd::byte_quads`] quads
    /// at most, [`Simd::fold_bytes`] puts them together.
    unsafe fn dot_bytes(
        sums: [Self::I; 2],
        codes: Self::I,
        high: Self::I,
        low: Self::I,
    ) -> [Self::I; 2];
    /// `acc + 256 · Σ codes·high + Σ codes·low` of running sums that began as zeros.
    unsafe fn fold_bytes(acc: Self::I, sums: [Self::I; 2]) -> Self::I;
    /// Byte `N` of every lane.
    #[inline(always)]
    unsafe fn byte<const N: usize>(a: Self::I) -> Self::I {
        // SAFETY: register operations, as promised by the caller.
        unsafe {
            let low = Self::splat_i(0xFF);
            match N {
                0 => Self::and(a, low),
                1 => Self::and(Self::shr::<8>(a), low),
                2 => Self::and(Self::shr::<16>(a), low),
                _ => Self::shr::<24>(a),
            }
        }
    }
    /// The same value, which the compiler computes here, after what it computed at the one before.
    /// Where registers are few, it would otherwise begin more at once than fit them.
    #[inline(always)]
    unsafe fn settle(a: Self::F) -> Self::F {
        a
    }
    /// The same for integers.
    #[inline(always)]
    unsafe fn settle_i(a: Self::I) -> Self::I {
        a
    }
    /// Starts fetching the cache line at `p`, which may be out of bounds.
    unsafe fn prefetch(p: *const u8);

    /// Widens 16 floats of 8 bits with `DIGITS` digits, 2 or 3, whose exponent is taken for that of a
    /// binary16. NaN and infinity may become any number.
    #[inline(always)]
    unsafe fn load_f8<const DIGITS: u32>(p: *const u8) -> Self::F {
        // SAFETY: the caller gives 16 readable bytes.
        unsafe {
            let byte = Self::load_u8(p);
            let sign = Self::shl::<24>(Self::and(byte, Self::splat_i(0x80)));
            let rest = Self::shl_by(Self::and(byte, Self::splat_i(0x7F)), 23 - DIGITS);
            Self::mul(Self::bits_f(Self::or(sign, rest)), Self::splat(HALF_SCALE))
        }
    }

    /// All lanes in the canonical order: halves added, then quarters, eighths, the last two.
    #[inline(always)]
    unsafe fn sum(v: Self::F) -> f32 {
        let mut a = [0.0f32; LANES];
        // SAFETY: `a` holds 16 elements.
        unsafe { Self::store(a.as_mut_ptr(), v) };
        tree(a, |x, y| x + y)
    }

    /// Largest lane.
    #[inline(always)]
    unsafe fn max_lane(v: Self::F) -> f32 {
        let mut a = [0.0f32; LANES];
        // SAFETY: `a` holds 16 elements.
        unsafe { Self::store(a.as_mut_ptr(), v) };
        tree(a, |x, y| if x > y { x } else { y })
    }
}

#[inline(always)]
fn tree(mut a: [f32; LANES], op: impl Fn(f32, f32) -> f32) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            a[i] = op(a[i], a[i + width]);
        }
        width /= 2;
    }
    a[0]
}

/// A computation that can be compiled for every level.
pub(crate) trait Kernel {
    /// What it returns.
    type Out;

    /// Runs with the vectors of `S`. Implementations are `#[inline(always)]`.
    ///
    /// # Safety
    /// Only [`Isa::run`] may call this. Preconditions on the fields are the kernel's own.
    unsafe fn run<S: Simd>(self) -> Self::Out;
}

/// An instruction-set level this machine has; made only by detection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isa(Level);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "aarch64")]
    Neon,
}

impl Isa {
    /// Every level this machine can run, slowest first.
    pub fn available() -> Vec<Isa> {
        #[allow(unused_mut)]
        let mut levels = vec![Isa(Level::Portable)];
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("f16c");
            if avx2 {
                levels.push(Isa(Level::Avx2));
            }
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512vnni");
            if avx2 && avx512 {
                levels.push(Isa(Level::Avx512));
            }
        }
        #[cfg(target_arch = "aarch64")]
        if std::arch::is_aarch64_feature_detected!("neon") {
            levels.push(Isa(Level::Neon));
        }
        levels
    }

    /// The fastest level.
    pub fn best() -> Isa {
        Self::available().pop().unwrap_or(Isa(Level::Portable))
    }

    /// Name, as accepted by [`Isa::by_name`].
    pub fn name(self) -> &'static str {
        match self.0 {
            Level::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => "avx512",
            #[cfg(target_arch = "aarch64")]
            Level::Neon => "neon",
        }
    }

    /// The level of that name, if this machine has it.
    pub fn by_name(name: &str) -> Option<Isa> {
        Self::available().into_iter().find(|isa| isa.name() == name)
    }

    /// Runs a kernel on this level.
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Out {
        // SAFETY: `self` was made by `available`, so the CPU has the level's features.
        unsafe {
            match self.0 {
                Level::Portable => kernel.run::<portable::Portable>(),
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 => avx2::enter(kernel),
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 => avx512::enter(kernel),
                #[cfg(target_arch = "aarch64")]
                Level::Neon => neon::enter(kernel),
            }
        }
    }
}

#[cfg(test)]
mod tests;
