//! The compiled kernels: modules embedded at build time, functions found by name on first use.

use std::collections::HashMap;
use std::ffi::{CStr, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::{CudaContext, result, sys};
use pagella_backend::BackendError;

use crate::device::Launch;
use crate::error::device_error;
use crate::limits::{HELD_ENV, Limits};
use crate::overlap::may_overlap;

#[cfg(pagella_kernels)]
mod embedded {
    include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
}
#[cfg(not(pagella_kernels))]
mod embedded {
    pub static MODULES: &[(&str, &[u8])] = &[];
}

/// Whether this build carries kernels at all.
pub fn kernels_are_built() -> bool {
    !embedded::MODULES.is_empty()
}

/// A function on the device.
#[derive(Clone, Copy)]
pub(crate) struct Function {
    pub(crate) handle: sys::CUfunction,
    /// Whether it may start before the kernels before it have ended.
    pub(crate) overlaps: bool,
    /// Most dynamic shared memory, after what it declares for itself.
    shared_bytes_max: u32,
    /// Most threads of a block, by its registers.
    threads_max: u32,
}

impl Function {
    /// Refuses a launch that the device would refuse without saying why.
    pub(crate) fn expect_room(&self, name: &str, launch: &Launch) -> Result<(), BackendError> {
        let Launch { threads, shared_bytes, .. } = launch;
        if *shared_bytes <= self.shared_bytes_max && *threads <= self.threads_max {
            return Ok(());
        }
        Err(BackendError::unsupported(
            "cuda",
            format!(
                "launching {name} with {shared_bytes} bytes of shared memory and {threads} threads"
            ),
            format!(
                "this device allows it {} bytes and {} threads: please report the model and the GPU",
                self.shared_bytes_max, self.threads_max
            ),
        ))
    }
}

// SAFETY: a handle that the driver lets every thread use.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

struct Handle(sys::CUfunction);

// SAFETY: a handle that the driver lets every thread use.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

struct Module(sys::CUmodule);

// SAFETY: a handle that the driver lets every thread use.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

/// Modules of one context and the functions in them.
pub(crate) struct Kernels {
    context: Arc<CudaContext>,
    modules: Vec<Module>,
    functions: HashMap<String, Handle>,
    /// Functions that were prepared, by name.
    ready: Mutex<HashMap<&'static str, Function>>,
    limits: Limits,
}

impl Kernels {
    /// Loads every module that has code for this device. Code of a function is loaded by the driver
    /// when it is first used.
    pub(crate) fn load(context: &Arc<CudaContext>, limits: Limits) -> Result<Self, BackendError> {
        context.bind_to_thread().map_err(device_error)?;
        let mut kernels = Kernels {
            context: context.clone(),
            modules: Vec::new(),
            functions: HashMap::new(),
            ready: Mutex::default(),
            limits,
        };
        for (name, image) in embedded::MODULES {
            if !crate::probe::has_code(name, limits.capability) {
                continue; // Made for other chips; this one has kernels for the same work.
            }
            // SAFETY: the context is current, and the image is a complete fatbin made by nvcc.
            let module = unsafe { result::module::load_data(image.as_ptr().cast::<c_void>()) };
            let module = module.map_err(device_error)?;
            kernels.modules.push(Module(module));
            kernels.list(module)?;
        }
        if kernels.functions.is_empty() {
            return Err(BackendError::unsupported(
                "cuda",
                "running on this device",
                "this build has no kernels for it; `pagella doctor` says what is missing",
            ));
        }
        Ok(kernels)
    }

    /// Notes the functions of a module.
    fn list(&mut self, module: sys::CUmodule) -> Result<(), BackendError> {
        let mut count = 0;
        // SAFETY: the module was loaded just now, and the count is written.
        unsafe { sys::cuModuleGetFunctionCount(&mut count, module) }
            .result()
            .map_err(device_error)?;
        let mut found = vec![std::ptr::null_mut(); count as usize];
        // SAFETY: there is room for `count` functions.
        unsafe { sys::cuModuleEnumerateFunctions(found.as_mut_ptr(), count, module) }
            .result()
            .map_err(device_error)?;
        for function in found {
            let mut name = std::ptr::null();
            // SAFETY: the function is of a loaded module; its name lives as long as that.
            let name = unsafe {
                sys::cuFuncGetName(&mut name, function).result().map_err(device_error)?;
                CStr::from_ptr(name)
            };
            self.functions.insert(name.to_string_lossy().into_owned(), Handle(function));
        }
        Ok(())
    }

    /// Whether there is code of that name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.functions.contains_key(name)
    }

    /// The function of that name, allowed all shared memory on first use.
    pub(crate) fn get(&self, name: &'static str) -> Result<Function, BackendError> {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = ready.get(name) {
            return Ok(*function);
        }
        let handle = self.functions.get(name).map(|function| function.0).ok_or_else(|| {
            BackendError::Device {
                backend: "cuda",
                message: format!("this build has no kernel {name} for the device"),
            }
        })?;
        // SAFETY: the handle is valid; static shared memory counts towards the same limit.
        let function = unsafe {
            use sys::CUfunction_attribute::{
                CU_FUNC_ATTRIBUTE_BINARY_VERSION as BINARY,
                CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as DYNAMIC,
                CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK as THREADS,
                CU_FUNC_ATTRIBUTE_PTX_VERSION as PTX,
                CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES as STATIC,
            };
            let attribute = |which| {
                result::function::get_function_attribute(handle, which).map_err(device_error)
            };
            let own_bytes = attribute(STATIC)?.unsigned_abs();
            let shared_bytes_max = self.limits.shared_bytes_max.saturating_sub(own_bytes);
            result::function::set_function_attribute(handle, DYNAMIC, shared_bytes_max as i32)
                .map_err(device_error)?;
            let ptx = attribute(PTX)?;
            self.expect_code_of_chip(name, ptx)?;
            Function {
                handle,
                overlaps: may_overlap(name, attribute(BINARY)?, ptx),
                shared_bytes_max,
                threads_max: attribute(THREADS)?.unsigned_abs(),
            }
        };
        ready.insert(name, function);
        Ok(function)
    }
}

impl Kernels {
    /// On a device that is held to the limits of an earlier chip: refuses code that this chip could
    /// not run, which would make the trial worthless. `ptx`: what the code was made from, e.g. 90.
    fn expect_code_of_chip(&self, name: &str, ptx: i32) -> Result<(), BackendError> {
        let (major, minor) = self.limits.capability;
        if ptx.unsigned_abs() <= 10 * major + minor {
            return Ok(());
        }
        Err(BackendError::unsupported(
            "cuda",
            format!("{HELD_ENV}={major}.{minor} with {name} made for compute_{ptx}"),
            "build with PAGELLA_CUDA_ARCHS=compute_80:sm_90",
        ))
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            for module in &self.modules {
                // SAFETY: loaded by `load`; nothing can use its functions any longer.
                let _ = unsafe { result::module::unload(module.0) };
            }
        }
    }
}
