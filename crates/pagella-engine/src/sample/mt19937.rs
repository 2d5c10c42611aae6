//! The Mersenne Twister of Matsumoto and Nishimura (1998), seeded by an array of words (2002), for
//! those who want the random stream of programs that use it.
//!
//! Unlike the counter-based draws it has a state, 2.5 kB, that advances by one draw per sampled
//! position and must be copied with the job.

const WORDS: usize = 624;
const MIDDLE: usize = 397;
const TWIST: u32 = 0x9908_b0df;
const HIGH: u32 = 0x8000_0000;

/// A generator of 53-bit draws.
#[derive(Clone, PartialEq, Eq)]
pub struct Mt19937 {
    words: Box<[u32; WORDS]>,
    next: usize,
}

impl std::fmt::Debug for Mt19937 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mt19937").field("next", &self.next).finish_non_exhaustive()
    }
}

impl Mt19937 {
    /// Seeds with the 32-bit words of `seed`, lowest first, without leading zeros.
    pub fn new(seed: u64) -> Self {
        let both = [seed as u32, (seed >> 32) as u32];
        let key = if both[1] == 0 { &both[..1] } else { &both[..] };
        let mut words = Box::new([0u32; WORDS]);
        words[0] = 19_650_218;
        for i in 1..WORDS {
            words[i] = mixed(words[i - 1]).wrapping_mul(1_812_433_253).wrapping_add(i as u32);
        }
        let mut i = 1;
        let advance = |i: &mut usize, words: &mut [u32; WORDS]| {
            *i += 1;
            if *i == WORDS {
                words[0] = words[WORDS - 1];
                *i = 1;
            }
        };
        for (j, word) in (0..key.len()).cycle().take(WORDS).map(|j| (j as u32, key[j])) {
            let previous = mixed(words[i - 1]).wrapping_mul(1_664_525);
            words[i] = (words[i] ^ previous).wrapping_add(word).wrapping_add(j);
            advance(&mut i, &mut words);
        }
        for _ in 1..WORDS {
            let previous = mixed(words[i - 1]).wrapping_mul(1_566_083_941);
            words[i] = (words[i] ^ previous).wrapping_sub(i as u32);
            advance(&mut i, &mut words);
        }
        words[0] = HIGH;
        Mt19937 { words, next: WORDS }
    }

    /// The next draw in `[0, 1)`, from two words.
    pub fn draw(&mut self) -> f64 {
        let high = f64::from(self.word() >> 5);
        let low = f64::from(self.word() >> 6);
        (high * (1u64 << 26) as f64 + low) / (1u64 << 53) as f64
    }

    fn word(&mut self) -> u32 {
        if self.next == WORDS {
            self.refill();
        }
        let mut y = self.words[self.next];
        self.next += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ y >> 18
    }

    fn refill(&mut self) {
        for i in 0..WORDS {
            let y = (self.words[i] & HIGH) | (self.words[(i + 1) % WORDS] & !HIGH);
            let twisted = (y >> 1) ^ if y & 1 == 1 { TWIST } else { 0 };
            self.words[i] = self.words[(i + MIDDLE) % WORDS] ^ twisted;
        }
        self.next = 0;
    }
}

fn mixed(word: u32) -> u32 {
    word ^ word >> 30
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(seed: u64, expected: [f64; 3]) {
        let mut generator = Mt19937::new(seed);
        for value in expected {
            let draw = generator.draw();
            assert!((draw - value).abs() < 1e-10, "seed {seed}: {draw} {value}");
        }
    }

    #[test]
    fn draws_equal_the_published_streams() {
        check(0, [0.8444218515, 0.7579544029, 0.4205715808]);
        check(1234, [0.9664535357, 0.4407325992, 0.0074914701]);
    }

    #[test]
    fn seeds_beyond_32_bits_use_both_words_and_the_state_is_refilled() {
        let mut long = Mt19937::new(5 + (1 << 32));
        let mut short = Mt19937::new(5);
        assert_ne!(long.draw(), short.draw());
        let mut copy = long.clone();
        let one: Vec<f64> = (0..1000).map(|_| long.draw()).collect();
        let other: Vec<f64> = (0..1000).map(|_| copy.draw()).collect();
        assert_eq!(one, other);
        assert!(one.iter().all(|r| (0.0..1.0).contains(r)));
    }
}
