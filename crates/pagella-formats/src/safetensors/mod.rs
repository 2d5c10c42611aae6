//! The container: a length, a JSON header, the bytes of the tensors.

pub mod header;
pub mod write;
