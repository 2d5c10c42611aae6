//! Linears of heads: weights in the order in which tensor cores take them, and the launch.

use half::f16;
use pagella_backend::{BackendError, HeadWeights, TableDtype};

use crate::device::{Device, KernelArgs, Launch};
use crate::layout::{exponent, power_of_two};
use crate::memory::DeviceBuffer;
use crate::tensor::Tensor;

/// Threads of a block.
const THREADS: u32 = 256;
/// Outputs of a block.
const BLOCK_OUTPUTS: usize = 128;
/// Outputs of a tile and inputs of a step of weights.
const TILE_OUTPUTS: usize = 8;
const STEP_INPUTS: usize = 32;
/// Rows of a block, for few and for many tokens.
const FEW_ROWS: usize = 16;
const MANY_ROWS: usize = 64;

/// `kernels/heads.cuh`.
#[repr(C)]
#[derive(Clone, Copy)]
struct HeadsArgs {
    x: u64,
    out: u64,
    weights: u64,
    tokens: u32,
    heads: u32,
    inputs: u32,
    outputs: u32,
    rest: u32,
    parts: u32,
    steps: u32,
    tiles: u32,
    scale: f32,
    pad: u32,
}

// SAFETY: field for field the struct of the same name in `kernels/heads.cuh`.
unsafe impl KernelArgs for HeadsArgs {}

/// A matrix for every head.
pub struct CudaHeadLinear {
    heads: usize,
    in_features: usize,
    out_features: usize,
    /// 2 for weights of more digits than f16 has.
    parts: usize,
    scale: f32,
    weights: DeviceBuffer,
    bytes: usize,
}

/// Parts of a weight.
fn parts(dtype: TableDtype) -> usize {
    if dtype == TableDtype::F32 { 2 } else { 1 }
}

impl CudaHeadLinear {
    pub(crate) fn new(device: &Device, source: &HeadWeights) -> Result<Self, BackendError> {
        let HeadWeights { heads, in_features, out_features, ref values, dtype } = *source;
        if heads * in_features * out_features != values.len() || values.is_empty() {
            let (expected, found) = (heads * in_features * out_features, values.len());
            return Err(BackendError::Size { what: "weights of heads", expected, found });
        }
        let largest = values.iter().fold(0u32, |top, x| top.max(x.abs().to_bits()));
        let e = if dtype == TableDtype::F16 || largest == 0 { 0 } else { exponent(largest) };
        let parts = parts(dtype);
        let words = arrange(source, parts, power_of_two(-e));
        let weights = device.upload(&words, "linears of heads")?;
        let bytes = 2 * words.len();
        let scale = power_of_two(e);
        Ok(CudaHeadLinear { heads, in_features, out_features, parts, scale, weights, bytes })
    }

    /// Bytes that it holds.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
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

/// The order of `kernels/heads.cuh`, as bits of f16.
fn arrange(source: &HeadWeights, parts: usize, scale: f32) -> Vec<u16> {
    let HeadWeights { heads, in_features, out_features, ref values, .. } = *source;
    let steps = in_features.div_ceil(STEP_INPUTS);
    let tiles = out_features.div_ceil(TILE_OUTPUTS);
    let mut words = Vec::with_capacity(heads * parts * tiles * steps * TILE_OUTPUTS * STEP_INPUTS);
    for matrix in values.chunks_exact(in_features * out_features) {
        for part in 0..parts {
            let element = |output: usize, input: usize| {
                if output >= out_features || input >= in_features {
                    return 0;
                }
                let value = matrix[output * in_features + input] * scale;
                let upper = f16::from_f32(value);
                let wanted = if part == 0 { upper } else { f16::from_f32(value - upper.to_f32()) };
                wanted.to_bits()
            };
            for tile in 0..tiles {
                for step in 0..steps {
                    for lane in 0..32 {
                        let output = tile * TILE_OUTPUTS + lane / 4;
                        let first = step * STEP_INPUTS + 2 * (lane % 4);
                        for input in [0, 8, 16, 24].map(|word| first + word) {
                            words.extend([element(output, input), element(output, input + 1)]);
                        }
                    }
                }
            }
        }
    }
    words
}

/// See [`pagella_backend::Backend::project_heads`]; `tokens` counts padding.
pub(crate) fn project_heads(
    device: &Device,
    tokens: usize,
    x: &Tensor,
    linear: &CudaHeadLinear,
    out: &Tensor,
) -> Result<(), BackendError> {
    let rest = linear.rest(x, out)?;
    let steps = linear.in_features.div_ceil(STEP_INPUTS);
    let args = HeadsArgs {
        x: x.ptr(),
        out: out.ptr(),
        weights: linear.weights.ptr(),
        tokens: tokens as u32,
        heads: linear.heads as u32,
        inputs: linear.in_features as u32,
        outputs: linear.out_features as u32,
        rest: rest as u32,
        parts: linear.parts as u32,
        steps: steps as u32,
        tiles: linear.out_features.div_ceil(TILE_OUTPUTS) as u32,
        scale: linear.scale,
        pad: 0,
    };
    let row_bytes = 2 * (steps * STEP_INPUTS + 8);
    let is_many = tokens > FEW_ROWS && MANY_ROWS * row_bytes <= device.limits.shared_bytes_max as usize;
    let (kernel, rows) =
        if is_many { ("pg_heads_64", MANY_ROWS) } else { ("pg_heads_16", FEW_ROWS) };
    let grid = [
        linear.heads as u32,
        linear.out_features.div_ceil(BLOCK_OUTPUTS) as u32,
        tokens.div_ceil(rows) as u32,
    ];
    let shared_bytes = (rows * row_bytes) as u32;
    device.launch(kernel, Launch { grid, threads: THREADS, shared_bytes }, &args)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that matrices of so many heads take.
    fn head_linear_bytes(
        heads: usize,
        in_features: usize,
        out_features: usize,
        dtype: TableDtype,
    ) -> usize {
        let steps = in_features.div_ceil(STEP_INPUTS) * STEP_INPUTS;
        2 * heads * parts(dtype) * steps * out_features.next_multiple_of(TILE_OUTPUTS)
    }

    fn source(dtype: TableDtype) -> HeadWeights {
        let values = (0..2 * 5 * 40).map(|i| (i as f32).sin()).collect();
        HeadWeights { heads: 2, in_features: 40, out_features: 5, values, dtype }
    }

    #[test]
    fn weights_are_where_tensor_cores_look_for_them() {
        let source = source(TableDtype::F16);
        let words = arrange(&source, 1, 1.0);
        assert_eq!(2 * words.len(), head_linear_bytes(2, 40, 5, TableDtype::F16));
        for (head, output, input) in [(0, 0, 0), (1, 4, 39), (1, 2, 17), (0, 3, 31), (0, 1, 8)] {
            let (step, place) = (input / 32, input % 32);
            let (word, lane) = (place / 8, output * 4 + place % 8 / 2);
            let at = (((head * 2 + step) * 32 + lane) * 4 + word) * 2 + input % 2;
            let wanted = f16::from_f32(source.values[(head * 5 + output) * 40 + input]);
            assert_eq!(words[at], wanted.to_bits(), "{head} {output} {input}");
        }
        let zeros = words.iter().filter(|bits| **bits == 0).count();
        assert_eq!(words.len() - zeros, source.values.iter().filter(|x| **x != 0.0).count());
    }

    #[test]
    fn two_parts_hold_twice_the_digits() {
        let source = source(TableDtype::F32);
        let words = arrange(&source, 2, 1.0);
        assert_eq!(2 * words.len(), head_linear_bytes(2, 40, 5, TableDtype::F32));
        let half = 2 * 32 * 8;
        for output in 0..5 {
            let at = output * 4 * 8;
            let sum =
                f16::from_bits(words[at]).to_f32() + f16::from_bits(words[half + at]).to_f32();
            assert!((sum - source.values[output * 40]).abs() < 1e-6, "{output}");
        }
    }
}
