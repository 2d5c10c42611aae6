//! The CPU passes every conformance case: both arithmetics, every instruction set of this machine,
//! one thread and several.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pagella_backend::Backend;
use pagella_backend::conformance::{Tolerances, cases};
use pagella_cpu::{CpuBackend, CpuOptions, Isa, MathMode};

/// Runs all cases with one arithmetic; a panic is a failure like any other.
///
/// `PAGELLA_CASE` restricts them to those with names that contain it.
fn check(math: MathMode, tolerances: &Tolerances) {
    let only = std::env::var("PAGELLA_CASE").unwrap_or_default();
    let mut failures = Vec::new();
    let mut count = 0;
    for isa in Isa::available() {
        for threads in [1, 3] {
            let options = CpuOptions { threads: Some(threads), math, isa: Some(isa), pin: false };
            for case in cases::<CpuBackend>().iter().filter(|case| case.name.contains(&only)) {
                // Its own backend: a case that kills a worker must not take others with it.
                let backend = CpuBackend::new(options).expect("threads can be started");
                let run = AssertUnwindSafe(|| (case.run)(&backend, tolerances));
                let outcome = catch_unwind(run).unwrap_or_else(|_| Err("it panicked".to_owned()));
                if let Err(reason) = outcome {
                    failures.push(format!("{} [{}]: {reason}", case.name, backend.describe()));
                }
                count += 1;
            }
        }
    }
    assert!(failures.is_empty(), "{} of {count} failed:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn exact_arithmetic_passes_every_case() {
    check(MathMode::Exact, &Tolerances::SINGLE);
}

#[test]
fn wide_arithmetic_passes_every_case() {
    check(MathMode::Wide, &Tolerances::WIDE);
}

#[test]
fn names_of_cases_are_unique() {
    let mut names: Vec<_> = cases::<CpuBackend>().iter().map(|case| case.name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}
