//! How fast the device reads its memory: the limit of writing one token at a time.

use pagella_backend::BackendError;

use crate::device::{Device, KernelArgs, Launch};
use crate::error::device_error;

/// Far more than any cache holds.
const BYTES: usize = 2 << 30;
/// Passes whose best counts.
const PASSES: usize = 5;

/// `kernels/bandwidth.cuh`.
#[repr(C)]
#[derive(Clone, Copy)]
struct ReadArgs {
    data: u64,
    sink: u64,
    n: u64,
}

// SAFETY: field for field the struct of the same name in `kernels/bandwidth.cuh`.
unsafe impl KernelArgs for ReadArgs {}

/// Bytes per second that device `ordinal` reads from its memory.
pub fn read_speed(ordinal: usize) -> Result<f64, BackendError> {
    let device = Device::open(ordinal)?;
    let data = device.zeroed(BYTES, "measuring the memory")?;
    let sink = device.zeroed(4, "measuring the memory")?;
    let args = ReadArgs { data: data.ptr(), sink: sink.ptr(), n: (BYTES / 16) as u64 };
    let launch = Launch::linear(device.limits.sms * 8, 256);
    let event = || {
        let flags = Some(cudarc::driver::sys::CUevent_flags::CU_EVENT_DEFAULT);
        device.stream.record_event(flags).map_err(device_error)
    };
    device.launch("pg_read", launch, &args)?;
    let mut best = f64::INFINITY;
    for _ in 0..PASSES {
        let start = event()?;
        device.launch("pg_read", launch, &args)?;
        let end = event()?;
        let milliseconds = start.elapsed_ms(&end).map_err(device_error)?;
        best = best.min(f64::from(milliseconds) / 1e3);
    }
    Ok(BYTES as f64 / best)
}
