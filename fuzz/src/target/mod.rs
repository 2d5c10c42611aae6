//! The targets, one file each: `run` and the `seeds` it starts from.

pub mod chat_template;
pub mod config_json;
pub mod safetensors_exl2;
pub mod sentencepiece;
pub mod small_floats;
pub mod tokenizer_json;
