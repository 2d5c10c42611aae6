//! The bits of a block: 32 codes of one column in `bits` words, four rows per quad.
//!
//! Byte `i` of quad `q` is the code of row `4q + i`. The first quads sit in the low bits of their
//! words; the spare high bits carry the last one, two or three quads, so no bit is wasted and most
//! quads come out with one mask. All functions work on 16 columns at once.

use crate::simd::LANES;

/// One word of each of 16 columns: a 64-byte line.
pub(crate) type Line = [u32; LANES];

/// Where the bits of the carried quads go: `(word, quad, from_bit, bit_count, to_bit)`.
type Carry = (usize, usize, u32, u32, u32);

const CARRY_3: [Carry; 6] = [
    (0, 6, 0, 1, 6),
    (1, 6, 1, 1, 6),
    (2, 6, 2, 1, 6),
    (0, 7, 0, 1, 7),
    (1, 7, 1, 1, 7),
    (2, 7, 2, 1, 7),
];
const CARRY_5: [Carry; 7] = [
    (0, 5, 0, 3, 5),
    (1, 5, 3, 2, 5),
    (1, 7, 3, 1, 7),
    (2, 6, 0, 3, 5),
    (3, 6, 3, 2, 5),
    (3, 7, 4, 1, 7),
    (4, 7, 0, 3, 5),
];
const CARRY_6: [Carry; 6] = [
    (0, 6, 0, 2, 6),
    (1, 6, 2, 2, 6),
    (2, 6, 4, 2, 6),
    (3, 7, 0, 2, 6),
    (4, 7, 2, 2, 6),
    (5, 7, 4, 2, 6),
];

/// `(quads per word, carried bits)` of a width.
fn scheme(bits: u8) -> (usize, &'static [Carry]) {
    match bits {
        2 => (4, &[]),
        3 => (2, &CARRY_3),
        4 => (2, &[]),
        5 => (1, &CARRY_5),
        6 => (1, &CARRY_6),
        _ => (1, &[]),
    }
}

/// Packs eight quads into `bits` lines.
#[inline(always)]
pub(crate) fn pack_quads(bits: u8, quads: &[Line; 8], lines: &mut [Line]) {
    let (per_word, carries) = scheme(bits);
    let mask = 0x0101_0101 * ((1u32 << bits) - 1).min(0xFF);
    for (word, line) in lines.iter_mut().enumerate().take(usize::from(bits)) {
        *line = [0; LANES];
        for slot in 0..per_word {
            let quad = &quads[word * per_word + slot];
            for (out, codes) in line.iter_mut().zip(quad) {
                *out |= (codes & mask) << (u32::from(bits) * slot as u32);
            }
        }
    }
    for &(word, quad, from, count, to) in carries {
        let mask = 0x0101_0101 * ((1u32 << count) - 1);
        for (out, codes) in lines[word].iter_mut().zip(&quads[quad]) {
            *out |= ((codes >> from) & mask) << to;
        }
    }
}

/// Reads quad `q` of a column-wise bit stream, as the file stores it: code `j` of a column starts
/// at bit `j · bits` of its `bits` words.
#[inline(always)]
pub(crate) fn stream_quad(bits: u8, words: &[Line], q: usize) -> Line {
    let bits = usize::from(bits);
    let (word, shift) = (4 * q * bits / 32, (4 * q * bits % 32) as u32);
    let mask = ((1u64 << bits) - 1) as u32;
    let straddles = shift as usize + 4 * bits > 32;
    let mut quad = [0u32; LANES];
    for (column, out) in quad.iter_mut().enumerate() {
        let mut stream = words[word][column] >> shift;
        if straddles {
            stream |= words[word + 1][column] << (32 - shift);
        }
        *out = (0..4).fold(0, |quad, i| quad | (((stream >> (i * bits)) & mask) << (8 * i)));
    }
    quad
}

#[cfg(test)]
pub(crate) fn code_at(bits: u8, lines: &[Line], row: usize, column: usize) -> u8 {
    let (per_word, carries) = scheme(bits);
    let (quad, byte) = (row / 4, row % 4 * 8);
    let byte_of = |word: usize| lines[word][column] >> byte & 0xFF;
    if quad < per_word * usize::from(bits) {
        let low = byte_of(quad / per_word) >> (quad % per_word * usize::from(bits));
        return (low & ((1u32 << bits) - 1)) as u8;
    }
    let parts = carries.iter().filter(|c| c.1 == quad);
    parts.fold(0, |code, &(word, _, from, count, to)| {
        code | ((byte_of(word) >> to & ((1 << count) - 1)) << from) as u8
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Widths a packed linear may have.
    const WIDTHS: [u8; 6] = [2, 3, 4, 5, 6, 8];

    /// Packs codes into the file's column-wise bit stream.
    fn stream(bits: u8, codes: &[[u8; LANES]; 32]) -> Vec<Line> {
        let mut words = vec![[0u32; LANES]; usize::from(bits)];
        for (row, columns) in codes.iter().enumerate() {
            for (column, &code) in columns.iter().enumerate() {
                let at = row * usize::from(bits);
                let wide = u64::from(code) << (at % 32);
                words[at / 32][column] |= wide as u32;
                if wide >> 32 != 0 {
                    words[at / 32 + 1][column] |= (wide >> 32) as u32;
                }
            }
        }
        words
    }

    fn check(bits: u8, codes: &[[u8; LANES]; 32]) {
        let words = stream(bits, codes);
        let quads: [Line; 8] = std::array::from_fn(|q| stream_quad(bits, &words, q));
        let mut lines = [[0; LANES]; 8];
        pack_quads(bits, &quads, &mut lines);
        for (row, columns) in codes.iter().enumerate() {
            for (column, &code) in columns.iter().enumerate() {
                assert_eq!(code_at(bits, &lines, row, column), code, "{bits} bits, row {row}");
            }
        }
    }

    #[test]
    fn every_single_bit_survives() {
        for bits in WIDTHS {
            for row in 0..32 {
                for bit in 0..bits {
                    let mut codes = [[0u8; LANES]; 32];
                    codes[row][row % LANES] = 1 << bit;
                    check(bits, &codes);
                }
            }
        }
    }

    #[test]
    fn random_codes_survive() {
        let mut state = 1u32;
        for bits in WIDTHS {
            let codes = std::array::from_fn(|_| {
                std::array::from_fn(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 24) as u8 & (((1u32 << bits) - 1) as u8)
                })
            });
            check(bits, &codes);
        }
    }
}
