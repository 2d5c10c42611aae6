//! Numbers in JSON come to an end.
//!
//! A schema that says `number` allows any number of digits, and a weak model can write digits for
//! ever. So after [`DIGITS_MAX`] digits in a row, outside of strings, no further digit is allowed,
//! unless the schema leaves no other way. No number that programs can tell apart is lost: a double
//! needs seventeen digits.

use super::vocab::Vocab;
use super::{Bitmask, Constraint, ConstraintError, Verdict};

/// Most digits in a row.
const DIGITS_MAX: usize = 32;

/// JSON whose numbers end.
pub(super) struct DigitLimit {
    vocab: Vocab,
    inner: Box<dyn Constraint>,
    /// Where the output stands: at the beginning, and after every accept.
    places: Vec<Place>,
}

/// What the bytes so far end in.
#[derive(Clone, Copy, Default)]
struct Place {
    in_string: bool,
    /// The next byte belongs to an escape sequence of a string.
    escaped: bool,
    /// Digits at the end, outside of strings.
    digits: usize,
}

impl Place {
    fn after(mut self, bytes: &[u8]) -> Self {
        for &byte in bytes {
            self = match (self.in_string, self.escaped, byte) {
                (true, true, _) => Place { escaped: false, ..self },
                (true, false, b'\\') => Place { escaped: true, ..self },
                (in_string, false, b'"') => Place { in_string: !in_string, ..Place::default() },
                (false, _, b'0'..=b'9') => Place { digits: self.digits + 1, ..self },
                (in_string, ..) => Place { in_string, ..Place::default() },
            };
        }
        self
    }
}

impl DigitLimit {
    pub fn new(vocab: Vocab, inner: Box<dyn Constraint>) -> Self {
        DigitLimit { vocab, inner, places: vec![Place::default()] }
    }

    fn place(&self) -> Place {
        self.places.last().copied().unwrap_or_default()
    }

    /// Digits that may still follow.
    fn room(&self) -> usize {
        let place = self.place();
        if place.in_string { usize::MAX } else { DIGITS_MAX.saturating_sub(place.digits) }
    }

    /// Takes ids with too many digits out of a mask, unless nothing else is left.
    fn limit(&self, out: &mut Bitmask) {
        let room = self.room();
        if !self.vocab.leading_digits().iter().any(|&(_, digits)| digits > room) {
            return;
        }
        let whole = out.clone();
        for &(id, digits) in self.vocab.leading_digits() {
            if digits > room {
                out.deny(id);
            }
        }
        if out.is_empty() {
            *out = whole;
        }
    }
}

impl Constraint for DigitLimit {
    fn begin(&mut self, prefix: &[u8]) -> Result<(), ConstraintError> {
        self.places = vec![Place::default()];
        self.inner.begin(prefix)?;
        self.places = vec![Place::default().after(prefix)];
        Ok(())
    }

    fn mask(&mut self, out: &mut Bitmask) -> Result<Verdict, ConstraintError> {
        let verdict = self.inner.mask(out)?;
        self.limit(out);
        Ok(verdict)
    }

    fn accept(&mut self, id: u32) -> Result<(), ConstraintError> {
        let bytes = self.vocab.text_of(id).unwrap_or_default();
        let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits > self.room() {
            let mut mask = Bitmask::new_none(self.vocab.size());
            self.mask(&mut mask)?;
            if !mask.contains(id) {
                return Err(ConstraintError::NotAllowed { id });
            }
        }
        self.inner.accept(id)?;
        let bytes = self.vocab.text_of(id).unwrap_or_default();
        self.places.push(self.place().after(bytes));
        Ok(())
    }

    fn viable(&mut self, bytes: &[u8]) -> Result<usize, ConstraintError> {
        self.inner.viable(bytes)
    }

    fn is_completed(&self) -> bool {
        self.inner.is_completed()
    }

    fn rewind(&mut self, n: usize) -> bool {
        if n >= self.places.len() || !self.inner.rewind(n) {
            return false;
        }
        self.places.truncate(self.places.len() - n);
        true
    }

    fn fork(&self) -> Box<dyn Constraint> {
        Box::new(DigitLimit {
            vocab: self.vocab.clone(),
            inner: self.inner.fork(),
            places: self.places.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_count_in_numbers_and_not_in_strings() {
        let digits = |text: &str| {
            let place = Place::default().after(text.as_bytes());
            (place.in_string, place.digits)
        };
        assert_eq!(digits("[12, 345"), (false, 3));
        assert_eq!(digits("-1.0045e"), (false, 0));
        assert_eq!(digits(r#"{"a\"1"#), (true, 0));
        assert_eq!(digits(r#"{"a\\"12"#), (false, 2));
    }
}
