//! libFuzzer entry of the target `chat_template`; the target itself is in the library.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| pagella_fuzz::target::chat_template::run(data));
