//! The size of a cache that someone states: whole pages, the same rule for flags, files and requests.

use pagella_backend::PAGE_TOKENS;

/// The size, if a cache can have it.
pub fn whole_pages(tokens: usize) -> Result<usize, PartialPage> {
    match tokens > 0 && tokens.is_multiple_of(PAGE_TOKENS) {
        true => Ok(tokens),
        false => Err(PartialPage { next: tokens.max(1).div_ceil(PAGE_TOKENS) * PAGE_TOKENS }),
    }
}

/// A cache cannot hold part of a page. Says what it can, to stand after "must be" or "give".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a multiple of {PAGE_TOKENS}, such as {next}: a cache has whole pages")]
pub struct PartialPage {
    /// The next number that would do.
    pub next: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stated_cache_has_whole_pages() {
        assert_eq!(whole_pages(256), Ok(256));
        assert_eq!(whole_pages(8192), Ok(8192));
        for (tokens, next) in [(0, 256), (1, 256), (257, 512), (1000, 1024), (8191, 8192)] {
            assert_eq!(whole_pages(tokens), Err(PartialPage { next }));
        }
    }
}
