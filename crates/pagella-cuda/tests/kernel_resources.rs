//! What the compiler said of every kernel: no warnings, no stack, no spilled registers.
//!
//! A kernel that spills is correct and slow, which no other test notices.

use std::collections::BTreeSet;

include!(concat!(env!("OUT_DIR"), "/ptxas.rs"));

mod targets {
    include!(concat!(env!("OUT_DIR"), "/targets.rs"));
}

/// One function compiled for one chip.
struct Compiled<'a> {
    function: &'a str,
    chip: &'a str,
    /// `0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads`
    memory: &'a str,
}

/// Reads what `ptxas -v` prints: for each function a line with its name and chip, and soon after
/// one with its memory.
fn compiled(log: &str) -> Vec<Compiled<'_>> {
    let mut found: Vec<Compiled<'_>> = Vec::new();
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '")
            && let Some((function, rest)) = rest.split_once("' for '")
        {
            let chip = rest.trim_end_matches('\'');
            found.push(Compiled { function, chip, memory: "" });
        } else if line.contains("bytes stack frame")
            && let Some(last) = found.last_mut().filter(|last| last.memory.is_empty())
        {
            last.memory = line.trim();
        }
    }
    found
}

/// Kernels that may have a stack, and why.
const MAY_HAVE_A_STACK: &[(&str, &str)] =
    &[("pg_rope_rows", "sines of very large angles are reduced through an array in memory")];

/// Kernels that may spill, by the beginning of their names, how many bytes at most, and why.
const MAY_SPILL: &[(&str, u32, &str)] = &[
    (
        "pg_attend_prefill_",
        32,
        "a thread holds a whole row of outputs: some chips lack a few registers",
    ),
    ("pg_append", 4, "one register on one chip"),
];

/// Whether a kernel spills no more than it is known to.
fn may_spill(compiled: &Compiled<'_>) -> bool {
    let bytes = |part: &str| part.split(' ').next().and_then(|number| number.parse::<u32>().ok());
    let most = compiled.memory.split(", ").filter_map(bytes).max().unwrap_or(u32::MAX);
    // The stack of a spill is a multiple of 8 bytes.
    MAY_SPILL.iter().any(|(name, limit, _)| {
        compiled.function.starts_with(name) && most <= limit.next_multiple_of(8)
    })
}

/// Whether every number of a line of memory is 0.
fn is_clean(memory: &str) -> bool {
    let numbers: Vec<&str> = memory.split(", ").filter_map(|p| p.split(' ').next()).collect();
    numbers.len() == 3 && numbers.iter().all(|number| *number == "0")
}

/// The kernel files, or nothing but a note when they were not compiled.
fn logs() -> &'static [(&'static str, &'static str)] {
    if LOGS.is_empty() {
        println!("SKIPPED: this build has no CUDA kernels; `cargo xtask cuda-toolchain` helps");
    }
    LOGS
}

#[test]
fn no_kernel_spills_registers_or_has_a_stack() {
    let mut slow = Vec::new();
    let may = |c: &Compiled<'_>| {
        let (_, spills) = c.memory.split_once(", ").unwrap_or_default();
        spills.starts_with("0 bytes spill stores, 0 bytes")
            && MAY_HAVE_A_STACK.iter().any(|(function, _)| *function == c.function)
    };
    for (file, log) in logs() {
        let compiled =
            compiled(log).into_iter().filter(|c| !is_clean(c.memory) && !may(c) && !may_spill(c));
        slow.extend(
            compiled.map(|c| format!("{file}: {} for {}: {}", c.function, c.chip, c.memory)),
        );
    }
    assert!(slow.is_empty(), "{} functions:\n{}", slow.len(), slow.join("\n"));
}

#[test]
fn the_compiler_had_nothing_to_warn_of() {
    let mut warnings = Vec::new();
    for (file, log) in logs() {
        let found = log.lines().filter(|line| line.to_lowercase().contains("warning"));
        warnings.extend(found.map(|line| format!("{file}: {line}")));
    }
    assert!(warnings.is_empty(), "{}", warnings.join("\n"));
}

#[test]
fn names_of_kernels_are_ours_and_unique() {
    let mut names = BTreeSet::new();
    for (file, log) in logs() {
        let functions: BTreeSet<&str> = compiled(log).iter().map(|c| c.function).collect();
        for function in functions {
            assert!(function.starts_with("pg_"), "{file}: {function} does not begin with pg_");
            assert!(names.insert(function), "{file}: {function} is also in another file");
        }
    }
}

#[test]
fn every_file_has_functions_for_every_chip_it_is_compiled_for() {
    for ((file, log), (_, targets)) in logs().iter().zip(targets::TARGETS) {
        let compiled = compiled(log);
        for chip in targets.iter().filter(|target| target.starts_with("sm_")) {
            assert!(compiled.iter().any(|c| c.chip == *chip), "{file} has nothing for {chip}");
        }
    }
    assert_eq!(LOGS.len(), targets::TARGETS.len());
    assert_eq!(LOGS.is_empty(), targets::TOOLKIT == (0, 0));
}

#[test]
fn spills_and_stacks_are_noticed() {
    let log = "ptxas info    : 0 bytes gmem\n\
               ptxas info    : Compiling entry function 'pg_a' for 'sm_80'\n\
               ptxas info    : Function properties for pg_a\n    \
               0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
               ptxas info    : Compiling entry function 'pg_b' for 'sm_90a'\n    \
               8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads\n";
    let found = compiled(log);
    let seen: Vec<_> = found.iter().map(|c| (c.function, c.chip, is_clean(c.memory))).collect();
    assert_eq!(seen, [("pg_a", "sm_80", true), ("pg_b", "sm_90a", false)]);
    assert!(!is_clean(""), "a function without a line of memory is not clean");
}
