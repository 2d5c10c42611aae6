//! Who asks: keys, their file, and the header forms in which they come.
//!
//! The role belongs to the key, not to the header it came in. Keys are compared as keyed digests, in
//! constant time, against every entry.

mod failures;
mod file;
mod key;

pub use failures::Failures;
pub use file::{KeyFileError, create, load};
pub use key::{CacheScope, Caller, Key, Keys, Role};
