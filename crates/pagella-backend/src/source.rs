//! Host tables that a backend gathers from without owning: embeddings stay mapped from the file.

use std::sync::Arc;

/// Bytes that live as long as somebody needs them, e.g. part of a mapped file.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Element type of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableDtype {
    /// IEEE binary16.
    F16,
    /// bfloat16.
    BF16,
    /// IEEE binary32.
    F32,
}

impl TableDtype {
    /// Bytes per element.
    pub fn bytes(self) -> usize {
        match self {
            TableDtype::F16 | TableDtype::BF16 => 2,
            TableDtype::F32 => 4,
        }
    }
}

/// A row-major table `[rows, width]`, little-endian, possibly unaligned.
#[derive(Clone)]
pub struct TableSource {
    /// The elements; exactly `rows · width · dtype.bytes()` long.
    pub bytes: SharedBytes,
    /// Element type.
    pub dtype: TableDtype,
    /// Number of rows.
    pub rows: usize,
    /// Elements per row.
    pub width: usize,
}
