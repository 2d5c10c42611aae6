//! Exact dequantisation of EXL3.

use half::f16;

use super::Exl3Linear;
use super::rotate::{ROTATED, rotate};
use super::tile::{TILE, position, states};

impl Exl3Linear<'_> {
    /// The decoded matrix between the rotations, `[padded_in, padded_out]`, row-major.
    pub fn inner(&self) -> Vec<f16> {
        let mut matrix = vec![f16::ZERO; self.padded_in * self.padded_out];
        for tile_row in 0..self.padded_in / TILE {
            for tile_column in 0..self.padded_out / TILE {
                let states = states(self.tile(tile_row, tile_column), self.bits);
                for (i, state) in states.into_iter().enumerate() {
                    let (row, column) = position(i);
                    let at =
                        (tile_row * TILE + row) * self.padded_out + tile_column * TILE + column;
                    if let Some(weight) = matrix.get_mut(at) {
                        *weight = self.codebook.value(state);
                    }
                }
            }
        }
        matrix
    }

    /// The weights of the first rows and columns that are rotated together, `[128, 128]` less padding.
    pub(super) fn first_weights(&self) -> Vec<f32> {
        let scale = 1.0 / (ROTATED as f64).sqrt();
        let mut square = vec![0.0; ROTATED * ROTATED];
        for (tile_row, tile_column) in
            (0..ROTATED / TILE).flat_map(|row| (0..ROTATED / TILE).map(move |column| (row, column)))
        {
            let states = states(self.tile(tile_row, tile_column), self.bits);
            for (i, state) in states.into_iter().enumerate() {
                let (row, column) = position(i);
                let at = (tile_row * TILE + row) * ROTATED + tile_column * TILE + column;
                if let Some(weight) = square.get_mut(at) {
                    *weight = self.codebook.value(state).to_f64();
                }
            }
        }
        square.chunks_exact_mut(ROTATED).for_each(|row| rotate(row, scale));
        let mut column = vec![0.0; ROTATED];
        let outputs = self.svh.iter().take(ROTATED.min(self.out_features)).enumerate();
        let weights = outputs.flat_map(|(out, svh)| {
            let stored = square.iter().skip(out).step_by(ROTATED);
            column.iter_mut().zip(stored).for_each(|(to, from)| *to = *from);
            rotate(&mut column, scale);
            let rows = column.iter().zip(&self.suh).take(self.in_features);
            rows.map(|(weight, suh)| (weight * f64::from(*suh) * f64::from(*svh)) as f32)
                .collect::<Vec<_>>()
        });
        weights.collect()
    }

    /// The matrix `[in_features, out_features]`, row-major; sums of 128 × 128 values in f64, rounded
    /// once.
    pub fn dequantize(&self) -> Vec<f32> {
        let (inputs, outputs) = (self.padded_in, self.padded_out);
        let scale = 1.0 / 128f64.sqrt();
        let mut matrix: Vec<f64> = self.inner().into_iter().map(f64::from).collect();
        matrix.chunks_exact_mut(outputs).for_each(|row| rotate(row, scale));
        let mut column = vec![0.0; inputs];
        for (out, svh) in self.svh.iter().enumerate() {
            let stored = matrix.iter().skip(out).step_by(outputs);
            column.iter_mut().zip(stored).for_each(|(to, from)| *to = *from);
            rotate(&mut column, scale);
            let stored = matrix.iter_mut().skip(out).step_by(outputs);
            for ((to, from), suh) in stored.zip(&column).zip(&self.suh) {
                *to = from * f64::from(*suh) * f64::from(*svh);
            }
        }
        let rows = matrix.chunks_exact(outputs).take(self.in_features);
        let kept = rows.flat_map(|row| row.iter().take(self.out_features));
        kept.map(|weight| *weight as f32).collect()
    }
}

#[cfg(test)]
mod tests;
