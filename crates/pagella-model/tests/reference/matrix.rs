//! Activations of the reference backend: rows of f32.

use pagella_backend::BackendError;

/// Rows of `width` values.
pub struct Matrix {
    pub(super) width: usize,
    pub(super) data: Vec<f32>,
}

impl Matrix {
    pub(super) fn rows(&self, t: usize) -> impl Iterator<Item = &[f32]> {
        self.data.chunks_exact(self.width).take(t)
    }

    pub(super) fn rows_mut(&mut self, t: usize) -> impl Iterator<Item = &mut [f32]> {
        self.data.chunks_exact_mut(self.width).take(t)
    }

    pub(super) fn expect(
        &self,
        what: &'static str,
        rows: usize,
        width: usize,
    ) -> Result<(), BackendError> {
        let wrong = |expected, found| Err(BackendError::Size { what, expected, found });
        if self.width != width {
            return wrong(width, self.width);
        }
        if self.data.len() < rows * width {
            return wrong(rows, self.data.len() / width.max(1));
        }
        Ok(())
    }
}
