//! A read-only mapping of one file; the only `unsafe` of this crate.
//!
//! Files are mapped rather than read, so that a checkpoint larger than memory can be re-laid
//! tensor by tensor. Whoever truncates a mapped model file while it is being loaded causes a bus
//! error, as with every program that maps files: replace model files by renaming, not in place.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

use memmap2::Mmap;

/// Multiple of every page size in use (4, 16 and 64 KiB), so that aligning to it never touches
/// a page that is only partly inside a range.
#[cfg(unix)]
const PAGE_BYTES_MAX: usize = 64 * 1024;

/// The bytes of one file, for as long as this value lives.
#[derive(Debug)]
pub(crate) struct Mapping {
    map: Mmap,
}

impl Mapping {
    /// Maps the whole of `path`, which must be a regular file: opening a pipe could block forever.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        if !std::fs::metadata(path)?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let file = File::open(path)?;
        // SAFETY: the mapping is read-only and private to this value; no reference outlives it
        // (`bytes` borrows self). Changing the file while it is mapped is excluded by the module
        // contract; all parsing code treats the bytes as untrusted anyway.
        let map = unsafe { Mmap::map(&file)? };
        Ok(Self { map })
    }

    /// The file's contents.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Tells the system that the whole pages inside `range` (file offsets) are not needed soon.
    ///
    /// Reading them again is allowed and only costs a page fault. Does nothing where unsupported.
    pub(crate) fn release(&self, range: Range<usize>) {
        #[cfg(unix)]
        {
            let begin = range.start.next_multiple_of(PAGE_BYTES_MAX);
            let end = range.end.min(self.map.len()) / PAGE_BYTES_MAX * PAGE_BYTES_MAX;
            if begin < end {
                // SAFETY: DONTNEED on a shared, read-only, file-backed mapping drops clean pages
                // that are read again from the file on the next access; no contents are lost.
                // The range lies inside the mapping (`end` is clamped above).
                let advised = unsafe {
                    self.map.unchecked_advise_range(
                        memmap2::UncheckedAdvice::DontNeed,
                        begin,
                        end - begin,
                    )
                };
                // The advice is an optimisation; a system that declines it changes nothing.
                drop(advised);
            }
        }
        #[cfg(not(unix))]
        let _ = range;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_pages_read_the_same_again() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let contents: Vec<u8> = (0..500_000u32).map(|i| (i / 7) as u8).collect();
        std::fs::write(path.path(), &contents).unwrap();
        let map = Mapping::open(path.path()).unwrap();
        assert_eq!(map.bytes(), contents);
        for range in [0..500_000, 100..200_000, 70_000..70_001, 499_999..usize::MAX] {
            map.release(range);
            assert_eq!(map.bytes(), contents);
        }
    }

    #[test]
    fn a_directory_is_not_mapped() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Mapping::open(dir.path()).is_err());
    }
}
