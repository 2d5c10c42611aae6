//! The device passes every conformance case, with the shapes of real models too.
//!
//! Without a device that this build can use the test says so and ends.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pagella_backend::conformance::{Tolerances, cases, real_shapes};
use pagella_cuda::probe::Probe;
use pagella_cuda::{CudaBackend, CudaOptions};

#[test]
fn every_case_passes() {
    if let Err(obstacle) = Probe::look().best() {
        println!("SKIPPED: the conformance cases on CUDA ({obstacle})");
        return;
    }
    let backend = CudaBackend::new(CudaOptions::default()).expect("the device opens");
    let only = std::env::var("PAGELLA_CASE").unwrap_or_default();
    let mut failures = Vec::new();
    let mut count = 0;
    for case in cases::<CudaBackend>().into_iter().chain(real_shapes()) {
        if !case.name.contains(&only) {
            continue;
        }
        let run = AssertUnwindSafe(|| (case.run)(&backend, &Tolerances::HALF));
        let outcome = catch_unwind(run).unwrap_or_else(|_| Err("it panicked".to_owned()));
        if let Err(reason) = outcome {
            println!("FAILED {}: {reason}", case.name);
            failures.push(case.name);
        }
        count += 1;
    }
    println!("{} of {count} cases passed", count - failures.len());
    assert!(failures.is_empty(), "{} of {count} failed: {}", failures.len(), failures.join(", "));
}
