//! Random numbers of tests: SplitMix64, the same everywhere.

/// A stream of numbers.
pub(crate) struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    /// From 0 to 1, 1 excluded.
    pub fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Nearly normal, of variance 1: the sum of twelve uniform numbers.
    pub fn normal(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| ((0..12).map(|_| self.uniform()).sum::<f64>() - 6.0) as f32).collect()
    }
}
