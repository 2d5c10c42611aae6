//! A random EXL2 linear.

use half::f16;

use super::random::Random;
use super::{Owned, OwnedLinear, PADDED_COLUMNS};
use crate::exl2::groups::GROUP_ROWS_MULTIPLE;
use crate::exl2::pack::{self, Exl2Tensors};
use crate::exl2::{Exl2Group, Exl2Linear, groups};
use crate::linear::Columns;
use crate::words::WordMatrix;

/// An EXL2 linear and its bytes.
#[derive(Clone, Debug)]
pub(super) struct OwnedExl2 {
    in_features: usize,
    out_features: usize,
    groups: Vec<Exl2Group>,
    perm: Vec<u32>,
    pub(super) tensors: Exl2Tensors,
}

/// Makes an EXL2 linear whose rows are shared out over `(bits, share, group_rows)`.
///
/// Shares are relative. Rows are dealt in multiples of 32, widest first as the format demands; the
/// last width takes the rest and its last group may be shorter.
///
/// # Panics
/// When `in_features` is no positive multiple of 32 below 2^17, when there are no outputs, or when
/// the mix is empty or has a width or group size that the format does not have.
pub fn exl2(
    in_features: usize,
    out_features: usize,
    bits_mix: &[(u8, f32, usize)],
    seed: u64,
) -> OwnedLinear {
    let sizes = deal_rows(in_features, bits_mix);
    let columns = out_features.next_multiple_of(PADDED_COLUMNS);
    assert!(columns > 0, "no outputs");
    let mut random = Random::new(seed);
    let table = pack::group_table(&sizes).expect("widths, rows and size as documented");
    let word_rows: usize = sizes.iter().map(|(bits, rows)| rows / 32 * usize::from(*bits)).sum();
    let mut q_weight = random.bytes(word_rows * columns * 4, |word| word);
    clear_padding(&mut q_weight, &sizes, out_features, columns);
    // The upper half of the scale codes, 8 to 15, so that no column vanishes.
    let q_scale = random.bytes(sizes.len() * columns / 2, |word| word | 0x8888_8888_8888_8888);
    let ceilings = sizes.iter().map(|(bits, _)| ceiling(*bits, in_features));
    let q_scale_max: Vec<u8> = ceilings.flat_map(f16::to_le_bytes).collect();
    let q_groups: Vec<u8> = table.into_iter().flat_map(i16::to_le_bytes).collect();
    // Linears that read the same vector share their row order in real files.
    let perm = Random::new(in_features as u64).permutation(in_features);
    let invperm = pack::inverse_permutation(&perm).expect("made as a permutation");
    let q_invperm = invperm.into_iter().flat_map(i32::to_le_bytes).collect();
    let groups = groups::parse(&q_groups, &q_scale_max, word_rows).expect("made as a valid table");
    let tensors = Exl2Tensors { columns, q_weight, q_scale, q_scale_max, q_groups, q_invperm };
    OwnedLinear(Owned::Exl2(OwnedExl2 { in_features, out_features, groups, perm, tensors }))
}

impl OwnedExl2 {
    pub(super) fn view(&self) -> Exl2Linear<'_> {
        let columns = self.tensors.columns;
        let word_rows = self.groups.iter().map(Exl2Group::words).sum();
        let matrix = |bytes, rows, columns| {
            WordMatrix::new(bytes, rows, columns).expect("sized by the constructor")
        };
        Exl2Linear {
            name: "synthetic".to_owned(),
            in_features: self.in_features,
            out_features: self.out_features,
            columns: Columns::first(self.out_features, columns).expect("padding only adds"),
            groups: self.groups.clone(),
            words: matrix(&self.tensors.q_weight, word_rows, columns),
            scales: matrix(&self.tensors.q_scale, self.groups.len(), columns / 8),
            perm: self.perm.clone(),
            bias: None,
            tensors: Vec::new(),
        }
    }
}

/// Groups as `(bits, rows)`, widest first, `in_features` rows in all.
fn deal_rows(in_features: usize, bits_mix: &[(u8, f32, usize)]) -> Vec<(u8, usize)> {
    let units = in_features / GROUP_ROWS_MULTIPLE;
    assert!(units > 0 && in_features.is_multiple_of(GROUP_ROWS_MULTIPLE), "{in_features} rows");
    let mut mix = bits_mix.to_vec();
    mix.sort_by_key(|(bits, ..)| std::cmp::Reverse(*bits));
    let total: f32 = mix.iter().map(|(_, share, _)| share).sum();
    let mut sizes = Vec::new();
    let (mut dealt, mut share_so_far) = (0, 0.0);
    for (position, (bits, share, group_rows)) in mix.iter().enumerate() {
        share_so_far += share;
        let until = if position + 1 == mix.len() {
            units
        } else {
            ((share_so_far / total * units as f32).round() as usize).clamp(dealt, units)
        };
        let mut left = (until - dealt) * GROUP_ROWS_MULTIPLE;
        dealt = until;
        while left > 0 {
            let rows = left.min(*group_rows);
            sizes.push((*bits, rows));
            left -= rows;
        }
    }
    sizes
}

/// A ceiling that gives weights a deviation of about `1 / √in_features`.
fn ceiling(bits: u8, in_features: usize) -> f16 {
    // Uniform codes deviate by 2^bits / √12; scale codes 8 to 15 average about 160 of 256.
    let code_deviation = f32::from(1u16 << bits) / 12f32.sqrt();
    f16::from_f32(256.0 / 160.0 / code_deviation / (in_features as f32).sqrt())
}

/// Puts the zero code into all columns beyond `out_features`.
#[allow(clippy::indexing_slicing, reason = "word rows were counted from the same sizes")]
fn clear_padding(words: &mut [u8], sizes: &[(u8, usize)], out_features: usize, columns: usize) {
    let mut word_row = 0;
    for (bits, rows) in sizes {
        let zeros = vec![1u8 << (bits - 1); *rows];
        let pattern = pack::pack_codes(&zeros, *rows, 1, *bits).expect("checked by the table");
        for word in pattern {
            for col in out_features..columns {
                let at = (word_row * columns + col) * 4;
                words[at..at + 4].copy_from_slice(&word.to_le_bytes());
            }
            word_row += 1;
        }
    }
}
