//! The rotation: a Hadamard matrix of 128 in natural order, divided by √128.

/// Features that are rotated together.
pub const ROTATED: usize = 128;
/// 1 / √128, as the program that writes the format has it.
pub const ROTATION_SCALE: f32 = 0.088_388_35;

/// Multiplies every 128 values with the matrix and `scale`.
pub fn rotate(values: &mut [f64], scale: f64) {
    for block in values.chunks_exact_mut(ROTATED) {
        let mut stride = 1;
        while stride < ROTATED {
            for pair in block.chunks_exact_mut(2 * stride) {
                let (low, high) = pair.split_at_mut(stride);
                for (a, b) in low.iter_mut().zip(high) {
                    (*a, *b) = (*a + *b, *a - *b);
                }
            }
            stride *= 2;
        }
        block.iter_mut().for_each(|value| *value *= scale);
    }
}
