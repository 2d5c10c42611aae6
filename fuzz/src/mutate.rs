//! Random changes to an input: what corrupted, truncated and hostile files look like.
//!
//! Deterministic: the same generator state gives the same input, so a seed names a whole run.

/// Inputs never grow beyond this; parsers must cope with size by limits, not by luck, and small
/// inputs give more runs per second.
const BYTES_MAX: usize = 1 << 18;

/// Numbers at which arithmetic breaks, as text.
const NUMBERS: &[&str] = &[
    "-1",
    "0",
    "1",
    "65536",
    "2147483648",
    "4294967295",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "1e999",
    "-0.0",
    "1e-999",
    "null",
    "true",
    "\"\"",
    "[]",
    "{}",
];

/// The same as bytes of a binary field.
const WORDS: &[u64] = &[0, 1, 0x7f, 0x80, 0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff, 1 << 62, !0];

/// Brackets and markers, alone and in depth.
const FRAGMENTS: &[&str] = &[
    "[",
    "]",
    "{",
    "}",
    "\"",
    ":",
    ",",
    "{{",
    "}}",
    "{%",
    "%}",
    "\\u0000",
    "\\ud800",
    "\u{feff}",
    "\u{2581}",
    "\u{10ffff}",
];

/// SplitMix64: small, seedable, good enough to choose mutations.
pub struct Rng(pub u64);

impl Rng {
    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, or 0 when `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        if n == 0 { 0 } else { (self.next_u64() % n as u64) as usize }
    }

    /// One of `items`, which is not empty.
    pub fn pick<'a, T: ?Sized>(&mut self, items: &[&'a T]) -> &'a T {
        items[self.below(items.len())]
    }
}

/// One of the seeds with a few changes.
pub fn mutate(rng: &mut Rng, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut data = seeds[rng.below(seeds.len())].clone();
    // Mostly few changes: an input that is wrong everywhere is refused by the first check.
    let n_changes = 1 + rng.below(4) * rng.below(4);
    for _ in 0..n_changes {
        change(rng, seeds, &mut data);
        data.truncate(BYTES_MAX);
    }
    data
}

fn change(rng: &mut Rng, seeds: &[Vec<u8>], data: &mut Vec<u8>) {
    let at = rng.below(data.len() + 1);
    let end = at + rng.below((data.len() - at).min(64) + 1);
    match rng.below(10) {
        0 => flip_bit(rng, data),
        1 => data.truncate(at),
        2 => drop(data.drain(at..end)),
        3 => insert(data, at, rng.pick(FRAGMENTS).as_bytes()),
        4 => {
            let repeats = 1 << rng.below(14);
            let deep = rng.pick(FRAGMENTS).repeat(repeats);
            insert(data, at, deep.as_bytes());
        }
        5 => {
            let piece = data[at..end].to_vec();
            insert(data, at, &piece.repeat(1 + rng.below(8)));
        }
        6 => {
            let other = &seeds[rng.below(seeds.len())];
            let from = rng.below(other.len() + 1);
            let piece = other[from..(from + rng.below(256)).min(other.len())].to_vec();
            insert(data, at, &piece);
        }
        7 => overwrite_word(rng, data, at),
        _ => replace_number(rng, data, at),
    }
}

fn flip_bit(rng: &mut Rng, data: &mut [u8]) {
    let at = rng.below(data.len());
    if let Some(byte) = data.get_mut(at) {
        *byte ^= 1 << rng.below(8);
    }
}

fn insert(data: &mut Vec<u8>, at: usize, piece: &[u8]) {
    data.splice(at..at, piece.iter().copied());
}

/// A binary field of one to eight bytes, little-endian.
fn overwrite_word(rng: &mut Rng, data: &mut [u8], at: usize) {
    let word = WORDS[rng.below(WORDS.len())].to_le_bytes();
    let width = 1 << rng.below(4);
    for (byte, new) in data[at..].iter_mut().zip(&word[..width]) {
        *byte = *new;
    }
}

/// The first number in decimal digits after `at`, wherever it stands.
fn replace_number(rng: &mut Rng, data: &mut Vec<u8>, at: usize) {
    let Some(start) = data[at..].iter().position(u8::is_ascii_digit).map(|n| at + n) else {
        return;
    };
    let length = data[start..].iter().take_while(|b| b.is_ascii_digit()).count();
    let number = rng.pick(NUMBERS).bytes();
    data.splice(start..start + length, number);
}
