//! Norms on the device.

use pagella_arch::NormKind;
use pagella_backend::{BackendError, NormWeights};

use crate::device::{Device, KernelArgs, Launch};
use crate::linear::Loader;
use crate::linear::args::NormArgs;
use crate::memory::DeviceBuffer;
use crate::tensor::Tensor;

/// Threads of a block that norms one row.
const THREADS: u32 = 256;

/// A norm's weights.
pub struct CudaNorm {
    weight: DeviceBuffer,
    bias: Option<DeviceBuffer>,
    kind: NormKind,
    eps: f32,
    /// Elements of `weight`: a width, or heads times a head's width.
    pub(crate) elements: usize,
}

/// `kernels/norm_add.cuh`.
#[repr(C)]
#[derive(Clone, Copy)]
struct NormAddArgs {
    norm: NormArgs,
    x: u64,
    residual: u64,
    width: u32,
    scale: f32,
}

// SAFETY: field for field the struct of the same name in `kernels/norm_add.cuh`.
unsafe impl KernelArgs for NormAddArgs {}

/// `kernels/norm_add.cuh`.
#[repr(C)]
#[derive(Clone, Copy)]
struct NormRowsArgs {
    norm: NormArgs,
    x: u64,
    width: u32,
    pad: u32,
}

// SAFETY: field for field the struct of the same name in `kernels/norm_add.cuh`.
unsafe impl KernelArgs for NormRowsArgs {}

impl CudaNorm {
    pub(crate) fn new(
        device: &Device,
        loader: &Loader,
        weights: &NormWeights,
    ) -> Result<Self, BackendError> {
        let NormWeights { kind, eps, weight, bias } = weights;
        if let Some(bias) = bias.as_ref().filter(|bias| bias.len() != weight.len()) {
            let (expected, found) = (weight.len(), bias.len());
            return Err(BackendError::Size { what: "norm bias", expected, found });
        }
        let upload = |values: &Vec<f32>| loader.upload(device, values, "norms");
        Ok(CudaNorm {
            weight: upload(weight)?,
            bias: bias.as_ref().map(upload).transpose()?,
            kind: *kind,
            eps: *eps,
            elements: weight.len(),
        })
    }

    /// Checks that rows of `width` can be normed.
    pub(crate) fn expect(&self, width: usize) -> Result<(), BackendError> {
        if self.elements == width {
            return Ok(());
        }
        Err(BackendError::Size { what: "norm", expected: width, found: self.elements })
    }

    pub(crate) fn args(&self) -> NormArgs {
        NormArgs {
            weight: self.weight.ptr(),
            bias: self.bias.as_ref().map_or(0, DeviceBuffer::ptr),
            eps: self.eps,
            kind: match self.kind {
                NormKind::Rms => 1,
                NormKind::Layer => 2,
            },
        }
    }
}

/// `residual += scale · norm(x)` on the first `tokens` rows.
pub(crate) fn norm_add(
    device: &Device,
    tokens: usize,
    norm: &CudaNorm,
    x: &Tensor,
    scale: f32,
    residual: &mut Tensor,
) -> Result<(), BackendError> {
    let args = NormAddArgs {
        norm: norm.args(),
        x: x.ptr(),
        residual: residual.ptr(),
        width: x.width as u32,
        scale,
    };
    device.launch("pg_norm_add", Launch::linear(tokens as u32, THREADS), &args)
}

/// `x = norm(x)` on the first `tokens` rows.
pub(crate) fn norm_rows(
    device: &Device,
    tokens: usize,
    norm: &CudaNorm,
    x: &mut Tensor,
) -> Result<(), BackendError> {
    norm.expect(x.width)?;
    let args = NormRowsArgs { norm: norm.args(), x: x.ptr(), width: x.width as u32, pad: 0 };
    device.launch("pg_norm_rows", Launch::linear(tokens as u32, THREADS), &args)
}
