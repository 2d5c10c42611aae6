//! One device: its context, the stream everything runs on, its limits, and launching kernels.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream, result, sys};
use pagella_backend::BackendError;

use crate::error::device_error;
use crate::kernels::Kernels;
use crate::limits::Limits;
use crate::memory::DeviceBuffer;
use crate::probe;

/// One of the kernels that are compiled for warpgroups; a build has all of them or none.
const WARPGROUP_KERNEL: &str = "pg_prefill_w128";

/// Arguments of a kernel: one struct, laid out as the kernel declares it.
///
/// # Safety
/// The type is `#[repr(C)]`, has no padding that matters, and equals the kernel's parameter.
pub(crate) unsafe trait KernelArgs: Copy {}

/// How many threads a kernel gets, and how much shared memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Launch {
    /// Blocks of threads.
    pub(crate) grid: [u32; 3],
    /// Threads per block.
    pub(crate) threads: u32,
    /// Dynamic shared memory.
    pub(crate) shared_bytes: u32,
}

impl Launch {
    /// A grid of one dimension without shared memory.
    pub(crate) fn linear(blocks: u32, threads: u32) -> Self {
        Launch { grid: [blocks, 1, 1], threads, shared_bytes: 0 }
    }
}

/// A device that is ready to work.
pub(crate) struct Device {
    pub(crate) context: Arc<CudaContext>,
    pub(crate) stream: Arc<CudaStream>,
    pub(crate) kernels: Kernels,
    /// What kernels are chosen by.
    pub(crate) limits: Limits,
    /// As the driver calls it.
    pub(crate) name: String,
}

impl Device {
    /// Opens device `ordinal` and loads the kernels for it.
    pub(crate) fn open(ordinal: usize) -> Result<Self, BackendError> {
        probe::usable(ordinal)?;
        let context = CudaContext::new(ordinal).map_err(device_error)?;
        // SAFETY: everything runs on one stream, in order; the events that the crate would record
        // around every buffer could not be captured.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().map_err(device_error)?;
        let own = Limits::of(|which| context.attribute(which)).map_err(device_error)?;
        let limits = own.allowed()?;
        Ok(Device {
            kernels: Kernels::load(&context, limits)?,
            limits,
            name: context.name().map_err(device_error)?,
            context,
            stream,
        })
    }

    /// Whether kernels for warpgroups can run: the chip has the instructions, and the build the code.
    pub(crate) fn has_wgmma(&self) -> bool {
        self.limits.has_wgmma() && self.kernels.has(WARPGROUP_KERNEL)
    }

    /// Enqueues a kernel.
    pub(crate) fn launch<A: KernelArgs>(
        &self,
        name: &'static str,
        launch: Launch,
        args: &A,
    ) -> Result<(), BackendError> {
        let [x, y, z] = launch.grid;
        if x == 0 || y == 0 || z == 0 {
            return Ok(());
        }
        self.context.bind_to_thread().map_err(device_error)?;
        let function = self.kernels.get(name)?;
        function.expect_room(name, &launch)?;
        let mut params = [std::ptr::from_ref(args).cast_mut().cast()];
        // SAFETY: `KernelArgs` promises that the struct is what the kernel takes; the driver copies
        // it before returning. That its pointers are valid is the duty of each op, which checks
        // sizes and keeps buffers alive until the stream has passed.
        unsafe {
            if !function.overlaps {
                return result::launch_kernel(
                    function.handle,
                    (x, y, z),
                    (launch.threads, 1, 1),
                    launch.shared_bytes,
                    self.stream.cu_stream(),
                    &mut params,
                )
                .map_err(device_error);
            }
            let mut overlap = overlap_attribute();
            let config = sys::CUlaunchConfig {
                gridDimX: x,
                gridDimY: y,
                gridDimZ: z,
                blockDimX: launch.threads,
                blockDimY: 1,
                blockDimZ: 1,
                sharedMemBytes: launch.shared_bytes,
                hStream: self.stream.cu_stream(),
                attrs: &mut overlap,
                numAttrs: 1,
            };
            sys::cuLaunchKernelEx(
                &config,
                function.handle,
                params.as_mut_ptr(),
                std::ptr::null_mut(),
            )
            .result()
            .map_err(device_error)
        }
    }

    /// Uninitialised memory on the device.
    pub(crate) fn alloc(
        &self,
        bytes: usize,
        what: &'static str,
    ) -> Result<DeviceBuffer, BackendError> {
        DeviceBuffer::new(&self.context, bytes, what)
    }

    /// Zeroed memory on the device.
    pub(crate) fn zeroed(
        &self,
        bytes: usize,
        what: &'static str,
    ) -> Result<DeviceBuffer, BackendError> {
        let buffer = self.alloc(bytes, what)?;
        // SAFETY: the buffer has that many bytes; it is used only after this in stream order.
        unsafe {
            result::memset_d8_async(buffer.ptr(), 0, buffer.bytes(), self.stream.cu_stream())
        }
        .map_err(device_error)?;
        Ok(buffer)
    }

    /// Memory on the device with a copy of `values`.
    pub(crate) fn upload<T: Copy>(
        &self,
        values: &[T],
        what: &'static str,
    ) -> Result<DeviceBuffer, BackendError> {
        let buffer = self.alloc(std::mem::size_of_val(values), what)?;
        self.write(&buffer, 0, values)?;
        Ok(buffer)
    }

    /// Copies `values` to `offset` bytes into `buffer`; the values may change afterwards.
    pub(crate) fn write<T: Copy>(
        &self,
        buffer: &DeviceBuffer,
        offset: usize,
        values: &[T],
    ) -> Result<(), BackendError> {
        let bytes = std::mem::size_of_val(values);
        expect_room("copy to the device", buffer, offset, bytes)?;
        self.context.bind_to_thread().map_err(device_error)?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the range was checked. The source is pageable, so the driver has read it when the
        // call returns; waiting makes that hold for every kind of memory.
        unsafe {
            let target = buffer.ptr() + offset as u64;
            result::memcpy_htod_async(target, values, self.stream.cu_stream())
        }
        .map_err(device_error)?;
        self.synchronize()
    }

    /// Copies from `offset` bytes into `buffer` to `out`, after everything enqueued so far.
    pub(crate) fn read<T: Copy>(
        &self,
        buffer: &DeviceBuffer,
        offset: usize,
        out: &mut [T],
    ) -> Result<(), BackendError> {
        let bytes = std::mem::size_of_val(out);
        expect_room("copy from the device", buffer, offset, bytes)?;
        self.context.bind_to_thread().map_err(device_error)?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the range was checked; `out` is not touched before the wait below.
        unsafe {
            let source = buffer.ptr() + offset as u64;
            result::memcpy_dtoh_async(out, source, self.stream.cu_stream())
        }
        .map_err(device_error)?;
        self.synchronize()
    }

    /// Whether everything enqueued so far is done.
    pub(crate) fn is_idle(&self) -> bool {
        // SAFETY: the stream lives as long as `self`.
        let state = unsafe { sys::cuStreamQuery(self.stream.cu_stream()) };
        state == sys::CUresult::CUDA_SUCCESS
    }

    /// Waits for everything enqueued so far.
    pub(crate) fn synchronize(&self) -> Result<(), BackendError> {
        self.stream.synchronize().map_err(device_error)
    }
}

/// Lets a kernel start while the one before it still runs; it waits for it by itself.
fn overlap_attribute() -> sys::CUlaunchAttribute {
    sys::CUlaunchAttribute {
        id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        pad: [0; 4],
        value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
    }
}

fn expect_room(
    what: &'static str,
    buffer: &DeviceBuffer,
    offset: usize,
    bytes: usize,
) -> Result<(), BackendError> {
    let end = offset.saturating_add(bytes);
    if end <= buffer.bytes() {
        return Ok(());
    }
    Err(BackendError::Size { what, expected: buffer.bytes(), found: end })
}
