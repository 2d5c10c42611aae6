//! Thrift's compact protocol, as far as Parquet's headers need it: fields of structs are visited in
//! order, and what nobody asks for is skipped.

use std::io::Read;

use super::Fault;

/// Structs in structs that are followed.
const DEPTH_MAX: u32 = 16;

/// Longest string that is read; longer ones are only skipped.
const STRING_MAX: u64 = 4096;

/// Kinds of values.
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;
const UUID: u8 = 13;

/// A value that stands next.
#[derive(Clone, Copy)]
pub(super) struct Kind(u8);

/// Reads values one after the other.
pub(super) struct Thrift<R> {
    from: R,
    depth: u32,
}

impl<R: Read> Thrift<R> {
    pub fn new(from: R) -> Self {
        Self { from, depth: 0 }
    }

    /// Visits the fields of a struct by number; `visit` reads the value, or says that it did not.
    pub fn fields(
        &mut self,
        visit: &mut dyn FnMut(&mut Self, i16, Kind) -> Result<bool, Fault>,
    ) -> Result<(), Fault> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err("its headers are nested too deeply".to_owned());
        }
        let mut number = 0i16;
        loop {
            let head = self.byte()?;
            if head == 0 {
                break;
            }
            number = match head >> 4 {
                0 => self.zigzag()? as i16,
                step => number.wrapping_add(i16::from(step)),
            };
            let kind = Kind(head & 15);
            if !visit(self, number, kind)? {
                self.skip(kind)?;
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// Visits the elements of a list.
    pub fn list(
        &mut self,
        kind: Kind,
        visit: &mut dyn FnMut(&mut Self, Kind) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        if kind.0 != LIST {
            return Err("a list of its headers is none".to_owned());
        }
        let (count, element) = self.list_head()?;
        (0..count).try_for_each(|_| visit(self, element))
    }

    /// A whole number.
    pub fn number(&mut self, kind: Kind) -> Result<i64, Fault> {
        match kind.0 {
            TRUE => Ok(1),
            FALSE => Ok(0),
            BYTE => Ok(i64::from(self.byte()? as i8)),
            4..=6 => self.zigzag(),
            _ => Err("a number of its headers is none".to_owned()),
        }
    }

    /// A text, with what is not UTF-8 replaced.
    pub fn string(&mut self, kind: Kind) -> Result<String, Fault> {
        let bytes = if kind.0 == BINARY { self.varint()? } else { STRING_MAX + 1 };
        if bytes > STRING_MAX {
            return Err("a name of its headers is none".to_owned());
        }
        let mut text = vec![0; bytes as usize];
        self.from.read_exact(&mut text).map_err(|_| ended())?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    fn skip(&mut self, kind: Kind) -> Result<(), Fault> {
        match kind.0 {
            TRUE | FALSE => Ok(()),
            BYTE => self.pass(1),
            4..=6 => self.varint().map(drop),
            DOUBLE => self.pass(8),
            UUID => self.pass(16),
            BINARY => {
                let bytes = self.varint()?;
                self.pass(bytes)
            }
            LIST | SET => {
                let (count, element) = self.list_head()?;
                (0..count).try_for_each(|_| self.skip_element(element))
            }
            MAP => {
                let count = self.varint()?;
                if count == 0 {
                    return Ok(());
                }
                let kinds = self.byte()?;
                (0..count).try_for_each(|_| {
                    self.skip_element(Kind(kinds >> 4))?;
                    self.skip_element(Kind(kinds & 15))
                })
            }
            STRUCT => self.fields(&mut |_, _, _| Ok(false)),
            _ => Err("its headers are damaged".to_owned()),
        }
    }

    /// In a collection a truth value is a byte.
    fn skip_element(&mut self, kind: Kind) -> Result<(), Fault> {
        match kind.0 {
            TRUE | FALSE => self.pass(1),
            LIST | SET | MAP => {
                // Every element takes a byte at least, but collections may hold empty ones.
                self.depth += 1;
                if self.depth > DEPTH_MAX {
                    return Err("its headers are nested too deeply".to_owned());
                }
                self.skip(kind)?;
                self.depth -= 1;
                Ok(())
            }
            _ => self.skip(kind),
        }
    }

    fn list_head(&mut self) -> Result<(u64, Kind), Fault> {
        let head = self.byte()?;
        let count = match head >> 4 {
            15 => self.varint()?,
            count => u64::from(count),
        };
        Ok((count, Kind(head & 15)))
    }

    fn byte(&mut self) -> Result<u8, Fault> {
        let mut byte = [0];
        self.from.read_exact(&mut byte).map_err(|_| ended())?;
        Ok(byte[0])
    }

    fn pass(&mut self, bytes: u64) -> Result<(), Fault> {
        let passed = std::io::copy(&mut self.from.by_ref().take(bytes), &mut std::io::sink());
        if passed.is_ok_and(|passed| passed == bytes) { Ok(()) } else { Err(ended()) }
    }

    fn varint(&mut self) -> Result<u64, Fault> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return Ok(value);
            }
        }
        Err("a number of its headers has no end".to_owned())
    }

    fn zigzag(&mut self) -> Result<i64, Fault> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }
}

fn ended() -> Fault {
    "it ends in the middle of a header".to_owned()
}
