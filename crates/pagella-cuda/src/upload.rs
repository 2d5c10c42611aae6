//! Large copies to the device: several threads read into page-locked buffers, and the device copies
//! from these while the next ones are being filled.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use cudarc::driver::{CudaEvent, result};
use pagella_backend::BackendError;

use crate::device::Device;
use crate::error::device_error;
use crate::memory::PinnedBuffer;

/// Bytes read and copied at once.
const BLOCK_BYTES: usize = 4 << 20;
/// Most threads that read; more do not read faster.
const READERS_MAX: usize = 8;
/// Buffers of a reader: one is filled while the device copies from the other.
const BUFFERS_PER_READER: usize = 2;

/// Page-locked buffers of all readers.
pub(crate) struct Uploader {
    readers: Vec<Mutex<Reader>>,
}

struct Reader {
    buffers: Vec<(PinnedBuffer, CudaEvent)>,
    next: usize,
}

impl Uploader {
    pub(crate) fn new(device: &Device) -> Result<Self, BackendError> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let reader = || {
            let buffer = || {
                let copied = device.context.new_event(None).map_err(device_error)?;
                Ok((PinnedBuffer::new(&device.context, BLOCK_BYTES)?, copied))
            };
            let buffers = (0..BUFFERS_PER_READER).map(|_| buffer()).collect::<Result<_, _>>()?;
            Ok(Mutex::new(Reader { buffers, next: 0 }))
        };
        let readers = (0..threads.clamp(1, READERS_MAX)).map(|_| reader());
        Ok(Uploader { readers: readers.collect::<Result<_, BackendError>>()? })
    }

    /// Copies `bytes` to device address `target`, in stream order. The source, which may be mapped
    /// from a file, is no longer needed when this returns.
    ///
    /// # Safety
    /// `target` is valid for `bytes.len()` bytes until the stream has passed the copies.
    pub(crate) unsafe fn copy(
        &self,
        device: &Device,
        target: u64,
        bytes: &[u8],
    ) -> Result<(), BackendError> {
        let blocks = bytes.len().div_ceil(BLOCK_BYTES);
        let next = AtomicUsize::new(0);
        let work = |reader: &Mutex<Reader>| -> Result<(), BackendError> {
            let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
            loop {
                let start = next.fetch_add(1, Ordering::Relaxed) * BLOCK_BYTES;
                if start >= bytes.len() {
                    return Ok(());
                }
                let block = &bytes[start..bytes.len().min(start + BLOCK_BYTES)];
                // SAFETY: the block's target lies inside the range the caller vouches for.
                unsafe { reader.copy(device, target + start as u64, block) }?;
            }
        };
        let readers = &self.readers[..self.readers.len().min(blocks)];
        if let [only] = readers {
            return work(only);
        }
        std::thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> =
                readers.iter().map(|reader| scope.spawn(move || work(reader))).collect();
            let mut outcome = Ok(());
            for thread in threads {
                let done = thread.join().unwrap_or_else(|_| {
                    let message = "a reader of weights panicked".to_owned();
                    Err(BackendError::Worker { backend: "cuda", message })
                });
                outcome = outcome.and(done);
            }
            outcome
        })
    }
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
        let (buffer, copied) = &mut self.buffers[self.next];
        self.next = (self.next + 1) % BUFFERS_PER_READER;
        copied.synchronize().map_err(device_error)?;
        let staged = &mut buffer.as_mut_slice()[..block.len()];
        staged.copy_from_slice(block);
        // SAFETY: the target is valid as promised; the buffer is not written before the event.
        unsafe { result::memcpy_htod_async(target, staged, device.stream.cu_stream()) }
            .map_err(device_error)?;
        copied.record(&device.stream).map_err(device_error)
    }
}
