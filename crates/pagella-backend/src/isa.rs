//! Entering the widest vectors of this machine.
//!
//! A [`Kernel`] is ordinary safe code on slices, written so that the compiler vectorises it; here it is
//! compiled once more for each instruction set. The compiler neither fuses products nor reorders sums of
//! its own accord, so every machine gives the same bits.

/// A computation that is compiled for every instruction set.
pub trait Kernel {
    /// What it returns.
    type Out;

    /// Does it. Implementations are `#[inline(always)]`, so that they are compiled where they are entered.
    fn run(self) -> Self::Out;
}

/// Runs `kernel` with the widest vectors there are.
pub fn run<K: Kernel>(kernel: K) -> K::Out {
    #[cfg(target_arch = "x86_64")]
    {
        let has_avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        let has_avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq");
        if has_avx2 && has_avx512 {
            // SAFETY: the features were detected.
            return unsafe { run_avx512(kernel) };
        }
        if has_avx2 {
            // SAFETY: the features were detected.
            return unsafe { run_avx2(kernel) };
        }
    }
    kernel.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn run_avx2<K: Kernel>(kernel: K) -> K::Out {
    kernel.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,avx512f,avx512vl,avx512dq")]
fn run_avx512<K: Kernel>(kernel: K) -> K::Out {
    kernel.run()
}
