//! Values that are in the keys: the first rows of a key panel, turned into rows of tokens.

use pagella_backend::PAGE_TOKENS;

use crate::simd::LANES;

/// Turns the first `rows` rows of keys, `[D][256]`, into values, `[256][step]`, for the first `tokens`
/// tokens: 16 × 16 elements at a time, so that lines of both are touched once.
pub(super) fn transpose(keys: &[f32], rows: usize, tokens: usize, values: &mut [f32], step: usize) {
    for first in (0..rows).step_by(LANES) {
        let count = (rows - first).min(LANES);
        let block = &keys[first * PAGE_TOKENS..(first + count) * PAGE_TOKENS];
        for (token, row) in values.chunks_exact_mut(step).enumerate().take(tokens) {
            let columns = block[token..].iter().step_by(PAGE_TOKENS);
            row[first..first + count].iter_mut().zip(columns).for_each(|(v, k)| *v = *k);
        }
    }
}
