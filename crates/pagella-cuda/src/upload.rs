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

/// Bytes of a buffer, and most bytes that are read and copied at once.
const BLOCK_BYTES: usize = 1 << 20;
/// Fewest: shorter copies take no less time. So much alone is no work for several threads.
const BLOCK_BYTES_MIN: usize = 128 << 10;
/// Most threads that read; more do not read faster.
const READERS_MAX: usize = 8;
/// Buffers of a reader: one is filled while the device copies from the others.
const BUFFERS_PER_READER: usize = 4;
/// Blocks are multiples of this, so that few pages are read by two threads.
const PAGE_BYTES: usize = 4 << 10;
/// Pieces in a buffer start at multiples of this.
const PIECE_ALIGN: usize = 256;

/// A copy: the address on the device, and what goes there.
pub(crate) type Piece<'a> = (u64, &'a [u8]);

/// Threads that read, with their page-locked buffers. Both are made when they are needed first.
pub(crate) struct Uploader {
    pool: Option<rayon::ThreadPool>,
    readers: Vec<Mutex<Reader>>,
}

#[derive(Default)]
struct Reader {
    /// Each with the moment at which the device has copied all that it holds.
    buffers: Vec<(PinnedBuffer, CudaEvent)>,
    current: usize,
    /// Bytes of the current buffer that copies may still read.
    used: usize,
}

impl Default for Uploader {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let readers = (0..cores.clamp(1, READERS_MAX)).map(|_| Mutex::default()).collect();
        Uploader { pool: None, readers }
    }
}

impl Uploader {
    /// Whether nothing was ever copied.
    pub(crate) fn is_unused(&self) -> bool {
        let unused = |reader: &Mutex<Reader>| {
            reader.lock().unwrap_or_else(PoisonError::into_inner).buffers.is_empty()
        };
        self.readers.iter().all(unused)
    }

    /// Copies all pieces, in stream order. The sources, which may be mapped from a file, are no longer
    /// needed when this returns.
    ///
    /// # Safety
    /// Every target is valid for its bytes until the stream has passed the copies.
    pub(crate) unsafe fn copy(
        &mut self,
        device: &Device,
        pieces: &[Piece<'_>],
    ) -> Result<(), BackendError> {
        let total: usize = pieces.iter().map(|(_, bytes)| bytes.len()).sum();
        let share = total.div_ceil(self.readers.len().max(1));
        let block = share.next_multiple_of(PAGE_BYTES).clamp(BLOCK_BYTES_MIN, BLOCK_BYTES);
        let blocks: Vec<Piece<'_>> = pieces
            .iter()
            .flat_map(|(target, bytes)| (*target..).step_by(block).zip(bytes.chunks(block)))
            .collect();
        let Uploader { pool, readers } = self;
        let copy = |(target, bytes): &Piece<'_>| {
            let reader = rayon::current_thread_index().and_then(|index| readers.get(index));
            let reader =
                reader.or(readers.first()).ok_or_else(|| failed("nobody reads weights"))?;
            let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: the block's target lies inside a range the caller vouches for.
            unsafe { reader.copy(device, *target, bytes) }
        };
        // Waking threads for little costs more than it saves.
        if total <= 2 * BLOCK_BYTES_MIN {
            return blocks.iter().try_for_each(copy);
        }
        let pool = match pool {
            Some(pool) => pool,
            None => pool.insert(start(readers.len())?),
        };
        pool.install(|| blocks.par_iter().with_max_len(1).try_for_each(copy))
    }
}

/// Starts threads that read.
fn start(threads: usize) -> Result<rayon::ThreadPool, BackendError> {
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(|idx| format!("pagella-read-{idx}"))
        .build()
        .map_err(|error| failed(&error.to_string()))
}

fn failed(message: &str) -> BackendError {
    BackendError::Worker { backend: "cuda", message: message.to_owned() }
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
        if self.buffers.is_empty() || self.used + block.len() > BLOCK_BYTES {
            self.take_next(device)?;
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

    /// Goes on with another buffer: a new one, or the oldest when the device is through with it.
    fn take_next(&mut self, device: &Device) -> Result<(), BackendError> {
        if self.buffers.len() < BUFFERS_PER_READER {
            let copied = device.context.new_event(None).map_err(device_error)?;
            self.buffers.push((PinnedBuffer::new(&device.context, BLOCK_BYTES)?, copied));
            self.current = self.buffers.len() - 1;
        } else {
            self.current = (self.current + 1) % BUFFERS_PER_READER;
            self.buffers[self.current].1.synchronize().map_err(device_error)?;
        }
        self.used = 0;
        Ok(())
    }
}
