//! libFuzzer entry of the target `tokenizer_json`; the target itself is in the library.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pagella_fuzz::target::tokenizer_json::run(data));
