//! Root-mean-square and layer norms.
//!
//! Sums have the canonical order: 16 lane accumulators (element index mod 16), elements ascending,
//! then a tree. A row that is no multiple of 16 wide ends with absent lanes, which add nothing.

use pagella_arch::NormKind;
use pagella_backend::{BackendError, NormWeights};

use super::lanes::{load_part, store_part};
use crate::Tensor;
use crate::account::Claim;
use crate::simd::{Isa, Kernel, LANES, Simd};
use crate::threads::{Pool, Shares};

/// A norm's weights.
pub struct CpuNorm {
    kind: NormKind,
    eps: f32,
    /// `[width]`, or `[heads, width]` for per-head norms.
    weight: Vec<f32>,
    /// Same shape.
    bias: Option<Vec<f32>>,
    /// Its bytes, where somebody keeps books.
    pub(crate) _claim: Claim,
}

impl CpuNorm {
    pub(crate) fn new(weights: NormWeights) -> Result<Self, BackendError> {
        let NormWeights { kind, eps, weight, bias } = weights;
        if let Some(bias) = &bias
            && bias.len() != weight.len()
        {
            let (expected, found) = (weight.len(), bias.len());
            return Err(BackendError::Size { what: "norm bias", expected, found });
        }
        Ok(CpuNorm { kind, eps, weight, bias, _claim: Claim::default() })
    }

    /// Bytes that it holds.
    pub(crate) fn bytes(&self) -> usize {
        4 * (self.weight.len() + self.bias.as_ref().map_or(0, Vec::len))
    }

    /// Checks that the norm fits rows of `width`.
    pub(crate) fn expect(&self, width: usize) -> Result<(), BackendError> {
        self.expect_heads(1, width)
    }

    /// Checks that the norm fits `heads` heads of `width`: one weight for all, or one for each.
    pub(crate) fn expect_heads(&self, heads: usize, width: usize) -> Result<(), BackendError> {
        let found = self.weight.len();
        if found == width || found == heads * width {
            return Ok(());
        }
        Err(BackendError::Size { what: "norm weight", expected: width, found })
    }

    /// The part for head `head` of `width`, as the kernels take it.
    pub(crate) fn head(&self, head: usize, width: usize) -> NormArgs<'_> {
        let start = if self.weight.len() == width { 0 } else { head * width };
        let part = |v: &'_ [f32]| -> *const f32 { v[start..start + width].as_ptr() };
        NormArgs {
            kind: self.kind,
            eps: self.eps,
            weight: part(&self.weight),
            bias: self.bias.as_deref().map(part),
            width,
            _owner: std::marker::PhantomData,
        }
    }
}

/// A norm of one row, resolved. Pointers hold `width` elements.
#[derive(Clone, Copy)]
pub(crate) struct NormArgs<'a> {
    kind: NormKind,
    eps: f32,
    weight: *const f32,
    bias: Option<*const f32>,
    width: usize,
    _owner: std::marker::PhantomData<&'a CpuNorm>,
}

/// `out = norm(x)` for one row; the norm must fit its width.
pub(crate) fn norm_row(isa: Isa, norm: &CpuNorm, x: &[f32], out: &mut [f32]) {
    assert_eq!(x.len(), out.len(), "norm of one row");
    let args = norm.head(0, x.len());
    isa.run(NormRow { args, x: x.as_ptr(), out: out.as_mut_ptr(), add_scaled: None });
}

/// `x = norm(x)` for the first `tokens` rows; the norm must fit their width.
pub(crate) fn norm_rows_in_place(
    isa: Isa,
    pool: &Pool,
    tokens: usize,
    norm: &CpuNorm,
    x: &mut Tensor,
) -> Result<(), BackendError> {
    let width = x.width;
    let shares = Shares::new(&mut x.data);
    pool.run(tokens, &|i| {
        // SAFETY: every task has its own row.
        let row = unsafe { shares.part(i * width..(i + 1) * width) };
        let (x, out) = (row.as_ptr(), row.as_mut_ptr());
        isa.run(NormRow { args: norm.head(0, width), x, out, add_scaled: None });
    })
}

/// `residual += scale · norm(x)` for the first `tokens` rows.
pub(crate) fn norm_add(
    isa: Isa,
    pool: &Pool,
    tokens: usize,
    norm: &CpuNorm,
    x: &Tensor,
    scale: f32,
    residual: &mut Tensor,
) -> Result<(), BackendError> {
    let width = x.width;
    norm.expect(width)?;
    x.expect("norm input", tokens, width)?;
    residual.expect("residual", tokens, width)?;
    let shares = Shares::new(&mut residual.data);
    pool.run(tokens, &|i| {
        // SAFETY: every task has its own row.
        let out = unsafe { shares.part(i * width..(i + 1) * width) };
        let (args, x) = (norm.head(0, width), x.row(i).as_ptr());
        isa.run(NormRow { args, x, out: out.as_mut_ptr(), add_scaled: Some(scale) });
    })
}

/// One row; `x` and `out` hold `args.width` elements and may be the same.
struct NormRow<'a> {
    args: NormArgs<'a>,
    x: *const f32,
    out: *mut f32,
    add_scaled: Option<f32>,
}

impl Kernel for NormRow<'_> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let NormRow { args, x, out, add_scaled } = self;
        // SAFETY: the fields' contract.
        unsafe {
            match add_scaled {
                None => normalize::<S>(&args, x, out),
                Some(scale) => {
                    let (mean, factor) = moments::<S>(&args, x);
                    let scale = S::splat(scale);
                    for start in (0..args.width).step_by(LANES) {
                        let n = args.width - start;
                        let y = element::<S>(&args, x, start, mean, factor);
                        let old = load_part::<S>(out.add(start), n, 0.0);
                        store_part::<S>(out.add(start), n, S::fma(scale, y, old));
                    }
                }
            }
        }
    }
}

/// `out = norm(x)`; both hold `args.width` elements and may be the same.
///
/// # Safety
/// As for [`Simd`]; pointers as stated.
#[inline(always)]
pub(crate) unsafe fn normalize<S: Simd>(args: &NormArgs<'_>, x: *const f32, out: *mut f32) {
    // SAFETY: offsets stay below `width`.
    unsafe {
        let (mean, factor) = moments::<S>(args, x);
        for start in (0..args.width).step_by(LANES) {
            let y = element::<S>(args, x, start, mean, factor);
            store_part::<S>(out.add(start), args.width - start, y);
        }
    }
}

/// Mean (0 for RMS) and `1 / sqrt(mean square + eps)`.
///
/// # Safety
/// As for [`normalize`].
#[inline(always)]
unsafe fn moments<S: Simd>(args: &NormArgs<'_>, x: *const f32) -> (f32, f32) {
    let width = args.width;
    // SAFETY: offsets stay below `width`.
    unsafe {
        let mut mean = 0.0;
        if args.kind == NormKind::Layer {
            let mut sum = S::splat(0.0);
            for start in (0..width).step_by(LANES) {
                sum = S::add(sum, load_part::<S>(x.add(start), width - start, 0.0));
            }
            mean = S::sum(sum) / width as f32;
        }
        let mut squares = S::splat(0.0);
        for start in (0..width).step_by(LANES) {
            // An absent lane is the mean: it differs by nothing.
            let v = load_part::<S>(x.add(start), width - start, mean);
            let v = S::sub(v, S::splat(mean));
            squares = S::fma(v, v, squares);
        }
        (mean, 1.0 / (S::sum(squares) / width as f32 + args.eps).sqrt())
    }
}

/// 16 normalised elements from `start` on.
///
/// # Safety
/// As for [`normalize`]; `start` is below `width`.
#[inline(always)]
unsafe fn element<S: Simd>(
    args: &NormArgs<'_>,
    x: *const f32,
    start: usize,
    mean: f32,
    factor: f32,
) -> S::F {
    let n = args.width - start;
    // SAFETY: offsets stay below `width`.
    unsafe {
        let centred = S::sub(load_part::<S>(x.add(start), n, 0.0), S::splat(mean));
        let scaled = S::mul(centred, S::splat(factor));
        let weight = load_part::<S>(args.weight.add(start), n, 0.0);
        match args.bias {
            None => S::mul(scaled, weight),
            Some(bias) => S::fma(scaled, weight, load_part::<S>(bias.add(start), n, 0.0)),
        }
    }
}

#[cfg(test)]
mod tests;
