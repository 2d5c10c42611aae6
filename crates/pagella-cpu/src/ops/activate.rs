//! Activation of gates, and the last touch on logits.

use pagella_arch::Activation;
use pagella_backend::BackendError;

use super::lanes::{load_part, store_part};
use crate::Tensor;
use crate::simd::{Isa, Kernel, LANES, Simd, math};
use crate::threads::{Pool, Shares};

/// `gate = act(gate) · up` on the first `tokens` rows; without `up`: `gate = act(gate)`.
pub(crate) fn activate(
    isa: Isa,
    pool: &Pool,
    tokens: usize,
    act: Activation,
    gate: &mut Tensor,
    up: Option<&Tensor>,
) -> Result<(), BackendError> {
    let width = gate.width;
    gate.expect("gate", tokens, width)?;
    if let Some(up) = up {
        up.expect("up", tokens, width)?;
    }
    activate_rows(isa, pool, tokens, width, act, &mut gate.data, up.map(|up| &up.data[..]))
}

/// [`activate`] on plain slices, `[rows, width]` each.
pub(crate) fn activate_rows(
    isa: Isa,
    pool: &Pool,
    rows: usize,
    width: usize,
    act: Activation,
    gate: &mut [f32],
    up: Option<&[f32]>,
) -> Result<(), BackendError> {
    let shares = Shares::new(gate);
    pool.run(rows, &|i| {
        let row = i * width..(i + 1) * width;
        let up = up.map(|up| &up[row.clone()]);
        // SAFETY: every task has its own row.
        let gate = unsafe { shares.part(row) };
        isa.run(Activate { act, gate, up });
    })
}

/// `x = softcap(scale · x)` on the first `rows` rows.
pub(crate) fn finish_logits(
    isa: Isa,
    pool: &Pool,
    rows: usize,
    scale: f32,
    softcap: Option<f32>,
    logits: &mut Tensor,
) -> Result<(), BackendError> {
    let width = logits.width;
    logits.expect("logits", rows, width)?;
    if scale == 1.0 && softcap.is_none() {
        return Ok(());
    }
    let shares = Shares::new(&mut logits.data);
    pool.run(rows, &|i| {
        // SAFETY: every task has its own row.
        let row = unsafe { shares.part(i * width..(i + 1) * width) };
        isa.run(ScaleCap { scale, softcap, row });
    })
}

/// A function of one vector.
trait Function {
    /// # Safety
    /// As for [`Simd`].
    unsafe fn at<S: Simd>(x: S::F) -> S::F;
}

macro_rules! functions {
    ($($name:ident = $f:ident;)*) => {$(
        struct $name;
        impl Function for $name {
            #[inline(always)]
            unsafe fn at<S: Simd>(x: S::F) -> S::F {
                // SAFETY: passed on to the caller.
                unsafe { math::$f::<S>(x) }
            }
        }
    )*};
}

functions! {
    Silu = silu;
    GeluTanh = gelu_tanh;
    GeluErf = gelu_erf;
    QuickGelu = quick_gelu;
    Relu2 = relu2;
}

struct Activate<'a> {
    act: Activation,
    gate: &'a mut [f32],
    /// As long as `gate`.
    up: Option<&'a [f32]>,
}

impl Kernel for Activate<'_> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: `walk` stays inside the slices, which are equally long.
        unsafe {
            match self.act {
                Activation::Silu => self.walk::<S, Silu>(),
                Activation::GeluTanh => self.walk::<S, GeluTanh>(),
                Activation::GeluErf => self.walk::<S, GeluErf>(),
                Activation::QuickGelu => self.walk::<S, QuickGelu>(),
                Activation::Relu2 => self.walk::<S, Relu2>(),
                Activation::ClampedSwiglu { limit } => self.clamped::<S>(limit),
            }
        }
    }
}

impl Activate<'_> {
    /// # Safety
    /// As for [`Simd`].
    #[inline(always)]
    unsafe fn walk<S: Simd, A: Function>(self) {
        let (len, gate) = (self.gate.len(), self.gate.as_mut_ptr());
        let up = self.up.map(<[f32]>::as_ptr);
        for start in (0..len).step_by(LANES) {
            let n = len - start;
            // SAFETY: `start + min(n, 16)` stays within both slices.
            unsafe {
                let mut y = A::at::<S>(load_part::<S>(gate.add(start), n, 0.0));
                if let Some(up) = up {
                    y = S::mul(y, load_part::<S>(up.add(start), n, 0.0));
                }
                store_part::<S>(gate.add(start), n, y);
            }
        }
    }
}

impl Activate<'_> {
    /// `g · sigmoid(1.702 g) · (u + 1)`, clamped before.
    ///
    /// # Safety
    /// As for [`Simd`].
    #[inline(always)]
    unsafe fn clamped<S: Simd>(self, limit: f32) {
        let (len, gate) = (self.gate.len(), self.gate.as_mut_ptr());
        let up = self.up.map(<[f32]>::as_ptr);
        for start in (0..len).step_by(LANES) {
            let n = len - start;
            // SAFETY: `start + min(n, 16)` stays within both slices. The order of operands lets NaN
            // through.
            unsafe {
                let high = S::splat(limit);
                let g = S::min(high, load_part::<S>(gate.add(start), n, 0.0));
                let u = match up {
                    Some(up) => load_part::<S>(up.add(start), n, 0.0),
                    None => S::splat(0.0),
                };
                let u = S::min(high, S::max(S::splat(-limit), u));
                let y = S::mul(math::quick_gelu::<S>(g), S::add(u, S::splat(1.0)));
                store_part::<S>(gate.add(start), n, y);
            }
        }
    }
}

/// See [`pagella_backend::Backend::gate`].
pub(crate) fn gate(
    isa: Isa,
    pool: &Pool,
    tokens: usize,
    gate: &Tensor,
    x: &mut Tensor,
) -> Result<(), BackendError> {
    let (gates, width) = (gate.width, x.width);
    gate.expect("gates", tokens, gates)?;
    x.expect("gated rows", tokens, width)?;
    if gates == 0 || !width.is_multiple_of(gates) {
        return Err(BackendError::Size { what: "gates per row", expected: width, found: gates });
    }
    let shares = Shares::new(&mut x.data);
    pool.run(tokens, &|i| {
        // SAFETY: every task has its own row.
        let row = unsafe { shares.part(i * width..(i + 1) * width) };
        isa.run(Gate { gates: gate.row(i), row });
    })
}

struct Gate<'a> {
    gates: &'a [f32],
    /// A multiple of as many.
    row: &'a mut [f32],
}

impl Kernel for Gate<'_> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let part = self.row.len() / self.gates.len();
        for (gate, row) in self.gates.iter().zip(self.row.chunks_exact_mut(part)) {
            let x = row.as_mut_ptr();
            // SAFETY: `start + min(part − start, 16)` stays within the part.
            unsafe {
                let factor = math::sigmoid::<S>(S::splat(*gate));
                for start in (0..part).step_by(LANES) {
                    let n = part - start;
                    let y = S::mul(load_part::<S>(x.add(start), n, 0.0), factor);
                    store_part::<S>(x.add(start), n, y);
                }
            }
        }
    }
}

struct ScaleCap<'a> {
    scale: f32,
    softcap: Option<f32>,
    row: &'a mut [f32],
}

impl Kernel for ScaleCap<'_> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let (len, row) = (self.row.len(), self.row.as_mut_ptr());
        for start in (0..len).step_by(LANES) {
            let n = len - start;
            // SAFETY: `start + min(n, 16)` stays within the row.
            unsafe {
                let x = load_part::<S>(row.add(start), n, 0.0);
                let mut y = S::mul(x, S::splat(self.scale));
                if let Some(cap) = self.softcap {
                    y = math::softcap::<S>(y, S::splat(cap));
                }
                store_part::<S>(row.add(start), n, y);
            }
        }
    }
}

#[cfg(test)]
mod tests;
