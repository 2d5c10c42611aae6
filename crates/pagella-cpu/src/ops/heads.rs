//! Linears of heads: every head of a row goes through a small matrix of its own.
//!
//! Weights lie `[head][in][out]`, outputs rounded up to whole vectors, in the type that holds them.
//! Every output is one `fma` chain over the inputs, ascending, from 0, whatever the number of rows.

use std::ops::Range;

use pagella_backend::{BackendError, HeadWeights, TableDtype};

use super::attention::product::{Bf16, Element, Left, Product, pass_rows, rows_max};
use super::attention::scratch::with_scratch;
use crate::Tensor;
use crate::account::Claim;
use crate::memory::Aligned;
use crate::simd::{Isa, LANES};
use crate::threads::{Pool, Shares};

/// Tokens of a task: several passes over a matrix that is in the cache by then.
const TASK_TOKENS: usize = 48;

/// A matrix for every head.
pub struct CpuHeadLinear {
    heads: usize,
    in_features: usize,
    out_features: usize,
    /// Outputs, rounded up to whole vectors.
    padded: usize,
    weights: Weights,
    /// Its bytes, where somebody keeps books.
    pub(crate) _claim: Claim,
}

enum Weights {
    F16(Aligned<u16>),
    Bf16(Aligned<Bf16>),
    F32(Aligned<f32>),
}

impl CpuHeadLinear {
    pub(crate) fn new(source: &HeadWeights) -> Result<Self, BackendError> {
        let HeadWeights { heads, in_features, out_features, ref values, dtype } = *source;
        if heads * in_features * out_features != values.len() || values.is_empty() {
            let (expected, found) = (heads * in_features * out_features, values.len());
            return Err(BackendError::Size { what: "weights of heads", expected, found });
        }
        let padded = out_features.next_multiple_of(LANES);
        let shape = (in_features, out_features, padded);
        let narrow_f16 = |x| half::f16::from_f32(x).to_bits();
        let narrow_bf16 = |x| Bf16(half::bf16::from_f32(x).to_bits());
        let weights = match dtype {
            TableDtype::F16 => Weights::F16(lay_out(values, shape, narrow_f16)?),
            TableDtype::BF16 => Weights::Bf16(lay_out(values, shape, narrow_bf16)?),
            TableDtype::F32 => Weights::F32(lay_out(values, shape, |x| x)?),
        };
        let _claim = Claim::default();
        Ok(CpuHeadLinear { heads, in_features, out_features, padded, weights, _claim })
    }

    /// Bytes that it holds.
    pub(crate) fn bytes(&self) -> usize {
        match &self.weights {
            Weights::F16(weights) => weights.bytes(),
            Weights::Bf16(weights) => weights.bytes(),
            Weights::F32(weights) => weights.bytes(),
        }
    }

    /// Inputs of every matrix.
    pub(crate) fn in_features(&self) -> usize {
        self.in_features
    }

    /// Outputs of every matrix, rounded up to whole vectors.
    pub(crate) fn padded(&self) -> usize {
        self.padded
    }

    /// `rows` rows through the first matrix, in some of its columns, whole vectors of them: `x` is
    /// `[in][rows]`, `out` receives `[rows][columns]` or, if `resume`, goes on from what it holds.
    pub(crate) fn multiply(
        &self,
        isa: Isa,
        x: &[f32],
        rows: usize,
        columns: Range<usize>,
        resume: bool,
        out: &mut [f32],
    ) {
        match &self.weights {
            Weights::F16(weights) => self.product(isa, weights, x, rows, columns, resume, out),
            Weights::Bf16(weights) => self.product(isa, weights, x, rows, columns, resume, out),
            Weights::F32(weights) => self.product(isa, weights, x, rows, columns, resume, out),
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn product<E: Element>(
        &self,
        isa: Isa,
        weights: &[E],
        x: &[f32],
        rows: usize,
        columns: Range<usize>,
        resume: bool,
        out: &mut [f32],
    ) {
        let (depth, padded) = (self.in_features, self.padded);
        let width = columns.len();
        assert!(columns.start.is_multiple_of(LANES) && width.is_multiple_of(LANES));
        assert!(columns.end <= padded && x.len() >= depth * rows && out.len() >= rows * width);
        let matrix = &weights[..depth * padded];
        // SAFETY: by the assertions above `x` is `[in][rows]`, the columns are inside the matrix
        // `[in][padded]` and `out` is `[rows][columns]`; `rows` is what `pass_rows` gave.
        unsafe {
            let product = Product {
                left: Left::Packed,
                a: x.as_ptr(),
                b: matrix.as_ptr().add(columns.start),
                b_step: padded,
                depth,
                columns: width / LANES,
                out: out.as_mut_ptr(),
                out_step: width,
                resume,
                ahead: matrix.as_ptr_range().end.cast(),
            };
            product.run(isa, rows);
        }
    }

    /// Elements of a head beyond its inputs, checked against both sides.
    fn rest(&self, x: &Tensor, out: &Tensor) -> Result<usize, BackendError> {
        let (taken, given) = (self.heads * self.in_features, self.heads * self.out_features);
        let size = |what, expected, found| Err(BackendError::Size { what, expected, found });
        if x.width < taken || !x.width.is_multiple_of(self.heads) {
            return size("input of heads", taken, x.width);
        }
        let passed = x.width - taken;
        if out.width != given + passed {
            return size("output of heads", given + passed, out.width);
        }
        Ok(passed / self.heads)
    }
}

/// `[heads, out, in]` to `[heads][in][padded]`.
fn lay_out<E: Copy + Default>(
    values: &[f32],
    (inputs, outputs, padded): (usize, usize, usize),
    narrow: impl Fn(f32) -> E,
) -> Result<Aligned<E>, BackendError> {
    let heads = values.len() / (inputs * outputs);
    let mut weights = Aligned::zeroed(heads * inputs * padded, "linears of heads")?;
    let matrices = weights.chunks_exact_mut(inputs * padded);
    for (matrix, source) in matrices.zip(values.chunks_exact(inputs * outputs)) {
        for (o, row) in source.chunks_exact(inputs).enumerate() {
            for (i, value) in row.iter().enumerate() {
                matrix[i * padded + o] = narrow(*value);
            }
        }
    }
    Ok(weights)
}

/// See [`pagella_backend::Backend::project_heads`].
pub(crate) fn project_heads(
    isa: Isa,
    pool: &Pool,
    tokens: usize,
    x: &Tensor,
    linear: &CpuHeadLinear,
    out: &mut Tensor,
) -> Result<(), BackendError> {
    let rest = linear.rest(x, out)?;
    x.expect("input of heads", tokens, x.width)?;
    out.expect("output of heads", tokens, out.width)?;
    let width = out.width;
    let out = &Shares::new(&mut out.data);
    let job = Job { isa, linear, rest, tokens, x, out, width };
    match &linear.weights {
        Weights::F16(weights) => job.run(pool, weights),
        Weights::Bf16(weights) => job.run(pool, weights),
        Weights::F32(weights) => job.run(pool, weights),
    }
}

/// One call of [`project_heads`].
struct Job<'a> {
    isa: Isa,
    linear: &'a CpuHeadLinear,
    rest: usize,
    tokens: usize,
    x: &'a Tensor,
    out: &'a Shares<'a, f32>,
    /// Of a row of `out`.
    width: usize,
}

impl Job<'_> {
    fn run<E: Element + Sync>(&self, pool: &Pool, weights: &[E]) -> Result<(), BackendError> {
        let blocks = self.tokens.div_ceil(TASK_TOKENS);
        pool.run(self.linear.heads * blocks, &|i| {
            let (head, first) = (i / blocks, i % blocks * TASK_TOKENS);
            let rows_max = rows_max(self.isa);
            let mut token = first;
            let end = (first + TASK_TOKENS).min(self.tokens);
            while token < end {
                let count = pass_rows(end - token, rows_max);
                self.pass(weights, head, token, count);
                token += count;
            }
        })
    }

    /// One head of `count` tokens.
    fn pass<E: Element>(&self, weights: &[E], head: usize, token: usize, count: usize) {
        let CpuHeadLinear { in_features, out_features, padded, .. } = *self.linear;
        let (taken, given) = (in_features + self.rest, out_features + self.rest);
        let matrix = &weights[head * in_features * padded..][..in_features * padded];
        with_scratch(count * (in_features + padded), |scratch| {
            let (products, packed) = scratch.split_at_mut(count * padded);
            for r in 0..count {
                let inputs = &self.x.row(token + r)[head * taken..][..in_features];
                let column = packed[r..].iter_mut().step_by(count);
                column.zip(inputs).for_each(|(to, x)| *to = *x);
            }
            // SAFETY: packed inputs are `[in][count]`, the matrix `[in][padded]`, products
            // `[count][padded]`; `count` is what `pass_rows` gave.
            unsafe {
                let product = Product {
                    left: Left::Packed,
                    a: packed.as_ptr(),
                    b: matrix.as_ptr(),
                    b_step: padded,
                    depth: in_features,
                    columns: padded / LANES,
                    out: products.as_mut_ptr(),
                    out_step: padded,
                    resume: false,
                    ahead: matrix.as_ptr_range().end.cast(),
                };
                product.run(self.isa, count);
            }
            for (r, product) in products.chunks_exact(padded).enumerate() {
                let start = (token + r) * self.width + head * given;
                // SAFETY: every head of every token belongs to one pass.
                let out = unsafe { self.out.part(start..start + given) };
                let (outputs, rest) = out.split_at_mut(out_features);
                outputs.copy_from_slice(&product[..out_features]);
                let passed = &self.x.row(token + r)[head * taken + in_features..];
                rest.copy_from_slice(&passed[..self.rest]);
            }
        });
    }
}
