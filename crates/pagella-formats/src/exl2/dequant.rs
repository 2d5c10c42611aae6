//! Exact dequantisation: the reference that every kernel is measured against.

#![allow(clippy::indexing_slicing, reason = "a loaded linear has passed all checks of its tables")]

use half::f16;

use super::{Exl2Group, Exl2Linear, scale};

impl Exl2Linear<'_> {
    /// The matrix `[in_features, out_features]`, row-major, rows in the order of the inputs.
    pub fn dequantize(&self) -> Vec<f16> {
        let mut matrix = vec![f16::ZERO; self.in_features * self.out_features];
        self.for_each_row(|packed_row, row| {
            let at = self.perm[packed_row] as usize * self.out_features;
            matrix[at..at + self.out_features].copy_from_slice(row);
        });
        matrix
    }

    /// The matrix `[in_features, out_features]`, row-major, rows in packed order.
    pub fn dequantize_packed(&self) -> Vec<f16> {
        let mut matrix = Vec::with_capacity(self.in_features * self.out_features);
        self.for_each_row(|_, row| matrix.extend_from_slice(row));
        matrix
    }

    /// The code at local row `row` of a group, in a stored column.
    pub fn code(&self, group: &Exl2Group, row: usize, col: usize) -> u32 {
        let bits = usize::from(group.bits);
        let (word, shift) = (group.first_word + row * bits / 32, row * bits % 32);
        let mut window = u64::from(self.words.word(word, col));
        if shift + bits > 32 {
            window |= u64::from(self.words.word(word + 1, col)) << 32;
        }
        (window >> shift) as u32 & ((1 << bits) - 1)
    }

    /// Calls `take` with every packed row and its weights.
    fn for_each_row(&self, mut take: impl FnMut(usize, &[f16])) {
        let mut row = vec![f16::ZERO; self.out_features];
        for (index, group) in self.groups.iter().enumerate() {
            let scales: Vec<f16> =
                self.columns.iter().map(|col| self.group_scale(index, col)).collect();
            for local in 0..group.rows {
                for ((weight, col), scale) in row.iter_mut().zip(self.columns.iter()).zip(&scales) {
                    *weight = scale::weight(self.code(group, local, col), group.bits, *scale);
                }
                take(group.first_row + local, &row);
            }
        }
    }
}

#[cfg(test)]
mod tests;
