//! Device and pinned host memory, owned and freed, with errors that say what it was for.

use std::sync::Arc;

use cudarc::driver::{CudaContext, result, sys};
use pagella_backend::BackendError;

use crate::error::{device_error, is_out_of_memory};

/// One allocation of the driver, freed when nobody holds it any more.
pub(crate) struct Allocation {
    context: Arc<CudaContext>,
    ptr: sys::CUdeviceptr,
    bytes: usize,
}

impl Allocation {
    /// Memory with undefined contents; 256-byte aligned.
    pub(crate) fn new(
        context: &Arc<CudaContext>,
        bytes: usize,
        what: &'static str,
    ) -> Result<Self, BackendError> {
        let bytes = bytes.max(1);
        context.bind_to_thread().map_err(device_error)?;
        // SAFETY: the context is current on this thread; the result is owned by the new value.
        let ptr = unsafe { result::malloc_sync(bytes) }.map_err(|error| {
            if is_out_of_memory(&error) {
                BackendError::OutOfMemory { what, bytes }
            } else {
                device_error(error)
            }
        })?;
        Ok(Allocation { context: context.clone(), ptr, bytes })
    }

    /// Size.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // Freeing waits for the work that uses the memory. A failure here means the context is
        // gone, and the memory with it.
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: allocated by `new`, freed once.
            let _ = unsafe { result::free_sync(self.ptr) };
        }
    }
}

/// A block of device memory; 256-byte aligned. Nobody else uses it, though others may have parts of
/// the same allocation.
pub(crate) struct DeviceBuffer {
    ptr: sys::CUdeviceptr,
    bytes: usize,
    _memory: Arc<Allocation>,
}

impl DeviceBuffer {
    /// An allocation of its own, with undefined contents.
    pub(crate) fn new(
        context: &Arc<CudaContext>,
        bytes: usize,
        what: &'static str,
    ) -> Result<Self, BackendError> {
        let memory = Arc::new(Allocation::new(context, bytes, what)?);
        Ok(DeviceBuffer { ptr: memory.ptr, bytes: memory.bytes, _memory: memory })
    }

    /// Part of an allocation that the caller gives to nobody else; it lies inside, and its offset is a
    /// multiple of 256.
    pub(crate) fn part(memory: &Arc<Allocation>, offset: usize, bytes: usize) -> Self {
        debug_assert!(offset + bytes <= memory.bytes && offset.is_multiple_of(256));
        DeviceBuffer { ptr: memory.ptr + offset as u64, bytes, _memory: memory.clone() }
    }

    /// Address on the device.
    pub(crate) fn ptr(&self) -> u64 {
        self.ptr
    }

    /// Size.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Page-locked host memory, which the device can copy from and to without waiting for the host.
pub(crate) struct PinnedBuffer {
    context: Arc<CudaContext>,
    ptr: *mut u8,
    bytes: usize,
}

// SAFETY: plain memory that belongs to this value alone.
unsafe impl Send for PinnedBuffer {}
// SAFETY: shared references only read.
unsafe impl Sync for PinnedBuffer {}

impl PinnedBuffer {
    /// Zeroed page-locked memory that the device can also address.
    pub(crate) fn new(context: &Arc<CudaContext>, bytes: usize) -> Result<Self, BackendError> {
        let bytes = bytes.max(1);
        context.bind_to_thread().map_err(device_error)?;
        // SAFETY: the context is current on this thread; the result is owned by the new value.
        let ptr = unsafe { result::malloc_host(bytes, sys::CU_MEMHOSTALLOC_DEVICEMAP) };
        let ptr = ptr.map_err(|error| {
            if is_out_of_memory(&error) {
                BackendError::OutOfMemory { what: "page-locked host memory", bytes }
            } else {
                device_error(error)
            }
        })?;
        let ptr = ptr.cast::<u8>();
        // SAFETY: `bytes` bytes were just allocated.
        unsafe { ptr.write_bytes(0, bytes) };
        Ok(PinnedBuffer { context: context.clone(), ptr, bytes })
    }

    /// Address, the same on host and device.
    pub(crate) fn ptr(&self) -> u64 {
        self.ptr as u64
    }

    /// Size.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The contents.
    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: initialised at allocation, `bytes` long, alive as long as `self`.
        unsafe { std::slice::from_raw_parts(self.ptr, self.bytes) }
    }

    /// The contents as words.
    pub(crate) fn words(&self) -> &[u32] {
        // SAFETY: page-locked memory is page-aligned, and every bit pattern is a `u32`.
        unsafe { self.as_slice().align_to::<u32>() }.1
    }

    /// The contents as words, to be changed.
    pub(crate) fn words_mut(&mut self) -> &mut [u32] {
        // SAFETY: as above.
        unsafe { self.as_mut_slice().align_to_mut::<u32>() }.1
    }

    /// The contents, to be changed.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.ptr, self.bytes) }
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: allocated by `new`, freed once.
            let _ = unsafe { result::free_host(self.ptr.cast()) };
        }
    }
}
