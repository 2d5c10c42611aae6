//! The texts of a Parquet file: its column `text`, or the only one of strings.
//!
//! Read is what programs write by default: strings as they are or by their place in a dictionary, in
//! pages of either version, plain or compressed with snappy, gzip or zstd. What must always hold: memory
//! grows with what was read, not with what a header claims; one page is in memory at a time.

mod footer;
mod levels;
mod page;
mod thrift;

use std::fs::File;
use std::io::{BufReader, Seek, SeekFrom};
use std::path::Path;

use crate::error::QuantError;
use page::{Each, Pages, Stop};

/// What is wrong with a file, for people.
type Fault = String;

/// Gives the texts of a file in order, until no more are wanted.
pub(super) fn texts(path: &Path, each: &mut Each<'_, QuantError>) -> Result<(), QuantError> {
    let refuse = |problem: Fault| QuantError::BadCalibration { path: path.to_owned(), problem };
    let file = File::open(path).map_err(QuantError::io(path, "cannot read"))?;
    let mut file = BufReader::new(file);
    let (column, chunks) = footer::read(&mut file).map_err(refuse)?;
    for chunk in chunks {
        file.seek(SeekFrom::Start(chunk.start)).map_err(QuantError::io(path, "cannot read"))?;
        match Pages::new(&mut file, &column, chunk).run(each) {
            Ok(true) => {}
            Ok(false) => break,
            Err(Stop::Fault(fault)) => return Err(refuse(fault)),
            Err(Stop::Other(error)) => return Err(error),
        }
    }
    Ok(())
}

fn damaged() -> Fault {
    "a page is damaged".to_owned()
}

#[cfg(test)]
mod tests;
