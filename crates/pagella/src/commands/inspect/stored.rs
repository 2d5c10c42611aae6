//! How linears are stored, in words and for programs: formats, widths, groups, codebooks.

use std::collections::{BTreeMap, BTreeSet};

use pagella_model::LinearFacts;
use serde_json::{Value, json};

/// Bars of the histogram, by eighths.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Different groups and codebooks that are told.
const DETAILS_MAX: usize = 3;

/// Share of all weights by the width of their codes, ascending.
pub(super) fn widths(linears: &[LinearFacts]) -> Vec<(u8, f64)> {
    let mut counts: BTreeMap<u8, u64> = BTreeMap::new();
    for (bits, weights) in linears.iter().flat_map(|linear| &linear.widths) {
        *counts.entry(*bits).or_default() += weights;
    }
    let all = counts.values().sum::<u64>().max(1) as f64;
    counts.into_iter().map(|(bits, weights)| (bits, weights as f64 / all)).collect()
}

/// Shares by width with a small histogram, and the groups and codebooks that there are, if these are few.
pub(super) fn words(linears: &[LinearFacts]) -> String {
    let bar = |share: f64| BARS[((share * 8.0).ceil() as usize).clamp(1, 8) - 1];
    let word =
        |(bits, share): (u8, f64)| format!("{} {bits} bits {:.1} %", bar(share), 100.0 * share);
    let mut words: Vec<String> = widths(linears).into_iter().map(word).collect();
    let details: BTreeSet<&str> = linears.iter().map(|linear| linear.details.as_str()).collect();
    let details: Vec<&str> = details.into_iter().filter(|detail| !detail.is_empty()).collect();
    // Groups differ from linear to linear in EXL2; a long list of them says nothing.
    if (1..=DETAILS_MAX).contains(&details.len()) {
        words.push(details.join("; "));
    }
    words.join(", ")
}

/// One linear for programs.
pub(super) fn json(linear: &LinearFacts) -> Value {
    let weights: u64 = linear.widths.iter().map(|(_, weights)| weights).sum();
    let mut shares: BTreeMap<u8, u64> = BTreeMap::new();
    for (bits, weights) in &linear.widths {
        *shares.entry(*bits).or_default() += weights;
    }
    let share = |(bits, own): (u8, u64)| json!({ "bits": bits, "share": own as f64 / weights.max(1) as f64 });
    json!({
        "name": linear.label,
        "format": linear.kind.name(),
        "bits_per_weight": linear.stored_bytes as f64 * 8.0 / linear.params.max(1) as f64,
        "widths": shares.into_iter().map(share).collect::<Vec<_>>(),
        "details": linear.details,
    })
}
