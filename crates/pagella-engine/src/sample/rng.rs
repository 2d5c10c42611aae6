//! Counter-based random numbers: Philox-4x32 with ten rounds.
//!
//! A block of four words is a function of key and counter alone. The key is the seed, the counter
//! is the position of the token in its sequence and the attempt at that position; nothing is stored
//! between draws, so the same seed gives the same text on any schedule. Constants and test vectors:
//! Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011), and its Random123 library.

const MULTIPLIER_0: u32 = 0xD251_1F53;
const MULTIPLIER_1: u32 = 0xCD9E_8D57;
/// Golden ratio and √3 − 1, added to the key after every round.
const WEYL_0: u32 = 0x9E37_79B9;
const WEYL_1: u32 = 0xBB67_AE85;
const ROUNDS: usize = 10;

/// What one position may draw, each in `[0, 1)` with 53 random bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draws {
    /// Picks the id.
    pub id: f64,
    /// Decides whether XTC acts, where that is drawn.
    pub xtc: f64,
}

/// The draws for the token at `position`; `attempt` counts retries there.
pub fn draws(seed: u64, position: u64, attempt: u32) -> Draws {
    let counter = [position as u32, (position >> 32) as u32, attempt, 0];
    let [a, b, c, d] = philox(counter, [seed as u32, (seed >> 32) as u32]);
    Draws { id: unit(a, b), xtc: unit(c, d) }
}

/// The draw in `[0, 1)` that picks the token at `position` at the first attempt.
pub fn uniform(seed: u64, position: u64) -> f64 {
    draws(seed, position, 0).id
}

fn unit(high: u32, low: u32) -> f64 {
    let bits = (u64::from(high) << 32 | u64::from(low)) >> 11;
    bits as f64 * (1.0 / (1u64 << 53) as f64)
}

fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        let wide_0 = u64::from(MULTIPLIER_0) * u64::from(counter[0]);
        let wide_1 = u64::from(MULTIPLIER_1) * u64::from(counter[2]);
        counter = [
            (wide_1 >> 32) as u32 ^ counter[1] ^ key[0],
            wide_1 as u32,
            (wide_0 >> 32) as u32 ^ counter[3] ^ key[1],
            wide_0 as u32,
        ];
        key = [key[0].wrapping_add(WEYL_0), key[1].wrapping_add(WEYL_1)];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_equal_the_published_vectors() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox(
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0]
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn draws_are_in_range_spread_out_and_keyed_by_seed_position_and_attempt() {
        let ids: Vec<f64> = (0..10_000).map(|p| uniform(7, p)).collect();
        assert!(ids.iter().all(|r| (0.0..1.0).contains(r)));
        let mean = ids.iter().sum::<f64>() / ids.len() as f64;
        assert!((mean - 0.5).abs() < 0.015, "mean {mean}");
        assert_ne!(uniform(7, 3), uniform(8, 3));
        assert_ne!(uniform(7, 3), uniform(7, 3 + (1 << 32)));
        assert_ne!(draws(7, 3, 0), draws(7, 3, 1));
        assert_ne!(draws(7, 3, 0).id, draws(7, 3, 0).xtc);
        assert_eq!(uniform(7, 3), ids[3]);
    }
}
