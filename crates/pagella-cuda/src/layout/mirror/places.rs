//! The table of places, in its plainest form: one bit of one code at a time.

use crate::layout::chunk::block_bytes;

/// Row and column inside a block of half `h` of pair `p` of a lane.
pub(crate) fn element(lane: usize, p: usize, h: usize) -> (usize, usize) {
    let (t, u, j) = (p / 8, p / 4 % 2, p % 4);
    let (r, c) = (lane / 4, lane % 4);
    (16 * t + 8 * (j / 2) + 2 * c + h, 16 * u + 8 * (j % 2) + r)
}

/// Word of the lane and bit in it where bit `bit` of the code of pair `p`, half `h` is kept.
fn place(bits: u8, p: usize, h: usize, bit: usize) -> (usize, usize) {
    let width = usize::from(bits);
    let (word, at) = match bits {
        2 | 4 | 16 => (p * width / 16, p * width % 16 + bit),
        8 => return (p / 2, 16 * (p % 2) + 8 * h + bit),
        3 | 5 if p < 15 => (p / (15 / width), width * (p % (15 / width)) + bit),
        3 => (bit, 15),
        5 => (4 - bit, 15),
        _ => six_bits(p, bit),
    };
    (word, at + 16 * h)
}

/// Six bits: of each eight pairs, six lie at bits 0 and 10 of three words, two between them.
fn six_bits(p: usize, bit: usize) -> (usize, usize) {
    let triple = 3 * (p / 8);
    let (word, at) = match (p % 8, bit) {
        (6, 0..2) => (1, 6 + bit),
        (6, _) => (0, 4 + bit),
        (7, 0..2) => (1, 8 + bit),
        (7, _) => (2, 4 + bit),
        (q, _) => (q / 2, 10 * (q % 2) + bit),
    };
    (triple + word, at)
}

/// Byte offset of a lane's word in a block: planes of two words below four bits, else of four; what
/// is left makes a smaller plane.
fn word_offset(bits: u8, lane: usize, word: usize) -> usize {
    let (words, plane) = (usize::from(bits), if bits < 4 { 2 } else { 4 });
    let before = word / plane * plane;
    let in_plane = plane.min(words - before);
    4 * (32 * before + lane * in_plane + word - before)
}

/// Every bit of a block: calls `take` with row, column, bit of the code, byte and bit of the byte.
fn for_each_bit(bits: u8, mut take: impl FnMut(usize, usize, usize, usize, usize)) {
    for (lane, p, h) in (0..32 * 32).map(|i| (i / 32, i / 2 % 16, i % 2)) {
        let (row, column) = element(lane, p, h);
        for bit in 0..usize::from(bits) {
            let (word, at) = place(bits, p, h, bit);
            take(row, column, bit, word_offset(bits, lane, word) + at / 8, at % 8);
        }
    }
}

/// A block of codes `code(row, column)`.
pub(crate) fn pack_block(bits: u8, code: impl Fn(usize, usize) -> u32) -> Vec<u8> {
    let mut block = vec![0; block_bytes(bits)];
    for_each_bit(bits, |row, column, bit, byte, at| {
        block[byte] |= ((code(row, column) >> bit & 1) as u8) << at;
    });
    block
}

/// The codes of a block, `[row][column]`.
pub(crate) fn unpack_block(bits: u8, block: &[u8]) -> Vec<[u32; 32]> {
    let mut codes = vec![[0; 32]; 32];
    for_each_bit(bits, |row, column, bit, byte, at| {
        codes[row][column] |= u32::from(block[byte] >> at & 1) << bit;
    });
    codes
}
