//! Exact dequantisation of GPTQ: one rounding per weight.

use half::f16;

use super::GptqLinear;

impl GptqLinear<'_> {
    /// The matrix `[in_features, out_features]`, row-major, rows in the order of the inputs.
    pub fn dequantize(&self) -> Vec<f16> {
        let mut matrix = Vec::with_capacity(self.in_features * self.out_features);
        for (row, group) in self.group_of_row.iter().enumerate() {
            let group = *group as usize;
            matrix.extend(self.columns.iter().map(|col| {
                let centred = i16::from(self.code(row, col)) - i16::from(self.zero(group, col));
                f16::from_f32(f32::from(centred) * self.scale(group, col).to_f32())
            }));
        }
        matrix
    }
}

#[cfg(test)]
mod tests;
