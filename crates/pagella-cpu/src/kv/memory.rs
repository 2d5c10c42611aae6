//! Zeroed memory that the system backs only where it is touched: a cache is reserved for the
//! longest context and mostly stays unused.
//!
//! An allocator gives such memory only for its natural alignment. Asked for more, it takes any
//! memory and fills it with zeros, which touches every byte. So a few bytes more are taken, and the
//! aligned part of them is used.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use pagella_backend::BackendError;

/// Alignment: one cache line, one AVX-512 register.
const ALIGN_BYTES: usize = 64;

/// Readable zero bytes behind the last one, so that a vector may start at any element.
const SLACK_BYTES: usize = 64;

/// Alignment for which zeroed memory comes straight from the system.
const NATURAL_ALIGN_BYTES: usize = 8;

/// A fixed number of bytes, zero at first, aligned to a cache line.
pub(crate) struct LazyBytes {
    /// What was allocated, by this layout.
    allocation: NonNull<u8>,
    layout: Layout,
    /// The aligned part of it.
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is owned and plain; access follows the borrow of the struct.
unsafe impl Send for LazyBytes {}
// SAFETY: as above.
unsafe impl Sync for LazyBytes {}

impl LazyBytes {
    pub(crate) fn zeroed(len: usize, what: &'static str) -> Result<Self, BackendError> {
        let failed = BackendError::OutOfMemory { what, bytes: len };
        let total = len.saturating_add(SLACK_BYTES + ALIGN_BYTES);
        let Ok(layout) = Layout::from_size_align(total, NATURAL_ALIGN_BYTES) else {
            return Err(failed);
        };
        // SAFETY: the layout is not empty, it has the slack.
        let allocation = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(failed)?;
        let skip = allocation.as_ptr().addr().wrapping_neg() % ALIGN_BYTES;
        // SAFETY: less than `ALIGN_BYTES` are skipped, and so many more were taken.
        let start = unsafe { allocation.add(skip) };
        Ok(LazyBytes { allocation, layout, start, len })
    }

    /// The first byte; readable to [`SLACK_BYTES`] beyond the last one.
    pub(crate) fn start(&self) -> *const u8 {
        self.start.as_ptr()
    }
}

impl Drop for LazyBytes {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this layout, freed once.
        unsafe { dealloc(self.allocation.as_ptr(), self.layout) };
    }
}

impl std::ops::Deref for LazyBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` initialised bytes, alive as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl std::ops::DerefMut for LazyBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed uniquely.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zero_aligned_and_as_long_as_asked_for() {
        for len in [0, 1, 64, 100_000] {
            let bytes = LazyBytes::zeroed(len, "test").unwrap();
            assert_eq!(bytes.len(), len);
            assert!(bytes.iter().all(|&b| b == 0));
            assert_eq!(bytes.as_ptr().align_offset(ALIGN_BYTES), 0);
        }
    }

    #[test]
    fn an_impossible_size_is_an_error() {
        let result = LazyBytes::zeroed(usize::MAX - 7, "test");
        assert!(matches!(result, Err(BackendError::OutOfMemory { .. })));
    }
}
