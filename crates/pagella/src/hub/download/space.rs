//! Room on the disk, looked at before the first byte is fetched.

use std::path::Path;

use super::HubError;

/// Bytes that this process may still write where `dir` is; `None` where the system does not say.
pub fn free_bytes(dir: &Path) -> Option<u64> {
    #[cfg(unix)]
    {
        let there = rustix::fs::statvfs(dir).ok()?;
        there.f_bavail.checked_mul(there.f_frsize)
    }
    #[cfg(not(unix))]
    {
        let _ = dir;
        None
    }
}

/// An error if there is too little room in `dir`. Where nobody knows, writing will tell.
pub(super) fn check(
    dir: &Path,
    needed: u64,
    free_bytes: fn(&Path) -> Option<u64>,
) -> Result<(), HubError> {
    match free_bytes(dir) {
        Some(free) if free < needed => Err(HubError::NoSpace { dir: dir.to_owned(), needed, free }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn the_system_says_how_much_room_there_is() {
        let dir = tempfile::tempdir().unwrap();
        let free = free_bytes(dir.path()).unwrap();
        assert!(free > 0, "a disk that is full cannot run tests");
        check(dir.path(), 1, free_bytes).unwrap();
        // No disk has this much.
        let refused = check(dir.path(), u64::MAX, free_bytes).unwrap_err().to_string();
        assert!(refused.contains(&u64::MAX.to_string()), "{refused}");
        assert_eq!(free_bytes(&dir.path().join("absent")), None);
    }

    #[test]
    fn what_just_fits_is_fetched() {
        let dir = Path::new("somewhere");
        check(dir, 100, |_| Some(100)).unwrap();
        check(dir, 100, |_| None).unwrap();
        let refused = check(dir, 101, |_| Some(100)).unwrap_err().to_string();
        assert!(refused.contains("101") && refused.contains("100"), "{refused}");
    }
}
