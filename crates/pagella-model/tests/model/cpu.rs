//! The CPU backend that tests run on.

use pagella_cpu::{CpuBackend, CpuOptions, MathMode};

use crate::directory::{all_logits, demo, load};
use crate::families::cases;
use crate::reference::ReferenceBackend;

/// A backend that is not pinned, so that tests can share cores.
pub fn cpu(math: MathMode, threads: usize) -> CpuBackend {
    let options = CpuOptions { threads: Some(threads), math, isa: None, pin: false };
    CpuBackend::new(options).unwrap()
}

/// Ids that visit all of the demo model's vocabulary over time.
pub fn ids(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| i.wrapping_mul(2_654_435_761) >> 20).collect()
}

/// Root mean square of the difference.
fn rms(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let squares = a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2));
    (squares.sum::<f64>() / a.len() as f64).sqrt()
}

/// Largest root mean square difference in logits from the reference backend with the same cache.
/// Sums in another order now and then round a cached value the other way: 3e-4 in the worst family
/// case, 5e-4 in the demo model. The rounding itself is worth 5e-3.
const EXACT_RMS_MAX: f64 = 1e-3;

/// The same with 16-bit activations; 3e-3 in the demo model.
const WIDE_RMS_MAX: f64 = 1e-2;

#[test]
fn every_family_gives_the_logits_of_the_reference_backend() {
    let cases = cases();
    assert!(cases.len() >= 18, "only {} cases found", cases.len());
    let mut wrong = Vec::new();
    for case in cases {
        let rms = rms(&case.run(cpu(MathMode::Exact, 2)), &case.run(ReferenceBackend::ROUNDED));
        println!("{:30} {rms:.2e}", case.name);
        if rms.is_nan() || rms > EXACT_RMS_MAX {
            wrong.push(format!("{} ({rms:.2e})", case.name));
        }
    }
    assert!(wrong.is_empty(), "the CPU differs from the reference: {}", wrong.join(", "));
}

#[test]
fn the_demo_model_gives_the_logits_of_the_reference_backend() {
    let ids = ids(40);
    let reference = &mut load(&demo(), ReferenceBackend::ROUNDED, 64).unwrap();
    let want = all_logits(reference, &ids, 64);
    for (math, limit) in [(MathMode::Exact, EXACT_RMS_MAX), (MathMode::Wide, WIDE_RMS_MAX)] {
        let got = all_logits(&mut load(&demo(), cpu(math, 2), 64).unwrap(), &ids, 64);
        let rms = rms(&got, &want);
        println!("{math:?}: {rms:.2e}");
        assert!(rms <= limit, "{math:?}: {rms:.2e}");
    }
}
