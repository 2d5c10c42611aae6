//! Who asks: keys, their file, and the header forms in which they come.
//!
//! The role belongs to the key, not to the header it came in. Keys are compared as keyed digests, in
//! constant time, against every entry.

mod failures;
mod file;
mod key;
mod tokens;

pub use failures::Failures;
pub use file::{KeyFileError, create, file_in_use, is_open_to_others, load};
pub use key::{CacheScope, Caller, Key, Keys, Role, carries_key};
