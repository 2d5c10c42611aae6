//! Large copies to the device: several threads read into page-locked buffers, and the device copies
//! from these while the next ones are being filled.
//!
//! Reading is the slow part, because files are mapped and every page of them has to be found first.
//! So all that belongs together is cut into blocks and shared out at once.

use std::sync::{Mutex, PoisonError};

use cudarc::driver::{CudaEvent, result};
use pagella_backend::BackendError;
use rayon::prelude::*;

use crate::device::Device;
use crate::error::device_error;
use crate::memory::PinnedBuffer;

/// Bytes read and copied at once, and bytes of a buffer.
const BLOCK_BYTES: usize = 1 << 20;
/// Most threads that read; more do not read faster.
const READERS_MAX: usize = 8;
/// Buffers of a reader: one is filled while the device copies from the others.
const BUFFERS_PER_READER: usize = 4;
/// Pieces in a buffer start at multiples of this.
const PIECE_ALIGN: usize = 256;

/// A copy: the address on the device, and what goes there.
pub(crate) type Piece<'a> = (u64, &'a [u8]);

/// Threads that read, with their page-locked buffers.
pub(crate) struct Uploader {
    pool: rayon::ThreadPool,
    readers: Vec<Mutex<Reader>>,
}

struct Reader {
    /// Each with the moment at which the device has copied all that it holds.
    buffers: Vec<(PinnedBuffer, CudaEvent)>,
    current: usize,
    /// Bytes of the current buffer that copies may still read.
    used: usize,
}

impl Uploader {
    pub(crate) fn new(device: &Device) -> Result<Self, BackendError> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let n_readers = cores.clamp(1, READERS_MAX);
        let reader = || {
            let buffer = || {
                let copied = device.context.new_event(None).map_err(device_error)?;
                Ok((PinnedBuffer::new(&device.context, BLOCK_BYTES)?, copied))
            };
            let buffers = (0..BUFFERS_PER_READER).map(|_| buffer()).collect::<Result<_, _>>()?;
            Ok(Mutex::new(Reader { buffers, current: 0, used: 0 }))
        };
        let readers: Vec<_> =
            (0..n_readers).map(|_| reader()).collect::<Result<_, BackendError>>()?;
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(n_readers)
            .thread_name(|idx| format!("pagella-read-{idx}"))
            .build();
        let failed = |error: rayon::ThreadPoolBuildError| BackendError::Worker {
            backend: "cuda",
            message: error.to_string(),
        };
        Ok(Uploader { pool: pool.map_err(failed)?, readers })
    }

    /// Copies all pieces, in stream order. The sources, which may be mapped from a file, are no longer
    /// needed when this returns.
    ///
    /// # Safety
    /// Every target is valid for its bytes until the stream has passed the copies.
    pub(crate) unsafe fn copy(
        &self,
        device: &Device,
        pieces: &[Piece<'_>],
    ) -> Result<(), BackendError> {
        let blocks: Vec<Piece<'_>> = pieces
            .iter()
            .flat_map(|(target, bytes)| {
                let starts = (*target..).step_by(BLOCK_BYTES);
                starts.zip(bytes.chunks(BLOCK_BYTES))
            })
            .collect();
        let copy = |(target, bytes): &Piece<'_>| {
            let reader = rayon::current_thread_index().and_then(|index| self.readers.get(index));
            let reader = reader.or(self.readers.first()).ok_or_else(no_reader)?;
            let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: the block's target lies inside a range the caller vouches for.
            unsafe { reader.copy(device, *target, bytes) }
        };
        // Waking threads for little costs more than it saves.
        if pieces.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() <= BLOCK_BYTES {
            return blocks.iter().try_for_each(copy);
        }
        self.pool.install(|| blocks.par_iter().with_max_len(1).try_for_each(copy))
    }
}

fn no_reader() -> BackendError {
    BackendError::Worker { backend: "cuda", message: "nobody reads weights".to_owned() }
}

impl Reader {
    /// # Safety
    /// As for [`Uploader::copy`]; `block` is at most [`BLOCK_BYTES`] long.
    unsafe fn copy(
        &mut self,
        device: &Device,
        target: u64,
        block: &[u8],
    ) -> Result<(), BackendError> {
        device.context.bind_to_thread().map_err(device_error)?;
        if self.used + block.len() > BLOCK_BYTES {
            self.current = (self.current + 1) % BUFFERS_PER_READER;
            self.used = 0;
            self.buffers[self.current].1.synchronize().map_err(device_error)?;
        }
        let (buffer, copied) = &mut self.buffers[self.current];
        let staged = &mut buffer.as_mut_slice()[self.used..self.used + block.len()];
        staged.copy_from_slice(block);
        // SAFETY: the target is valid as promised; this part of the buffer is not written again
        // before the event.
        unsafe { result::memcpy_htod_async(target, staged, device.stream.cu_stream()) }
            .map_err(device_error)?;
        self.used = (self.used + block.len()).next_multiple_of(PIECE_ALIGN);
        copied.record(&device.stream).map_err(device_error)
    }
}
