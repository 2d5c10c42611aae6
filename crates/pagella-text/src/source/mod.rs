//! The files a tokenizer can come from, each read into the same [`Parts`].
//! Nothing here builds a pipeline; everything here checks what a file claims.

mod parts;
pub(crate) mod protobuf;
pub(crate) mod sentencepiece;
mod stage;
pub(crate) mod tokenizer_json;
mod vocab_file;

pub(crate) use parts::{AddedToken, ByteRule, ModelParts, Parts, check_id};
