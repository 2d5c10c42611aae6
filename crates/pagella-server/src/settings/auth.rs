//! Who may ask.

use std::path::PathBuf;

/// Who may ask.
#[derive(Clone, Debug)]
pub struct Auth {
    /// The file of keys.
    pub keys_file: PathBuf,
    /// Refuse a file that others can read, instead of warning.
    pub strict_key_file: bool,
    /// Who shares cached pages with whom.
    pub cache_isolation: CacheIsolation,
}

/// Who shares cached pages with whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheIsolation {
    /// `Key`, except on a loopback address or with a single key.
    Auto,
    /// Everyone with everyone.
    None,
    /// Each key only with itself, or with its group.
    Key,
}

impl Default for Auth {
    fn default() -> Self {
        Auth {
            keys_file: PathBuf::from("keys.toml"),
            strict_key_file: false,
            cache_isolation: CacheIsolation::Auto,
        }
    }
}
