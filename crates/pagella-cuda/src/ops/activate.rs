//! Activation of gates, and the last touch on logits.

use pagella_arch::Activation;
use pagella_backend::BackendError;

use crate::device::{Device, KernelArgs, Launch};
use crate::tensor::Tensor;

/// `kernels/activate.cuh`.
#[repr(C)]
#[derive(Clone, Copy)]
struct ActivateArgs {
    gate: u64,
    up: u64,
    n: u64,
    act: u32,
    limit: f32,
}

// SAFETY: field for field the struct of the same name in `kernels/activate.cuh`.
unsafe impl KernelArgs for ActivateArgs {}

/// `kernels/activate.cuh`.
#[repr(C)]
#[derive(Clone, Copy)]
struct GateArgs {
    gate: u64,
    x: u64,
    n: u64,
    run: u32,
    pad: u32,
}

// SAFETY: field for field the struct of the same name in `kernels/activate.cuh`.
unsafe impl KernelArgs for GateArgs {}

/// `kernels/activate.cuh`.
#[repr(C)]
#[derive(Clone, Copy)]
struct FinishLogitsArgs {
    logits: u64,
    n: u64,
    scale: f32,
    softcap: f32,
}

// SAFETY: field for field the struct of the same name in `kernels/activate.cuh`.
unsafe impl KernelArgs for FinishLogitsArgs {}

/// `gate = act(gate) · up` on the first `tokens` rows, padding included; without `up`:
/// `gate = act(gate)`.
pub(crate) fn activate(
    device: &Device,
    tokens: usize,
    act: Activation,
    gate: &mut Tensor,
    up: Option<&Tensor>,
) -> Result<(), BackendError> {
    let n = tokens as u64 * gate.width as u64;
    let (act, limit) = numbered(act);
    let args = ActivateArgs { gate: gate.ptr(), up: up.map_or(0, Tensor::ptr), n, act, limit };
    device.launch("pg_activate", elementwise(device, n.div_ceil(4)), &args)
}

/// The activation as kernels count them, and the limit of the one that has a limit.
pub(crate) fn numbered(act: Activation) -> (u32, f32) {
    match act {
        Activation::Silu => (0, 0.0),
        Activation::GeluTanh => (1, 0.0),
        Activation::GeluErf => (2, 0.0),
        Activation::QuickGelu => (3, 0.0),
        Activation::Relu2 => (4, 0.0),
        Activation::ClampedSwiglu { limit } => (5, limit),
    }
}

/// `x[i, j] ·= σ(gate[i, ⌊j · n / width⌋])` on the first `tokens` rows, padding included.
pub(crate) fn gate(
    device: &Device,
    tokens: usize,
    gate: &Tensor,
    x: &mut Tensor,
) -> Result<(), BackendError> {
    let (gates, width) = (gate.width, x.width);
    if gates == 0 || !width.is_multiple_of(gates) {
        return Err(BackendError::Size { what: "gates per row", expected: width, found: gates });
    }
    let n = tokens as u64 * width as u64;
    let args = GateArgs { gate: gate.ptr(), x: x.ptr(), n, run: (width / gates) as u32, pad: 0 };
    device.launch("pg_gate", elementwise(device, n), &args)
}

/// `x = softcap(scale · x)` on the first `rows` rows.
pub(crate) fn finish_logits(
    device: &Device,
    rows: usize,
    scale: f32,
    softcap: Option<f32>,
    logits: &mut Tensor,
) -> Result<(), BackendError> {
    if scale == 1.0 && softcap.is_none() {
        return Ok(());
    }
    let n = rows as u64 * logits.width as u64;
    let args = FinishLogitsArgs { logits: logits.ptr(), n, scale, softcap: softcap.unwrap_or(0.0) };
    device.launch("pg_finish_logits", elementwise(device, n), &args)
}

/// Enough blocks for `n` turns of a thread, and no more than the device holds at once.
fn elementwise(device: &Device, n: u64) -> Launch {
    let blocks = n.div_ceil(256).clamp(1, u64::from(device.limits.sms) * 8);
    Launch::linear(blocks as u32, 256)
}
