//! Exact dequantisation of GPTQ: one rounding per weight.

use half::f16;

use super::GptqLinear;

impl GptqLinear<'_> {
    /// The matrix `[in_features, out_features]`, row-major, rows in the order of the inputs.
    pub fn dequantize(&self) -> Vec<f16> {
        let mut matrix = Vec::with_capacity(self.in_features * self.out_features);
        for row in 0..self.in_features {
            matrix.extend(self.columns.iter().map(|col| f16::from_f32(self.product(row, col))));
        }
        matrix
    }
}

#[cfg(test)]
mod tests;
