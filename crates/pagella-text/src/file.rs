//! Reading the small files of a model directory, each with a limit on its size.
//! Invariant: nothing is read before its length is known to be within the limit of its kind.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use serde_json::Value;

use crate::error::TextError;

/// Largest `tokenizer.json`; the largest published ones have about 35 MB.
pub(crate) const TOKENIZER_JSON_BYTES_MAX: u64 = 256 << 20;
/// Largest `tokenizer.model`; the largest published ones have about 5 MB.
pub(crate) const SENTENCEPIECE_BYTES_MAX: u64 = 64 << 20;
/// Largest configuration file of any kind.
pub(crate) const CONFIG_BYTES_MAX: u64 = 16 << 20;

/// The file's bytes, or `None` if there is no such file.
pub(crate) fn read_optional(
    dir: &Path,
    name: &str,
    limit: u64,
) -> Result<Option<Vec<u8>>, TextError> {
    let path = dir.join(name);
    let io = |source| TextError::Io { path: path.clone(), source };
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(io(e)),
    };
    let bytes = file.metadata().map_err(io)?.len();
    check_size(name, bytes, limit)?;
    // The file may grow between the two calls; never read past the limit.
    let mut data = Vec::with_capacity(bytes as usize);
    file.take(limit + 1).read_to_end(&mut data).map_err(io)?;
    check_size(name, data.len() as u64, limit)?;
    Ok(Some(data))
}

/// A configuration file as JSON, or `Value::Null` if there is no such file.
pub(crate) fn read_config(dir: &Path, name: &str) -> Result<Value, TextError> {
    match read_optional(dir, name, CONFIG_BYTES_MAX)? {
        None => Ok(Value::Null),
        Some(data) => parse_object(name, &data),
    }
}

/// Parses `data` as a JSON object; a byte-order mark is tolerated.
pub(crate) fn parse_object(name: &str, data: &[u8]) -> Result<Value, TextError> {
    let data = data.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(data);
    let value: Value = serde_json::from_slice(data)
        .map_err(|source| TextError::Json { file: name.into(), source })?;
    if !value.is_object() {
        return Err(TextError::field(name, "the top level", "must be an object"));
    }
    Ok(value)
}

/// Refuses a file above its limit.
pub(crate) fn check_size(name: &str, bytes: u64, limit: u64) -> Result<(), TextError> {
    if bytes > limit {
        return Err(TextError::FileTooLarge { file: name.into(), bytes, limit });
    }
    Ok(())
}
