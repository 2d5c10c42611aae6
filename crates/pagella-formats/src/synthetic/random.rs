//! The generator behind synthetic weights: SplitMix64, fast and reproducible everywhere.

/// A stream of random bits.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    /// A number below `bound`, which is not zero. The bias is far below what a benchmark sees.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// `len` random bytes, each word passed through `shape` first.
    pub(super) fn bytes(&mut self, len: usize, shape: impl Fn(u64) -> u64) -> Vec<u8> {
        let mut bytes = vec![0; len.next_multiple_of(8)];
        for word in bytes.chunks_exact_mut(8) {
            word.copy_from_slice(&shape(self.next()).to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }

    /// A random permutation of `0..len`.
    pub(super) fn permutation(&mut self, len: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..len as u32).collect();
        for last in (1..len).rev() {
            order.swap(last, self.below(last as u64 + 1) as usize);
        }
        order
    }
}
