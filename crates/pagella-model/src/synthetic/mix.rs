//! Widths and group sizes of synthetic EXL2 weights, shaped like those of ExLlamaV2's converter:
//! a few important rows wide, most rows at two neighbouring widths, groups of 32 or 128.

use crate::error::ModelError;

/// `(bits, share of the rows, rows per group)`.
pub(super) type Mix = Vec<(u8, f32, usize)>;

/// Widths of EXL2, ascending.
const WIDTHS: [u8; 6] = [2, 3, 4, 5, 6, 8];

/// Bits of one scale code.
const SCALE_BITS: f32 = 4.0;

/// Groups of important rows.
const SMALL_GROUP: usize = 32;

/// Groups of the rest.
const LARGE_GROUP: usize = 128;

/// Share of the rows at two widths above the main one.
const FAR_SHARE: f32 = 0.05;

/// Share of the rows at the width above the main one.
const NEAR_SHARE: f32 = 0.10;

/// A mix whose stored size averages `bits` per weight, scales included; from 2 to 8.
pub(super) fn of_layers(bits: f32) -> Result<Mix, ModelError> {
    if !(2.0..=8.0).contains(&bits) {
        let value = bits.clamp(0.0, 1e6) as usize;
        return Err(ModelError::BadOption { option: "bits", value, min: 2, max: 8 });
    }
    let main = WIDTHS.iter().rposition(|width| f32::from(*width) <= bits).unwrap_or(0);
    let wider = |steps: usize| WIDTHS.get(main + steps).copied();
    let mut mix = Mix::new();
    if let (Some(near), Some(far)) = (wider(1), wider(2)) {
        mix = vec![(far, FAR_SHARE, SMALL_GROUP), (near, NEAR_SHARE, SMALL_GROUP)];
    }
    if rest_width(&mix, bits) < f32::from(WIDTHS[0]) {
        mix.clear();
    }
    let rest = 1.0 - mix.iter().map(|(_, share, _)| share).sum::<f32>();
    let width = rest_width(&mix, bits).clamp(2.0, 8.0);
    let low = WIDTHS.iter().rposition(|known| f32::from(*known) <= width).unwrap_or(0);
    let low_bits = WIDTHS[low];
    match WIDTHS.get(low + 1) {
        Some(high_bits) => {
            let span = f32::from(*high_bits) - f32::from(low_bits);
            let high_share = (width - f32::from(low_bits)) / span;
            mix.push((*high_bits, rest * high_share, LARGE_GROUP));
            mix.push((low_bits, rest * (1.0 - high_share), LARGE_GROUP));
        }
        None => mix.push((low_bits, rest, LARGE_GROUP)),
    }
    mix.retain(|(_, share, _)| *share > 0.0);
    Ok(mix)
}

/// Average width that the rows outside `mix` need for `bits` per weight in all.
fn rest_width(mix: &Mix, bits: f32) -> f32 {
    let overhead = |group: usize| SCALE_BITS / group as f32;
    let taken: f32 = mix
        .iter()
        .map(|(width, share, group)| share * (f32::from(*width) + overhead(*group)))
        .sum();
    let rest = 1.0 - mix.iter().map(|(_, share, _)| share).sum::<f32>();
    (bits - taken) / rest - overhead(LARGE_GROUP)
}

/// The converter's head: one width, with some rows two steps wider at 6 bits.
pub(super) fn of_head(bits: u8) -> Result<Mix, ModelError> {
    match bits {
        6 => Ok(vec![(8, 0.15, LARGE_GROUP), (6, 0.85, LARGE_GROUP)]),
        _ if WIDTHS.contains(&bits) => Ok(vec![(bits, 1.0, LARGE_GROUP)]),
        _ => Err(ModelError::BadOption { option: "head_bits", value: bits.into(), min: 2, max: 8 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_is_what_was_asked_for() {
        for bits in [2.0f32, 2.25, 2.5, 3.0, 3.5, 4.0, 4.65, 5.0, 6.0, 6.5, 8.0] {
            let mix = of_layers(bits).unwrap();
            let linear = pagella_formats::synthetic::exl2(4096, 256, &mix, 1);
            let stored = linear.view().bits_per_weight() as f32;
            // The row order costs 32 bits per row, here 32 / 256 per weight. Below 2 bits and a
            // scale the format cannot go, and at 8 it cannot leave room for the scales.
            let expected = (bits + 32.0 / 256.0).clamp(2.03 + 0.125, 8.2);
            assert!((stored - expected).abs() < 0.06, "{bits}: {stored} for {mix:?}");
        }
    }

    #[test]
    fn four_bits_is_mostly_four_with_wider_and_narrower_rows() {
        let mix = of_layers(4.0).unwrap();
        let share = |bits| mix.iter().filter(|m| m.0 == bits).map(|m| m.1).sum::<f32>();
        assert!(share(4) > 0.5 && share(3) > 0.05 && share(5) > 0.05 && share(6) > 0.01, "{mix:?}");
    }

    #[test]
    fn widths_outside_the_format_are_refused() {
        for bits in [1.9, 8.1, f32::NAN, -1.0, f32::INFINITY] {
            assert!(of_layers(bits).is_err(), "{bits}");
        }
        assert!(of_head(7).is_err() && of_head(0).is_err());
    }
}
