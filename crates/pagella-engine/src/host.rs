//! Threads for the work between two steps: masks and sampling.

use crate::EngineError;

/// Most threads unless stated.
const THREADS_MAX: usize = 16;

/// A small pool; started on first use, because most single users never need it.
pub(crate) struct HostPool {
    threads: usize,
    pool: Option<rayon::ThreadPool>,
}

impl HostPool {
    pub fn new(threads: Option<usize>) -> Result<Self, EngineError> {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = threads.unwrap_or_else(|| cores().min(THREADS_MAX));
        Ok(HostPool { threads: threads.max(1), pool: None })
    }

    pub fn get(&mut self) -> Result<&rayon::ThreadPool, EngineError> {
        if self.pool.is_none() {
            let builder = rayon::ThreadPoolBuilder::new()
                .num_threads(self.threads)
                .thread_name(|idx| format!("pagella-host-{idx}"));
            let failed = |error| EngineError::Thread(std::io::Error::other(error));
            self.pool = Some(builder.build().map_err(failed)?);
        }
        self.pool.as_ref().ok_or(EngineError::WorkerGone)
    }
}
