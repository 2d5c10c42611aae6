//! The threads of what runs beside a backend: never more than there are CPUs for the process, which
//! would only wait for each other.

use std::path::Path;

use crate::error::QuantError;

/// So many threads, or one per CPU; `source` says in errors what was to be worked on.
pub(crate) fn pool(threads: Option<usize>, source: &Path) -> Result<rayon::ThreadPool, QuantError> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.unwrap_or(cpus).clamp(1, cpus);
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().map_err(|error| {
        let (path, action) = (source.to_owned(), "cannot start threads");
        QuantError::Io { path, action, source: std::io::Error::other(error) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_no_more_threads_than_cpus() {
        let of = |threads| pool(threads, Path::new("model")).unwrap().current_num_threads();
        assert!(of(Some(1024)) <= of(None));
        assert_eq!((of(Some(0)), of(Some(1))), (1, 1));
    }
}
