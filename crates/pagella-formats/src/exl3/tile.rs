//! A tile of 16 × 16 weights: a cyclic bit stream, and where each of its weights goes.
//!
//! The stream starts at the highest bit of the first of `8 · bits` little-endian words. Weight `i`
//! has the state of the 16 bits that end with its own `bits`, so neighbours share bits, and the first
//! states reach back to the end of the tile.

/// Rows and columns of a tile.
pub const TILE: usize = 16;
/// Weights of a tile.
pub const TILE_WEIGHTS: usize = TILE * TILE;

/// Row and column of weight `i` inside its tile: the order of a matrix fragment.
pub fn position(i: usize) -> (usize, usize) {
    let (l, j) = (i / 8, i % 8);
    (2 * (l % 4) + (j & 1) + 8 * (j >> 1 & 1), l / 4 + 8 * (j >> 2))
}

/// Bytes of a tile.
pub fn tile_bytes(bits: u8) -> usize {
    TILE_WEIGHTS / 8 * usize::from(bits)
}

/// The states of a tile in the order of its stream. `tile` holds [`tile_bytes`].
pub fn states(tile: &[u8], bits: u8) -> [u16; TILE_WEIGHTS] {
    let (words, _) = tile.as_chunks::<4>();
    let code_bits = usize::from(bits);
    let length = TILE_WEIGHTS * code_bits;
    let word = |at: usize| words.get(at).map_or(0, |bytes| u32::from_le_bytes(*bytes));
    std::array::from_fn(|i| {
        // The window of 16 bits lies in two words, the first of which may be the last of the tile.
        let first = ((i + 1) * code_bits + length - 16) % length;
        let (at, shift) = (first / 32, first % 32);
        let next = (at + 1) % (length / 32);
        let pair = u64::from(word(at)) << 32 | u64::from(word(next));
        (pair >> (48 - shift)) as u16
    })
}
