//! Host memory for weights and activations: cache-line aligned, zeroed, with optional huge pages.

use pagella_backend::BackendError;

use crate::account::Claim;

/// Alignment of every buffer: one cache line, one AVX-512 register.
const ALIGN_BYTES: usize = 64;

/// A buffer that starts on a cache line.
pub(crate) struct Aligned<T> {
    storage: Vec<T>,
    start: usize,
    len: usize,
}

impl<T> Default for Aligned<T> {
    fn default() -> Self {
        Aligned { storage: Vec::new(), start: 0, len: 0 }
    }
}

impl<T: Copy + Default> Aligned<T> {
    /// `len` zero elements, or an error that says what they were for.
    pub(crate) fn zeroed(len: usize, what: &'static str) -> Result<Self, BackendError> {
        let slack = ALIGN_BYTES / size_of::<T>();
        let bytes = len.saturating_mul(size_of::<T>());
        let mut storage: Vec<T> = Vec::new();
        storage
            .try_reserve_exact(len.saturating_add(slack))
            .map_err(|_| BackendError::OutOfMemory { what, bytes })?;
        prefer_huge_pages(storage.as_ptr().cast(), bytes);
        storage.resize(len + slack, T::default());
        let start = storage.as_ptr().align_offset(ALIGN_BYTES).min(slack);
        Ok(Aligned { storage, start, len })
    }

    /// Size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// Makes the buffer `len` elements long, of whatever values. Memory is kept when it shrinks, so
    /// that a step that looks like an earlier one allocates nothing.
    pub(crate) fn resize(&mut self, len: usize, what: &'static str) -> Result<(), BackendError> {
        if self.storage.len() - self.start < len {
            // The old memory goes first: both at once could be too much.
            *self = Self::default();
            *self = Self::zeroed(len, what)?;
        }
        self.len = len;
        Ok(())
    }
}

impl<T> std::ops::Deref for Aligned<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.storage[self.start..self.start + self.len]
    }
}

impl<T> std::ops::DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.storage[self.start..self.start + self.len]
    }
}

/// Buffers from this size on ask for huge pages.
#[cfg(target_os = "linux")]
const HUGE_FROM_BYTES: usize = 8 << 20;

/// Asks the system, before the first touch, to back a large buffer with huge pages: weights are
/// read front to back for every token, and with 4 KiB pages the TLB misses cost 5–25 % of the
/// bandwidth. Only whole huge pages inside the buffer are named, so it never takes more memory.
#[cfg(target_os = "linux")]
fn prefer_huge_pages(start: *const u8, bytes: usize) {
    const HUGE: usize = 2 << 20;
    let first = (start as usize).next_multiple_of(HUGE);
    let last = (start as usize + bytes) / HUGE * HUGE;
    if bytes >= HUGE_FROM_BYTES && last > first {
        // SAFETY: the range lies inside one live allocation; the advice changes how it is backed,
        // never its contents. A refusal is harmless.
        unsafe { libc::madvise(first as *mut libc::c_void, last - first, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(not(target_os = "linux"))]
fn prefer_huge_pages(_: *const u8, _: usize) {}

/// Bytes of an allocation from which on it has pages of its own, and of freed memory at the end of a heap
/// from which on it goes back.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const RETURNED_BYTES_MIN: libc::c_int = 4 << 20;

/// Lets freed memory go back to the system at once. Left to itself, glibc raises these bounds with the
/// largest block that was ever freed, and keeps gigabytes after a few large requests. Other allocators
/// are left to themselves.
pub fn return_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: sets two numbers of the allocator, which it accepts at any time.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, RETURNED_BYTES_MIN);
        libc::mallopt(libc::M_TRIM_THRESHOLD, RETURNED_BYTES_MIN);
    }
}

/// Activations `[rows, width]` in f32, row-major.
pub struct Tensor {
    pub(crate) data: Aligned<f32>,
    pub(crate) rows: usize,
    pub(crate) width: usize,
    /// Its bytes, where somebody keeps books.
    pub(crate) _claim: Claim,
}

impl Tensor {
    pub(crate) fn new(rows: usize, width: usize) -> Result<Self, BackendError> {
        let data = Aligned::zeroed(rows.saturating_mul(width), "activations")?;
        Ok(Tensor { data, rows, width, _claim: Claim::default() })
    }

    /// Checks that the tensor holds `rows` rows of exactly `width` elements.
    pub(crate) fn expect(
        &self,
        what: &'static str,
        rows: usize,
        width: usize,
    ) -> Result<(), BackendError> {
        BackendError::expect_tensor(what, (self.rows, self.width), rows, width)
    }

    /// Row `i`.
    pub(crate) fn row(&self, i: usize) -> &[f32] {
        &self.data[i * self.width..(i + 1) * self.width]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_start_on_a_cache_line() {
        for len in [0, 1, 15, 16, 1000] {
            let buffer = Aligned::<f32>::zeroed(len, "test").unwrap();
            assert_eq!(buffer.len(), len);
            assert_eq!(buffer.as_ptr().align_offset(ALIGN_BYTES), 0);
        }
    }

    #[test]
    fn a_buffer_that_shrinks_keeps_its_memory() {
        let mut buffer = Aligned::<f32>::default();
        buffer.resize(1000, "test").unwrap();
        let start = buffer.as_ptr();
        for len in [0, 7, 1000] {
            buffer.resize(len, "test").unwrap();
            assert_eq!((buffer.len(), buffer.as_ptr()), (len, start));
        }
        buffer.resize(5000, "test").unwrap();
        assert_eq!((buffer.len(), buffer.as_ptr().align_offset(ALIGN_BYTES)), (5000, 0));
    }

    #[test]
    fn an_impossible_size_is_an_error() {
        assert!(matches!(
            Aligned::<f32>::zeroed(usize::MAX / 8, "test"),
            Err(BackendError::OutOfMemory { .. })
        ));
    }
}
