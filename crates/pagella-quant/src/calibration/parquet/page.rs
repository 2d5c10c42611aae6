//! One page of a column: its header, how it is compressed, and the strings in it.

use std::io::Read;

use super::Fault;
use super::footer::{Chunk, Column};
use super::levels::Levels;
use super::thrift::Thrift;

/// Largest page, compressed or not.
const PAGE_MAX: i64 = 256 << 20;

/// Most values of a page, missing ones included, which take no room.
const VALUES_MAX: i64 = 1 << 24;

/// Bytes that a byte of snappy stands for at most: copies of 64 bytes are written in three.
const SNAPPY_RATIO_MAX: usize = 22;

/// Types of pages.
const DATA: i64 = 0;
const DICTIONARY: i64 = 2;
const DATA_2: i64 = 3;

/// Encodings of values.
const PLAIN: i64 = 0;
const PLAIN_DICTIONARY: i64 = 2;
const RLE_DICTIONARY: i64 = 8;

/// What is done with a string; says whether to go on.
pub(super) type Each<'a, E> = dyn FnMut(&str) -> Result<bool, E> + 'a;

/// A page's header.
#[derive(Default)]
struct Header {
    kind: i64,
    bytes: i64,
    stored_bytes: i64,
    values: i64,
    encoding: i64,
    /// Bytes of levels that stand before what is compressed.
    level_bytes: [i64; 2],
    is_compressed: bool,
}

/// The pages of a chunk, one after the other.
pub(super) struct Pages<'a, R> {
    pub from: R,
    pub column: &'a Column,
    pub chunk: Chunk,
    dictionary: Option<Dictionary>,
    /// Values of the pages so far.
    seen: u64,
}

/// Strings that pages name by their place.
struct Dictionary {
    bytes: Vec<u8>,
    places: Vec<std::ops::Range<usize>>,
}

/// Why a chunk was not read to its end.
pub(super) enum Stop<E> {
    Fault(Fault),
    /// What came from who was given the strings.
    Other(E),
}

impl<E> From<Fault> for Stop<E> {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl<'a, R: Read> Pages<'a, R> {
    pub fn new(from: R, column: &'a Column, chunk: Chunk) -> Self {
        Self { from, column, chunk, dictionary: None, seen: 0 }
    }

    /// Gives all strings of the chunk; whether more are wanted.
    pub fn run<E>(&mut self, each: &mut Each<'_, E>) -> Result<bool, Stop<E>> {
        while self.seen < self.chunk.values {
            let header = header(&mut self.from)?;
            let stored = take(&mut self.from, header.stored_bytes)?;
            match header.kind {
                DATA | DATA_2 => {
                    self.seen += header.values as u64;
                    if !self.data(&header, &stored, each)? {
                        return Ok(false);
                    }
                }
                DICTIONARY => {
                    let bytes = unpacked(self.chunk.codec, &stored, header.bytes as u64)?;
                    let places = places(&bytes, header.values)?;
                    self.dictionary = Some(Dictionary { bytes, places });
                }
                _ => {} // Indices, which say nothing new.
            }
        }
        Ok(true)
    }

    fn data<E>(
        &self,
        header: &Header,
        stored: &[u8],
        each: &mut Each<'_, E>,
    ) -> Result<bool, Stop<E>> {
        let level_bytes: i64 = header.level_bytes.iter().sum();
        let (before, packed) =
            stored.split_at_checked(level_bytes as usize).ok_or_else(super::damaged)?;
        let codec = if header.is_compressed { self.chunk.codec } else { 0 };
        let value_bytes = u64::try_from(header.bytes - level_bytes);
        let bytes = unpacked(codec, packed, value_bytes.map_err(|_| super::damaged())?)?;
        let max = self.column.definition_max;
        let (levels, values) = match header.kind {
            DATA_2 => (before.get(header.level_bytes[0] as usize..), &bytes[..]),
            _ if max > 0 => {
                let (count, rest) = length(&bytes).ok_or_else(super::damaged)?;
                (rest.get(..count), rest.get(count..).unwrap_or_default())
            }
            _ => (Some(&[][..]), &bytes[..]),
        };
        let levels = levels.ok_or_else(super::damaged)?;
        let mut levels = Levels::new(levels, u32::BITS - max.leading_zeros())?;
        let mut values = Values::new(header.encoding, values, self.dictionary.as_ref())?;
        for _ in 0..header.values {
            if max > 0 && levels.next()? < max {
                continue;
            }
            let text = std::str::from_utf8(values.next()?)
                .map_err(|_| "a text is not UTF-8: convert it".to_owned())?;
            if !each(text).map_err(Stop::Other)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Strings one after the other.
enum Values<'a> {
    Plain(&'a [u8]),
    Places(Levels<'a>, &'a Dictionary),
}

impl<'a> Values<'a> {
    fn new(
        encoding: i64,
        bytes: &'a [u8],
        dictionary: Option<&'a Dictionary>,
    ) -> Result<Self, Fault> {
        match (encoding, dictionary) {
            (PLAIN, _) => Ok(Self::Plain(bytes)),
            (PLAIN_DICTIONARY | RLE_DICTIONARY, Some(dictionary)) => {
                // A page of missing values may have nothing here.
                let (width, bytes) = bytes.split_first().unwrap_or((&0, &[]));
                Ok(Self::Places(Levels::new(bytes, u32::from(*width))?, dictionary))
            }
            (PLAIN_DICTIONARY | RLE_DICTIONARY, None) => Err(super::damaged()),
            _ => Err(format!(
                "its texts are in the encoding {encoding}{}; plain texts and dictionaries are read: write \
                 it with version 1 of the format, or convert it to JSON lines",
                name(encoding)
            )),
        }
    }

    fn next(&mut self) -> Result<&'a [u8], Fault> {
        match self {
            Self::Plain(bytes) => {
                let (count, rest) = length(bytes).ok_or_else(super::damaged)?;
                let (value, rest) = rest.split_at_checked(count).ok_or_else(super::damaged)?;
                *bytes = rest;
                Ok(value)
            }
            Self::Places(levels, dictionary) => {
                let place = dictionary.places.get(levels.next()? as usize);
                let value = place.and_then(|place| dictionary.bytes.get(place.clone()));
                value.ok_or_else(super::damaged)
            }
        }
    }
}

/// What the format calls an encoding that is not read.
fn name(encoding: i64) -> &'static str {
    match encoding {
        6 => " (DELTA_LENGTH_BYTE_ARRAY)",
        7 => " (DELTA_BYTE_ARRAY)",
        _ => "",
    }
}

/// Where the strings of a dictionary lie.
fn places(bytes: &[u8], count: i64) -> Result<Vec<std::ops::Range<usize>>, Fault> {
    let (mut places, mut at) = (Vec::new(), 0);
    for _ in 0..count {
        let (count, _) = bytes.get(at..).and_then(length).ok_or_else(super::damaged)?;
        places.push(at + 4..at + 4 + count);
        at += 4 + count;
        if at > bytes.len() {
            return Err(super::damaged());
        }
    }
    Ok(places)
}

/// Four bytes that say how many follow.
fn length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (count, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*count) as usize, rest))
}

fn header(from: &mut impl Read) -> Result<Header, Fault> {
    let mut header = Header { is_compressed: true, ..Header::default() };
    Thrift::new(from).fields(&mut |thrift, number, kind| {
        match number {
            1 => header.kind = thrift.number(kind)?,
            2 => header.bytes = thrift.number(kind)?,
            3 => header.stored_bytes = thrift.number(kind)?,
            5 | 7 => thrift.fields(&mut |thrift, number, kind| {
                match number {
                    1 => header.values = thrift.number(kind)?,
                    2 => header.encoding = thrift.number(kind)?,
                    _ => return Ok(false),
                }
                Ok(true)
            })?,
            8 => thrift.fields(&mut |thrift, number, kind| {
                match number {
                    1 => header.values = thrift.number(kind)?,
                    4 => header.encoding = thrift.number(kind)?,
                    5 => header.level_bytes[1] = thrift.number(kind)?,
                    6 => header.level_bytes[0] = thrift.number(kind)?,
                    7 => header.is_compressed = thrift.number(kind)? != 0,
                    _ => return Ok(false),
                }
                Ok(true)
            })?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let sizes = [header.bytes, header.stored_bytes, header.level_bytes[0], header.level_bytes[1]];
    let has_size = sizes.iter().all(|size| (0..=PAGE_MAX).contains(size));
    if !has_size || !(0..=VALUES_MAX).contains(&header.values) {
        return Err(format!("a page is damaged, or larger than {} MiB", PAGE_MAX >> 20));
    }
    Ok(header)
}

/// So many bytes; memory grows as they come.
fn take(from: &mut impl Read, count: i64) -> Result<Vec<u8>, Fault> {
    let mut bytes = Vec::new();
    let read = from.take(count as u64).read_to_end(&mut bytes);
    match read {
        Ok(read) if read as i64 == count => Ok(bytes),
        Ok(_) => Err("it ends in the middle of a page".to_owned()),
        Err(error) => Err(format!("cannot read: {error}")),
    }
}

/// What was compressed, which must have the size that the header says.
fn unpacked(codec: i64, stored: &[u8], bytes: u64) -> Result<Vec<u8>, Fault> {
    let exact = |unpacked: Vec<u8>| match unpacked.len() as u64 == bytes {
        true => Ok(unpacked),
        false => Err(super::damaged()),
    };
    let stream = |reader: &mut dyn Read| {
        let mut unpacked = Vec::new();
        let read = reader.take(bytes + 1).read_to_end(&mut unpacked);
        read.map_err(|_| super::damaged()).map(|_| unpacked).and_then(exact)
    };
    match codec {
        0 => exact(stored.to_vec()),
        1 => {
            let claimed = snap::raw::decompress_len(stored).map_err(|_| super::damaged())?;
            // Room for the claim is made at once.
            let possible = stored.len().saturating_mul(SNAPPY_RATIO_MAX);
            if claimed as u64 != bytes || claimed > possible {
                return Err(super::damaged());
            }
            let unpacked = snap::raw::Decoder::new().decompress_vec(stored);
            unpacked.map_err(|_| super::damaged())
        }
        2 => stream(&mut flate2::read::MultiGzDecoder::new(stored)),
        6 => match ruzstd::decoding::StreamingDecoder::new(stored) {
            Ok(mut reader) => stream(&mut reader),
            Err(_) => Err(super::damaged()),
        },
        other => {
            let name = match other {
                3 => "LZO",
                4 => "Brotli",
                5 | 7 => "LZ4",
                _ => "an unknown method",
            };
            Err(format!(
                "its texts are compressed with {name}: write it with snappy, gzip, zstd or nothing, or \
                 convert it to JSON lines"
            ))
        }
    }
}
