//! A reader for the wire format of Protocol Buffers, as much as SentencePiece needs.
//! Never allocates, never reads past its slice, and every call either advances or ends.

use crate::error::TextError;

/// One field of a message.
pub(crate) enum Wire<'a> {
    /// Integers, booleans and enumerations.
    Varint(u64),
    /// 32-bit values, here always floats.
    Fixed32(u32),
    /// Strings, bytes and nested messages.
    Bytes(&'a [u8]),
    /// 64-bit values; SentencePiece has none, they are skipped.
    Fixed64,
}

/// Walks over the fields of one message.
pub(crate) struct Reader<'a> {
    file: &'a str,
    data: &'a [u8],
    pos: usize,
}

impl<'a> Reader<'a> {
    pub fn new(file: &'a str, data: &'a [u8]) -> Self {
        Self { file, data, pos: 0 }
    }

    /// The next field number and its value, or `None` at the end.
    pub fn next_field(&mut self) -> Result<Option<(u64, Wire<'a>)>, TextError> {
        if self.pos == self.data.len() {
            return Ok(None);
        }
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => {
                self.take(8)?;
                Wire::Fixed64
            }
            2 => {
                let len = usize::try_from(self.varint()?).map_err(|_| self.fail("a long field"))?;
                Wire::Bytes(self.take(len)?)
            }
            5 => {
                let bytes = self.take(4)?.first_chunk::<4>().copied().unwrap_or_default();
                Wire::Fixed32(u32::from_le_bytes(bytes))
            }
            _ => return Err(self.fail("an unknown wire type")),
        };
        Ok(Some((key >> 3, value)))
    }

    fn varint(&mut self) -> Result<u64, TextError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = *self.data.get(self.pos).ok_or_else(|| self.fail("the end of the data"))?;
            self.pos += 1;
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.fail("an endless integer"))
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], TextError> {
        let end = self.pos.checked_add(len);
        let slice = end.and_then(|end| self.data.get(self.pos..end));
        let slice = slice.ok_or_else(|| self.fail("a field longer than the data"))?;
        self.pos += len;
        Ok(slice)
    }

    fn fail(&self, problem: &'static str) -> TextError {
        TextError::Protobuf { file: self.file.into(), offset: self.pos, problem }
    }
}
