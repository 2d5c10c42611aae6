//! Fuzz targets: one per kind of untrusted file.
//!
//! A target is a function from bytes to nothing that walks the code a real file would walk, and the
//! seeds it starts from. It passes when it returns. libFuzzer (`fuzz_targets/`) and the `smoke`
//! program run the same functions.

pub mod container;
pub mod demo;
pub mod mutate;
pub mod round_trip;
pub mod target;

/// One kind of untrusted input.
pub struct Target {
    /// Its name everywhere: module, program, corpus folder.
    pub name: &'static str,
    /// Walks the code under test. Must not panic, whatever the bytes.
    pub run: fn(&[u8]),
    /// Small valid inputs to start from.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target {
        name: "safetensors_exl2",
        run: target::safetensors_exl2::run,
        seeds: target::safetensors_exl2::seeds,
    },
    Target {
        name: "small_floats",
        run: target::small_floats::run,
        seeds: target::small_floats::seeds,
    },
    Target {
        name: "config_json",
        run: target::config_json::run,
        seeds: target::config_json::seeds,
    },
    Target {
        name: "tokenizer_json",
        run: target::tokenizer_json::run,
        seeds: target::tokenizer_json::seeds,
    },
    Target {
        name: "sentencepiece",
        run: target::sentencepiece::run,
        seeds: target::sentencepiece::seeds,
    },
    Target {
        name: "chat_template",
        run: target::chat_template::run,
        seeds: target::chat_template::seeds,
    },
];
