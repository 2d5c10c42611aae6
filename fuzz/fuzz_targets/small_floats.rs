//! libFuzzer entry of the target `small_floats`; the target itself is in the library.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pagella_fuzz::target::small_floats::run(data));
