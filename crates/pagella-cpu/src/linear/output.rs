//! Where finished sums go: stored, or added to the residual.

use crate::simd::{LANES, Simd};
use crate::threads::Shares;

/// The last step of a linear: bias, then store or scaled add.
pub(crate) struct Output<'a> {
    /// `[m, width]`, row-major; tasks write disjoint columns or rows.
    pub(crate) values: Shares<'a, f32>,
    /// Outputs, i.e. elements per row.
    pub(crate) width: usize,
    /// Padded to whole tiles.
    pub(crate) bias: Option<&'a [f32]>,
    /// `Some(scale)`: `out += scale · y`; `None`: `out = y`.
    pub(crate) add: Option<f32>,
}

impl Output<'_> {
    /// Finishes 16 columns of token row `m`.
    ///
    /// # Safety
    /// As for [`Simd`]; `m` and `tile` exist, and no other task writes the same elements.
    #[inline(always)]
    pub(crate) unsafe fn put<S: Simd>(&self, m: usize, tile: usize, sum: S::F) {
        // SAFETY: `bias` covers whole tiles; `out` is this task's own range; a partial tile goes
        // through a buffer of 16.
        unsafe {
            let first = tile * LANES;
            let columns = LANES.min(self.width - first);
            let out = self.values.part(m * self.width + first..m * self.width + first + columns);
            let y = match self.bias {
                Some(bias) => S::add(sum, S::load(bias.as_ptr().add(first))),
                None => sum,
            };
            if columns == LANES {
                let y = match self.add {
                    Some(scale) => S::fma(S::splat(scale), y, S::load(out.as_ptr())),
                    None => y,
                };
                S::store(out.as_mut_ptr(), y);
                return;
            }
            let mut buffer = [0.0f32; LANES];
            buffer[..columns].copy_from_slice(out);
            let y = match self.add {
                Some(scale) => S::fma(S::splat(scale), y, S::load(buffer.as_ptr())),
                None => y,
            };
            S::store(buffer.as_mut_ptr(), y);
            out.copy_from_slice(&buffer[..columns]);
        }
    }
}
