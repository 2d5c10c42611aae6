//! The header of a safetensors file, parsed and checked completely.
//!
//! Owns the rules of the container. After [`parse`] every tensor's byte range lies inside the
//! file, fits its shape and type, and the ranges tile the data area without gap or overlap.
//! Takes plain bytes, so that it can be fuzzed without a file.

use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::dtype::Dtype;
use crate::error::{FormatError, Result};
use crate::unsupported::UnsupportedFormat;

/// Longest header accepted, in bytes; the limit of the format's own library.
pub const HEADER_BYTES_MAX: u64 = 100_000_000;

/// Most extents a shape may have. No model has more than five.
pub const RANK_MAX: usize = 8;

/// Bytes of the header length at the start of a file.
const LENGTH_BYTES: u64 = 8;

/// One tensor of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderEntry {
    /// Name as stored.
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// Row-major shape.
    pub shape: Vec<usize>,
    /// First byte, counted from the start of the file.
    pub begin: u64,
    /// One past the last byte, counted from the start of the file.
    pub end: u64,
}

/// Parses the header at the start of `bytes`, of a file that is `file_bytes` long.
///
/// `bytes` must hold at least the header (a whole mapped file will do); `path` is for messages.
/// Entries come in the order of the header. `__metadata__` is checked to be JSON and skipped.
pub fn parse(bytes: &[u8], file_bytes: u64, path: &Path) -> Result<Vec<HeaderEntry>> {
    refuse_other_magic(bytes, path)?;
    let short = || FormatError::FileTooShort { path: path.to_owned(), file_bytes };
    let (length, rest) = bytes.split_first_chunk().ok_or_else(short)?;
    let header_bytes = u64::from_le_bytes(*length);
    if header_bytes > HEADER_BYTES_MAX {
        let limit_bytes = HEADER_BYTES_MAX;
        let path = path.to_owned();
        return Err(FormatError::HeaderTooLong { path, header_bytes, limit_bytes });
    }
    let beyond =
        || FormatError::HeaderBeyondFile { path: path.to_owned(), header_bytes, file_bytes };
    let data_begin = LENGTH_BYTES + header_bytes;
    let data_bytes = file_bytes.checked_sub(data_begin).ok_or_else(beyond)?;
    let json = usize::try_from(header_bytes).ok().and_then(|n| rest.get(..n)).ok_or_else(beyond)?;
    let raw: RawHeader = serde_json::from_slice(json)
        .map_err(|source| FormatError::HeaderJson { path: path.to_owned(), source })?;

    let mut entries = Vec::with_capacity(raw.0.len());
    for (name, entry) in raw.0 {
        entries.push(check_entry(name, entry, data_bytes, path)?);
    }
    check_names(&entries, path)?;
    check_tiling(&entries, data_bytes, path)?;
    for entry in &mut entries {
        entry.begin += data_begin;
        entry.end += data_begin;
    }
    Ok(entries)
}

/// Recognises other weight formats that were given a safetensors name.
fn refuse_other_magic(bytes: &[u8], path: &Path) -> Result<()> {
    let format = if bytes.starts_with(b"GGUF") {
        UnsupportedFormat::Gguf
    } else if bytes.starts_with(b"PK\x03\x04")
        || (bytes.starts_with(&[0x80]) && matches!(bytes.get(1), Some(2..=5)) && !is_json(bytes))
        || bytes.starts_with(b"\x93NUMPY")
    {
        UnsupportedFormat::Pickle
    } else {
        return Ok(());
    };
    let place = "the file".to_owned();
    Err(FormatError::Unsupported { path: path.to_owned(), place, format })
}

/// Whether a JSON object follows the length: byte values 0x80 0x02 can begin a valid length too.
fn is_json(bytes: &[u8]) -> bool {
    bytes.get(LENGTH_BYTES as usize) == Some(&b'{')
}

/// Checks one entry on its own; offsets stay relative to the data area.
fn check_entry(name: String, raw: RawEntry, data_bytes: u64, path: &Path) -> Result<HeaderEntry> {
    let (begin, end) = raw.data_offsets;
    if begin > end || end > data_bytes {
        let path = path.to_owned();
        return Err(FormatError::OffsetsOutOfRange { path, tensor: name, begin, end, data_bytes });
    }
    let dtype = Dtype::from_tag(&raw.dtype);
    let range_bytes = end - begin;
    // An unknown type has no known size; nobody can read it either.
    let fits =
        dtype.bits().is_none_or(|bits| tensor_bytes(&raw.shape.0, bits) == Some(range_bytes));
    if !fits {
        let (path, shape) = (path.to_owned(), raw.shape.0);
        return Err(FormatError::SizeMismatch { path, tensor: name, shape, dtype, range_bytes });
    }
    Ok(HeaderEntry { name, dtype, shape: raw.shape.0, begin, end })
}

/// Bytes of a tensor; `None` when the product overflows or is not whole bytes.
pub(crate) fn tensor_bytes(shape: &[usize], bits: u64) -> Option<u64> {
    let elements =
        shape.iter().try_fold(1u64, |n, extent| n.checked_mul(u64::try_from(*extent).ok()?))?;
    let total = elements.checked_mul(bits)?;
    total.is_multiple_of(8).then_some(total / 8)
}

/// Fails if two entries have the same name.
fn check_names(entries: &[HeaderEntry], path: &Path) -> Result<()> {
    let mut names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    names.sort_unstable();
    match names.iter().zip(names.iter().skip(1)).find(|(a, b)| a == b) {
        None => Ok(()),
        Some((name, _)) => {
            let tensor = (*name).to_owned();
            Err(FormatError::RepeatedTensor { path: path.to_owned(), tensor })
        }
    }
}

/// Fails unless the ranges cover the data area back to back, as the format demands.
fn check_tiling(entries: &[HeaderEntry], data_bytes: u64, path: &Path) -> Result<()> {
    let mut order: Vec<&HeaderEntry> = entries.iter().collect();
    order.sort_unstable_by_key(|entry| (entry.begin, entry.end));
    let (mut covered, mut last) = (0, "");
    for entry in order {
        if entry.begin < covered {
            let (first, second) = (last.to_owned(), entry.name.clone());
            return Err(FormatError::Overlap { path: path.to_owned(), first, second });
        }
        if entry.begin > covered {
            let (begin, end) = (covered, entry.begin);
            return Err(FormatError::UnclaimedBytes { path: path.to_owned(), begin, end });
        }
        (covered, last) = (entry.end, &entry.name);
    }
    if covered < data_bytes {
        let (begin, end) = (covered, data_bytes);
        return Err(FormatError::UnclaimedBytes { path: path.to_owned(), begin, end });
    }
    Ok(())
}

/// All entries but `__metadata__`, in header order, repetitions included.
struct RawHeader(Vec<(String, RawEntry)>);

/// One entry as written.
#[derive(Deserialize)]
struct RawEntry {
    dtype: String,
    shape: Shape,
    data_offsets: (u64, u64),
}

/// A shape of at most [`RANK_MAX`] extents.
struct Shape(Vec<usize>);

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = RawHeader;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawHeader, A::Error> {
                let mut entries = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        map.next_value::<IgnoredAny>()?;
                        continue;
                    }
                    let entry = map.next_value().map_err(|error| {
                        A::Error::custom(format_args!("tensor `{name}`: {error}"))
                    })?;
                    entries.push((name, entry));
                }
                Ok(RawHeader(entries))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Extents;
        impl<'de> Visitor<'de> for Extents {
            type Value = Shape;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of at most {RANK_MAX} extents")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Shape, A::Error> {
                let mut extents = Vec::new();
                while let Some(extent) = seq.next_element()? {
                    if extents.len() == RANK_MAX {
                        return Err(A::Error::invalid_length(RANK_MAX + 1, &self));
                    }
                    extents.push(extent);
                }
                Ok(Shape(extents))
            }
        }
        deserializer.deserialize_seq(Extents)
    }
}

#[cfg(test)]
mod tests;
