//! Hidden states of the calibration rows, one row after the other, in memory or in a file.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::error::QuantError;

/// Where rows of hidden states lie.
pub enum States {
    /// In memory.
    Memory(Vec<Vec<f32>>),
    /// In a file that goes with its owner.
    File(StatesFile),
}

/// Rows in a file.
pub struct StatesFile {
    path: PathBuf,
    file: File,
    row_bytes: usize,
}

impl Drop for StatesFile {
    fn drop(&mut self) {
        // What cannot be removed goes with the folder that it is in.
        drop(std::fs::remove_file(&self.path));
    }
}

impl States {
    /// Rows of `elements` numbers each; in `file` if there is one.
    pub fn new(rows: usize, elements: usize, file: Option<&Path>) -> Result<Self, QuantError> {
        let Some(path) = file else { return Ok(Self::Memory(vec![Vec::new(); rows])) };
        let opened = File::options().read(true).write(true).create(true).truncate(true).open(path);
        let file = opened.map_err(QuantError::io(path, "cannot write"))?;
        Ok(Self::File(StatesFile { path: path.to_owned(), file, row_bytes: 4 * elements }))
    }

    /// Replaces `out` by a row.
    pub fn read(&mut self, row: usize, out: &mut Vec<f32>) -> Result<(), QuantError> {
        out.clear();
        match self {
            Self::Memory(rows) => out.extend(rows.get(row).into_iter().flatten()),
            Self::File(states) => {
                let mut bytes = vec![0; states.row_bytes];
                let at = SeekFrom::Start((row * states.row_bytes) as u64);
                let read = states.file.seek(at).and_then(|_| states.file.read_exact(&mut bytes));
                read.map_err(QuantError::io(&states.path, "cannot read"))?;
                out.extend(bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)));
            }
        }
        Ok(())
    }

    /// Replaces a row.
    pub fn write(&mut self, row: usize, values: &[f32]) -> Result<(), QuantError> {
        match self {
            Self::Memory(rows) => {
                if let Some(row) = rows.get_mut(row) {
                    row.clear();
                    row.extend_from_slice(values);
                }
            }
            Self::File(states) => {
                let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
                let at = SeekFrom::Start((row * states.row_bytes) as u64);
                let written = states.file.seek(at).and_then(|_| states.file.write_all(&bytes));
                written.map_err(QuantError::io(&states.path, "cannot write"))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_from_memory_and_from_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("states");
        for file in [None, Some(path.as_path())] {
            let mut states = States::new(3, 2, file).unwrap();
            for row in [0, 1, 2, 1] {
                states.write(row, &[row as f32, -1.5]).unwrap();
            }
            let mut out = vec![9.0];
            states.read(1, &mut out).unwrap();
            assert_eq!(out, [1.0, -1.5]);
        }
        assert!(!path.exists());
        let missing = dir.path().join("nowhere").join("states");
        assert!(States::new(1, 1, Some(&missing)).is_err());
    }
}
