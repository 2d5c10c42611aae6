//! Asking the driver. The bindings load its library on first use and panic when it, or a function
//! in it, is not there; so the library is tried first, and only functions that every driver of the
//! last ten years has are called before the driver's version is known to be new enough.

use cudarc::driver::{DriverError, result, sys};

use super::{Driver, Gpu, code};
use crate::limits::Limits;

/// The driver, if it can be loaded, and its devices.
pub(super) fn driver() -> Driver {
    // SAFETY: loads and unloads the library of the driver, whose initialisers may run at any time.
    if !unsafe { sys::is_culib_present() } {
        return Driver::Missing;
    }
    match ready() {
        Ok(driver) => driver,
        Err(error) => Driver::Broken { message: words(error) },
    }
}

fn ready() -> Result<Driver, DriverError> {
    let mut version = 0;
    // SAFETY: writes one integer; allowed before the driver is initialised.
    unsafe { sys::cuDriverGetVersion(&mut version) }.result()?;
    let version = version.unsigned_abs();
    let cuda = (version / 1000, version % 1000 / 10);
    let count = match result::init() {
        Ok(()) => result::device::get_count()?,
        Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NO_DEVICE => 0,
        Err(error) => return Err(error),
    };
    let gpus: Result<Vec<Gpu>, DriverError> = (0..count).map(|index| gpu(index, cuda)).collect();
    Ok(Driver::Ready { cuda, gpus: gpus? })
}

fn gpu(index: i32, cuda: (u32, u32)) -> Result<Gpu, DriverError> {
    let device = result::device::get(index)?;
    // SAFETY: the handle was just given out by the driver; it stays valid.
    let limits = Limits::of(|which| unsafe { result::device::get_attribute(device, which) })?;
    Ok(Gpu {
        name: result::device::get_name(device)?,
        limits,
        // SAFETY: as above.
        memory_bytes: unsafe { result::device::total_mem(device) }? as u64,
        free_bytes: None,
        code: code::for_device(limits.capability, cuda),
    })
}

/// Free memory of a device, by opening it for a moment. `None` when that fails, as it does when
/// another program holds the device for itself. Only after [`driver`] found it usable.
pub(super) fn free_bytes(index: usize) -> Option<u64> {
    let device = result::device::get(i32::try_from(index).ok()?).ok()?;
    let before = result::ctx::get_current().ok()?;
    // SAFETY: the handle is valid. The context is current only between here and the end, where what
    // was current before comes back; it is released once, as often as it was retained.
    unsafe {
        let context = result::primary_ctx::retain(device).ok()?;
        let free = result::ctx::set_current(context).and_then(|()| result::mem_get_info());
        let _ = result::ctx::set_current(before.unwrap_or(std::ptr::null_mut()));
        let _ = result::primary_ctx::release(device);
        free.ok().map(|(free, _)| free as u64)
    }
}

/// Whether a device that was found usable cannot be opened in this process, for another reason than
/// memory. Only after [`driver`] found it usable.
pub(super) fn is_lost(index: usize) -> bool {
    let Some(device) = i32::try_from(index).ok().and_then(|idx| result::device::get(idx).ok())
    else {
        return false;
    };
    let before = result::ctx::get_current().ok().flatten();
    let fails = |error: DriverError| error.0 != sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY;
    // SAFETY: the handle is valid. The context is current only between here and the end, where what
    // was current before comes back; it is released once, as often as it was retained.
    unsafe {
        let context = match result::primary_ctx::retain(device) {
            Ok(context) => context,
            Err(error) => return fails(error),
        };
        // A context that others still hold fails in whatever it is asked.
        let works = result::ctx::set_current(context).and_then(|()| result::ctx::synchronize());
        let _ = result::ctx::set_current(before.unwrap_or(std::ptr::null_mut()));
        let _ = result::primary_ctx::release(device);
        works.is_err_and(fails)
    }
}

/// What the driver calls an error.
fn words(error: DriverError) -> String {
    let text = error.error_string().ok().and_then(|text| text.to_str().ok());
    text.map_or_else(|| format!("{:?}", error.0), str::to_owned)
}
