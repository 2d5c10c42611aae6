//! The cache of the reference backend: rows of numbers.

use half::f16;
use pagella_backend::{BackendError, KvFormat, PAGE_TOKENS, StepPlan};

use super::Matrix;

/// Keys and values of all layers.
pub struct Kv {
    /// Per layer: keys and values, `[pages · PAGE_TOKENS, kv_heads · head_dim]`.
    pub layers: Vec<[Matrix; 2]>,
    pub pages: usize,
    pub format: KvFormat,
}

impl Kv {
    /// Puts new rows of keys, and of values if there are any, into their slots.
    pub fn store(
        &mut self,
        step: &StepPlan,
        layer: usize,
        new: &[&mut Matrix],
    ) -> Result<(), BackendError> {
        let (pages, format) = (self.pages, self.format);
        for (cache, new) in self.layers[layer].iter_mut().zip(new) {
            for (new, (row, position)) in new.rows(step.tokens()).zip(positions(step)) {
                let at = slot(step, row, position);
                if at >= pages * PAGE_TOKENS {
                    let (what, found) = ("page list", at / PAGE_TOKENS);
                    return Err(BackendError::Size { what, expected: pages, found });
                }
                let room = &mut cache.data[at * cache.width..(at + 1) * cache.width];
                for (stored, value) in room.iter_mut().zip(new) {
                    *stored = match format {
                        KvFormat::F16 => f16::from_f32(*value).to_f32(),
                        _ => *value,
                    };
                }
            }
        }
        Ok(())
    }

    pub fn expect_page(&self, page: u32) -> Result<(), BackendError> {
        if (page as usize) < self.pages {
            return Ok(());
        }
        let expected = page as usize + 1;
        Err(BackendError::Size { what: "cache pages", expected, found: self.pages })
    }

    pub fn page_bytes(&self) -> usize {
        self.layers.iter().flatten().map(|matrix| 4 * PAGE_TOKENS * matrix.width).sum()
    }

    pub fn read_page(&self, page: u32, out: &mut Vec<u8>) -> Result<(), BackendError> {
        self.expect_page(page)?;
        out.clear();
        for matrix in self.layers.iter().flatten() {
            let values = &matrix.data[page as usize * PAGE_TOKENS * matrix.width..];
            let values = &values[..PAGE_TOKENS * matrix.width];
            out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        }
        Ok(())
    }

    pub fn write_page(&mut self, page: u32, bytes: &[u8]) -> Result<(), BackendError> {
        self.expect_page(page)?;
        let (expected, found) = (self.page_bytes(), bytes.len());
        if expected != found {
            return Err(BackendError::Size { what: "bytes of a page", expected, found });
        }
        let mut values = bytes.as_chunks().0.iter().copied().map(f32::from_le_bytes);
        for matrix in self.layers.iter_mut().flatten() {
            let room = &mut matrix.data[page as usize * PAGE_TOKENS * matrix.width..];
            let room = room.iter_mut().take(PAGE_TOKENS * matrix.width);
            room.zip(&mut values).for_each(|(stored, value)| *stored = value);
        }
        Ok(())
    }
}

/// The position of every new token, with its row.
pub fn positions(plan: &StepPlan) -> impl Iterator<Item = (usize, usize)> {
    (0..plan.rows()).flat_map(move |row| {
        (0..plan.token_range(row).len()).map(move |i| (row, plan.past(row) + i))
    })
}

/// Where a row's token lies in the cache.
pub fn slot(plan: &StepPlan, row: usize, position: usize) -> usize {
    plan.pages(row)[position / PAGE_TOKENS] as usize * PAGE_TOKENS + position % PAGE_TOKENS
}
