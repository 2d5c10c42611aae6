//! Bytes to text as they arrive, holding back at most three bytes of an unfinished character.
//! Must hold: the output does not depend on how the bytes were cut, and equals the lossy decoding of
//! all bytes at once.

/// An incremental lossy UTF-8 decoder.
#[derive(Debug, Clone, Default)]
pub(crate) struct Utf8Stream {
    /// A valid but unfinished beginning of a character; at most three bytes.
    pending: Vec<u8>,
}

impl Utf8Stream {
    /// Decodes what is complete into `out`.
    pub fn push(&mut self, bytes: &[u8], out: &mut String) {
        if self.pending.is_empty() {
            self.decode(bytes, out);
        } else {
            let mut joined = std::mem::take(&mut self.pending);
            joined.extend_from_slice(bytes);
            self.decode(&joined, out);
        }
    }

    /// Ends the text: an unfinished character becomes one U+FFFD.
    pub fn finish(&mut self, out: &mut String) {
        if !self.pending.is_empty() {
            self.pending.clear();
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }

    /// Number of bytes held back.
    pub fn held_bytes(&self) -> usize {
        self.pending.len()
    }

    fn decode(&mut self, mut bytes: &[u8], out: &mut String) {
        loop {
            let error = match std::str::from_utf8(bytes) {
                Ok(text) => return out.push_str(text),
                Err(e) => e,
            };
            let (valid, rest) = bytes.split_at(error.valid_up_to());
            out.push_str(&String::from_utf8_lossy(valid));
            match error.error_len() {
                Some(len) => {
                    out.push(char::REPLACEMENT_CHARACTER);
                    bytes = &rest[len..];
                }
                None => return self.pending.extend_from_slice(rest),
            }
        }
    }
}
