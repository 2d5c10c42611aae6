//! The parameter sets that ExLlamaV2 chooses from, so that measurements can be exchanged with it.

use crate::error::QuantError;
use crate::params::{LinearParams, WidthShare};

type Set = &'static [WidthShare];

/// Sets for the linears of attention; query and key share one.
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionCandidate {
    /// Query and key.
    pub q_k: LinearParams,
    /// Value.
    pub v: LinearParams,
    /// Output.
    pub o: LinearParams,
}

/// Sets for the linears of an MLP, or of all experts at once.
#[derive(Clone, Debug, PartialEq)]
pub struct MlpCandidate {
    /// Gate, if there is one.
    pub gate: LinearParams,
    /// Up.
    pub up: LinearParams,
    /// Down.
    pub down: LinearParams,
}

/// The 19 candidates of attention, in the order of measurements.
pub fn attention_candidates() -> Vec<AttentionCandidate> {
    let of = |[q_k, v, o]: &[Set; 3]| AttentionCandidate {
        q_k: LinearParams::preset(q_k),
        v: LinearParams::preset(v),
        o: LinearParams::preset(o),
    };
    ATTENTION.iter().map(of).collect()
}

/// The 17 candidates of an MLP, in the order of measurements.
pub fn mlp_candidates() -> Vec<MlpCandidate> {
    let of = |[gate, up, down]: &[Set; 3]| MlpCandidate {
        gate: LinearParams::preset(gate),
        up: LinearParams::preset(up),
        down: LinearParams::preset(down),
    };
    MLP.iter().map(of).collect()
}

/// The set of the output head for `bits`: 2, 3, 4, 5, 6 or 8.
pub fn head_params(bits: u32) -> Result<LinearParams, QuantError> {
    let preset = HEAD.iter().find(|(head_bits, _)| *head_bits == bits);
    let (_, set) = preset.ok_or(QuantError::HeadBits { bits })?;
    Ok(LinearParams::preset(set))
}

const fn w(share: f64, bits: u8, group_rows: usize) -> WidthShare {
    WidthShare { bits, share, group_rows }
}

const ATTENTION: [[Set; 3]; 19] = [
    [
        &[w(0.05, 3, 64), w(0.95, 2, 64)],
        &[w(0.05, 3, 64), w(0.95, 2, 64)],
        &[w(0.05, 3, 64), w(0.95, 2, 64)],
    ],
    [
        &[w(0.1, 3, 64), w(0.9, 2, 64)],
        &[w(0.25, 3, 64), w(0.75, 2, 64)],
        &[w(0.1, 3, 64), w(0.9, 2, 64)],
    ],
    [
        &[w(0.1, 3, 64), w(0.9, 2, 64)],
        &[w(0.1, 4, 128), w(0.9, 3, 128)],
        &[w(0.1, 3, 64), w(0.9, 2, 64)],
    ],
    [
        &[w(0.1, 3, 64), w(0.9, 2, 64)],
        &[w(0.1, 4, 128), w(0.9, 3, 128)],
        &[w(0.1, 4, 128), w(0.9, 3, 128)],
    ],
    [
        &[w(0.1, 4, 128), w(0.9, 3, 128)],
        &[w(0.1, 4, 128), w(0.9, 3, 128)],
        &[w(0.1, 4, 128), w(0.9, 3, 128)],
    ],
    [
        &[w(0.1, 4, 128), w(0.9, 3, 128)],
        &[w(0.1, 4, 64), w(0.9, 3, 64)],
        &[w(0.1, 4, 128), w(0.9, 3, 128)],
    ],
    [&[w(1.0, 4, 128)], &[w(1.0, 4, 128)], &[w(1.0, 4, 128)]],
    [&[w(1.0, 4, 128)], &[w(1.0, 4, 64)], &[w(1.0, 4, 128)]],
    [&[w(1.0, 4, 64)], &[w(1.0, 4, 32)], &[w(1.0, 4, 64)]],
    [&[w(1.0, 4, 32)], &[w(1.0, 4, 32)], &[w(1.0, 4, 32)]],
    [
        &[w(0.1, 5, 128), w(0.9, 4, 128)],
        &[w(0.1, 5, 64), w(0.9, 4, 64)],
        &[w(0.1, 5, 128), w(0.9, 4, 128)],
    ],
    [
        &[w(0.1, 5, 64), w(0.9, 4, 64)],
        &[w(0.1, 5, 32), w(0.9, 4, 32)],
        &[w(0.1, 5, 64), w(0.9, 4, 64)],
    ],
    [&[w(0.1, 5, 64), w(0.9, 4, 64)], &[w(1.0, 5, 64)], &[w(0.1, 5, 64), w(0.9, 4, 64)]],
    [&[w(0.1, 5, 32), w(0.9, 4, 32)], &[w(1.0, 5, 32)], &[w(0.1, 5, 32), w(0.9, 4, 32)]],
    [&[w(0.1, 6, 128), w(0.9, 5, 128)], &[w(1.0, 6, 128)], &[w(0.1, 6, 128), w(0.9, 5, 128)]],
    [&[w(0.1, 6, 32), w(0.9, 5, 32)], &[w(1.0, 6, 32)], &[w(0.1, 6, 32), w(0.9, 5, 32)]],
    [&[w(1.0, 6, 128)], &[w(1.0, 6, 128)], &[w(1.0, 6, 128)]],
    [&[w(1.0, 6, 32)], &[w(1.0, 8, 32)], &[w(1.0, 6, 32)]],
    [&[w(1.0, 8, 128)], &[w(1.0, 8, 128)], &[w(1.0, 8, 128)]],
];

const MLP: [[Set; 3]; 17] = [
    [
        &[w(0.05, 3, 64), w(0.95, 2, 64)],
        &[w(0.05, 3, 64), w(0.95, 2, 64)],
        &[w(0.05, 6, 32), w(0.2, 3, 64), w(0.75, 2, 64)],
    ],
    [
        &[w(0.1, 3, 64), w(0.9, 2, 64)],
        &[w(0.25, 3, 64), w(0.75, 2, 64)],
        &[w(0.05, 6, 32), w(0.2, 3, 64), w(0.75, 2, 64)],
    ],
    [
        &[w(0.1, 3, 64), w(0.9, 2, 64)],
        &[w(0.3, 3, 64), w(0.7, 2, 64)],
        &[w(0.05, 5, 32), w(0.95, 3, 32)],
    ],
    [
        &[w(0.1, 3, 64), w(0.9, 2, 64)],
        &[w(0.3, 3, 64), w(0.7, 2, 64)],
        &[w(0.05, 5, 32), w(0.95, 4, 32)],
    ],
    [
        &[w(0.1, 4, 128), w(0.9, 3, 128)],
        &[w(0.25, 4, 128), w(0.75, 3, 128)],
        &[w(0.05, 8, 32), w(0.1, 4, 128), w(0.85, 3, 128)],
    ],
    [
        &[w(0.1, 4, 32), w(0.9, 3, 32)],
        &[w(0.25, 4, 32), w(0.75, 3, 32)],
        &[w(0.05, 8, 32), w(0.1, 4, 32), w(0.85, 3, 32)],
    ],
    [
        &[w(0.1, 4, 32), w(0.9, 3, 32)],
        &[w(0.25, 4, 32), w(0.75, 3, 32)],
        &[w(0.05, 8, 32), w(0.95, 4, 128)],
    ],
    [&[w(1.0, 4, 128)], &[w(1.0, 4, 32)], &[w(0.05, 8, 32), w(0.95, 4, 128)]],
    [&[w(1.0, 4, 32)], &[w(1.0, 4, 32)], &[w(0.05, 8, 32), w(0.95, 4, 32)]],
    [
        &[w(0.1, 5, 128), w(0.9, 4, 128)],
        &[w(0.25, 5, 128), w(0.75, 4, 128)],
        &[w(0.05, 8, 32), w(0.1, 5, 128), w(0.85, 4, 128)],
    ],
    [
        &[w(0.1, 5, 32), w(0.9, 4, 32)],
        &[w(0.25, 5, 32), w(0.75, 4, 32)],
        &[w(0.05, 8, 32), w(0.1, 5, 32), w(0.85, 4, 32)],
    ],
    [
        &[w(0.1, 6, 128), w(0.9, 5, 128)],
        &[w(0.25, 6, 128), w(0.75, 5, 128)],
        &[w(0.05, 8, 32), w(0.1, 6, 128), w(0.85, 5, 128)],
    ],
    [
        &[w(0.1, 6, 32), w(0.9, 5, 32)],
        &[w(0.25, 6, 32), w(0.75, 5, 32)],
        &[w(0.05, 8, 32), w(0.1, 6, 32), w(0.85, 5, 32)],
    ],
    [&[w(1.0, 6, 128)], &[w(1.0, 6, 128)], &[w(0.05, 8, 32), w(0.95, 6, 128)]],
    [
        &[w(0.1, 8, 128), w(0.9, 6, 128)],
        &[w(0.1, 8, 128), w(0.9, 6, 128)],
        &[w(0.15, 8, 128), w(0.85, 6, 128)],
    ],
    [&[w(0.1, 8, 128), w(0.9, 6, 128)], &[w(0.1, 8, 128), w(0.9, 6, 128)], &[w(1.0, 8, 128)]],
    [&[w(1.0, 8, 128)], &[w(1.0, 8, 128)], &[w(1.0, 8, 128)]],
];

const HEAD: [(u32, Set); 6] = [
    (2, &[w(0.3, 4, 32), w(0.7, 2, 32)]),
    (3, &[w(0.15, 4, 32), w(0.85, 3, 32)]),
    (4, &[w(0.15, 6, 32), w(0.85, 4, 32)]),
    (5, &[w(0.15, 6, 128), w(0.85, 5, 128)]),
    (6, &[w(0.15, 8, 128), w(0.85, 6, 128)]),
    (8, &[w(1.0, 8, 128)]),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Bits per weight of linears of these shapes, to four decimals.
    fn bpw(linears: &[(&LinearParams, usize, usize)]) -> String {
        let cost: u64 = linears.iter().map(|(set, k, n)| set.cost_bits(*k, *n, false)).sum();
        let weights: usize = linears.iter().map(|(_, k, n)| k * n).sum();
        format!("{:.4}", cost as f64 / weights as f64)
    }

    #[test]
    fn attention_costs_what_exllamav2_says() {
        let found: Vec<String> = attention_candidates()
            .iter()
            .map(|set| {
                let (h, kv) = (4096, 1024);
                bpw(&[(&set.q_k, h, h), (&set.q_k, h, kv), (&set.v, h, kv), (&set.o, h, h)])
            })
            .collect();
        assert_eq!(
            found.join(" "),
            "2.1378 2.1987 2.2831 2.6768 3.1689 3.1705 4.0439 4.0471 4.0816 4.1381 4.1705 4.1902 \
             4.2737 4.3295 5.2564 5.3295 6.0439 6.3381 8.0439"
        );
    }

    #[test]
    fn mlps_cost_what_exllamav2_says() {
        let found: Vec<String> = mlp_candidates()
            .iter()
            .map(|set| {
                let (h, i) = (4096, 14336);
                bpw(&[(&set.gate, h, i), (&set.up, h, i), (&set.down, i, h)])
            })
            .collect();
        assert_eq!(
            found.join(" "),
            "2.2449 2.3230 2.5958 2.9120 3.2833 3.3655 3.6186 4.1368 4.1977 4.2662 4.3484 5.2491 \
             5.3313 6.0713 6.3032 6.8687 8.0354"
        );
    }

    #[test]
    fn heads_cost_what_exllamav2_says() {
        let found: Vec<String> = [2, 3, 4, 5, 6, 8]
            .iter()
            .map(|bits| bpw(&[(&head_params(*bits).unwrap(), 4096, 128_256)]))
            .collect();
        assert_eq!(found.join(" "), "2.7346 3.2815 4.4378 5.1878 6.3440 8.0315");
        assert!(head_params(7).unwrap_err().to_string().contains("2, 3, 4, 5, 6 or 8"));
    }

    #[test]
    fn every_set_is_one_that_can_be_written() {
        let sets = ATTENTION.iter().chain(&MLP).flatten().chain(HEAD.iter().map(|(_, set)| set));
        for set in sets {
            assert!(LinearParams::new(set.to_vec()).is_ok(), "{set:?}");
        }
    }
}
