//! The compiled kernels: modules embedded at build time, functions found by name on first use.

use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::{CudaContext, result, sys};
use pagella_backend::BackendError;

use crate::error::device_error;

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
pub(crate) struct Function(pub(crate) sys::CUfunction);

// SAFETY: a handle that the driver lets every thread use.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

struct Module(sys::CUmodule);

// SAFETY: a handle that the driver lets every thread use.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

/// Modules of one context.
pub(crate) struct Kernels {
    context: Arc<CudaContext>,
    modules: Vec<Module>,
    functions: Mutex<HashMap<&'static str, Function>>,
    /// Most shared memory a function may ask for.
    shared_bytes_max: u32,
}

impl Kernels {
    /// Loads every module that has code for this device.
    pub(crate) fn load(
        context: &Arc<CudaContext>,
        shared_bytes_max: u32,
    ) -> Result<Self, BackendError> {
        context.bind_to_thread().map_err(device_error)?;
        let mut modules = Vec::new();
        for (_, image) in embedded::MODULES {
            // SAFETY: the context is current, and the image is a complete fatbin made by nvcc.
            match unsafe { result::module::load_data(image.as_ptr().cast::<c_void>()) } {
                Ok(module) => modules.push(Module(module)),
                // Code for one generation of chips; others have their own kernels for the same work.
                Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU => {}
                Err(error) => return Err(device_error(error)),
            }
        }
        if modules.is_empty() {
            return Err(BackendError::Unsupported {
                backend: "cuda",
                what: "running on this device".into(),
                hint: "this build has no kernels for it; `pagella doctor` says what is missing".into(),
            });
        }
        let functions = Mutex::default();
        Ok(Kernels { context: context.clone(), modules, functions, shared_bytes_max })
    }

    /// The function of that name, loaded and allowed all shared memory on first use.
    pub(crate) fn get(&self, name: &'static str) -> Result<Function, BackendError> {
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = functions.get(name) {
            return Ok(*function);
        }
        let function = self.find(name)?;
        functions.insert(name, function);
        Ok(function)
    }

    fn find(&self, name: &'static str) -> Result<Function, BackendError> {
        let missing = || BackendError::Device {
            backend: "cuda",
            message: format!("this build has no kernel {name} for the device"),
        };
        let c_name = CString::new(name).map_err(|_| missing())?;
        for module in &self.modules {
            // SAFETY: the module was loaded by `load` and is never unloaded while `self` lives.
            let Ok(function) = (unsafe { result::module::get_function(module.0, c_name.clone()) })
            else {
                continue;
            };
            // SAFETY: the handle is valid; static shared memory counts towards the same limit.
            unsafe {
                use sys::CUfunction_attribute::{
                    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as DYNAMIC,
                    CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES as STATIC,
                };
                let used = result::function::get_function_attribute(function, STATIC);
                let used = used.map_err(device_error)?;
                let most = self.shared_bytes_max as i32 - used;
                result::function::set_function_attribute(function, DYNAMIC, most)
                    .map_err(device_error)?;
            }
            return Ok(Function(function));
        }
        Err(missing())
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
