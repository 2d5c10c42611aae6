//! Parquet's mixture of runs and packed bits, in which levels and places in dictionaries are written.

use super::Fault;

/// Numbers of one width, one after the other.
pub(super) struct Levels<'a> {
    bytes: &'a [u8],
    width: u32,
    run: Run<'a>,
}

enum Run<'a> {
    /// The same number so many times.
    Same { left: u64, value: u32 },
    /// Numbers of `width` bits each, from the lowest bit up.
    Packed { left: u64, bytes: &'a [u8], bit: usize },
}

impl<'a> Levels<'a> {
    /// Numbers of `width` bits, up to 32.
    pub fn new(bytes: &'a [u8], width: u32) -> Result<Self, Fault> {
        if width > 32 {
            return Err(damaged());
        }
        Ok(Self { bytes, width, run: Run::Same { left: 0, value: 0 } })
    }

    /// The next number.
    pub fn next(&mut self) -> Result<u32, Fault> {
        loop {
            match &mut self.run {
                Run::Same { left, value } if *left > 0 => {
                    *left -= 1;
                    return Ok(*value);
                }
                Run::Packed { left, bytes, bit } if *left > 0 => {
                    *left -= 1;
                    let value = bits(bytes, *bit, self.width);
                    *bit += self.width as usize;
                    return value.ok_or_else(damaged);
                }
                _ => self.run = self.next_run()?,
            }
        }
    }

    fn next_run(&mut self) -> Result<Run<'a>, Fault> {
        let head = varint(&mut self.bytes).ok_or_else(damaged)?;
        let count = head >> 1;
        if count == 0 {
            return Err(damaged());
        }
        if head & 1 == 0 {
            let bytes = self.take(u64::from(self.width.div_ceil(8)))?;
            let value = bytes.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte));
            return Ok(Run::Same { left: count, value });
        }
        // The last run may be cut short where its numbers are not needed.
        let wanted = count.checked_mul(u64::from(self.width)).ok_or_else(damaged)?;
        let bytes = self.take(wanted.min(self.bytes.len() as u64))?;
        Ok(Run::Packed { left: count.saturating_mul(8), bytes, bit: 0 })
    }

    fn take(&mut self, count: u64) -> Result<&'a [u8], Fault> {
        let count = usize::try_from(count).map_err(|_| damaged())?;
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or_else(damaged)?;
        self.bytes = rest;
        Ok(taken)
    }
}

fn bits(bytes: &[u8], first: usize, width: u32) -> Option<u32> {
    let mut value = 0u64;
    let (byte, shift) = (first / 8, first % 8);
    let count = (shift + width as usize).div_ceil(8);
    for (at, byte) in bytes.get(byte..byte + count)?.iter().enumerate() {
        value |= u64::from(*byte) << (8 * at);
    }
    Some((value >> shift & ((1u64 << width) - 1)) as u32)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..35).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 127) << shift;
        if *byte < 128 {
            return Some(value);
        }
    }
    None
}

fn damaged() -> Fault {
    "a page is damaged".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_packed_numbers_follow_each_other() {
        // Five times 3, then 0 to 7 in three bits, the example of the format's description.
        let bytes = [0b1010, 3, 0b11, 0b1000_1000, 0b1100_0110, 0b1111_1010];
        let mut levels = Levels::new(&bytes, 3).unwrap();
        let found: Vec<u32> = (0..13).map(|_| levels.next().unwrap()).collect();
        assert_eq!(found, [3, 3, 3, 3, 3, 0, 1, 2, 3, 4, 5, 6, 7]);
        assert!(levels.next().is_err());
    }

    #[test]
    fn hostile_runs_are_refused() {
        for bytes in [&[][..], &[0], &[1], &[2], &[255; 9], &[0xff, 0xff, 0xff, 0xff, 0x0f]] {
            assert!(Levels::new(bytes, 9).unwrap().next().is_err(), "{bytes:?}");
        }
        assert!(Levels::new(&[], 33).is_err());
    }
}
