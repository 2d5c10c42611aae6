//! libFuzzer entry of the target `safetensors_exl2`; the target itself is in the library.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pagella_fuzz::target::safetensors_exl2::run(data));
