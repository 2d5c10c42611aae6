//! What a model will take of a CPU device's memory, told from headers and small tables.

use pagella_backend::{ExpertExtent, StepExtent};
use pagella_formats::{Dtype, Linear};

use crate::linear::{packs, small_float_bytes};
use crate::simd::LANES;

/// Token rows that kernels take together at most; inputs are padded to whole tiles of them.
const TILE_ROWS_MAX: usize = 12;

/// What a linear takes: tiles of 16 columns, row order and bias. Weights that packed kernels cannot
/// hold exactly, because a scale overflows, take more; scales are not read here.
pub fn linear_bytes(linear: &Linear<'_>) -> usize {
    let (rows, outputs) = (linear.in_features(), linear.out_features());
    let tiles = outputs.div_ceil(LANES);
    let plain = |element_bytes: usize| tiles * rows * LANES * element_bytes;
    let bias = linear.bias().map_or(0, |_| 4 * outputs.next_multiple_of(LANES));
    let weights = match linear {
        _ if !packs(linear) => plain(if matches!(linear, Linear::Gptq(_)) { 4 } else { 2 }),
        Linear::Exl2(linear) => {
            let words: usize = linear.groups.iter().map(|group| group.words()).sum();
            let groups = linear.groups.len();
            let codes = tiles * groups.div_ceil(2) * LANES;
            4 * tiles * LANES * words + codes + 4 * groups + 4 * linear.perm.len()
        }
        Linear::Gptq(linear) => {
            let order = if linear.group_rows.is_some() { 0 } else { 4 * rows };
            let scale_bytes = if linear.scales.is_half() { 2 } else { 4 };
            let codes = tiles * LANES * (rows / 8) * usize::from(linear.bits);
            codes + (scale_bytes + 1) * tiles * linear.groups * LANES + order
        }
        Linear::Plain(linear) => plain(if linear.dtype == Dtype::F32 { 4 } else { 2 }),
        Linear::Exl3(linear) => {
            let words = linear.padded_in * linear.padded_out * usize::from(linear.bits) / 8;
            words + 4 * (linear.svh.len() + linear.suh.len())
        }
        Linear::SmallFloat(linear) => small_float_bytes(linear),
    };
    weights + bias
}

/// What a linear takes that unfolds latent vectors and is taken apart into two matrices for every one
/// of `heads`: keys of `nope_dim` features, and values of the rest.
pub fn unfolding_bytes(linear: &Linear<'_>, heads: usize, nope_dim: usize) -> usize {
    let rank = linear.in_features();
    let value_dim = (linear.out_features() / heads.max(1)).saturating_sub(nope_dim);
    let element_bytes = match linear.value_dtype() {
        Dtype::F16 | Dtype::BF16 => 2,
        _ => 4,
    };
    let matrix = |inputs: usize, outputs: usize| inputs * outputs.next_multiple_of(LANES);
    heads * element_bytes * (matrix(nope_dim, rank) + matrix(rank, value_dim))
}

/// What steps take besides the activations that the model owns: inputs in the order of the kernels,
/// up to `extent.inputs` features of a token at once, and what happens within experts.
pub fn scratch_bytes(extent: &StepExtent) -> usize {
    let of_experts = |extent: &ExpertExtent, tokens: usize| {
        let ExpertExtent { hidden, inner, experts, per_token } = *extent;
        let pairs = tokens * per_token;
        // Gate and up of every expert may want their inputs in an order of their own.
        let inputs = (pairs + experts.min(pairs) * TILE_ROWS_MAX) * (2 * hidden).max(inner);
        inputs + tokens * (hidden + experts) + pairs * (2 * inner + hidden)
    };
    let dense = (extent.tokens + TILE_ROWS_MAX) * extent.inputs;
    4 * (dense + extent.experts.map_or(0, |experts| of_experts(&experts, extent.tokens)))
}

/// What rotations of `rotary_dim` features take for so many positions.
pub fn rope_bytes(rotary_dim: usize, positions: usize) -> usize {
    4 * rotary_dim * positions
}

#[cfg(test)]
mod tests {
    use pagella_backend::{Backend, HeadWeights, TableDtype};
    use pagella_formats::OwnedLinear;
    use pagella_formats::exl3::Codebook;
    use pagella_formats::synthetic::{self, IntegerForm, RowOrder, SmallFloatKind};

    use super::*;
    use crate::{CpuBackend, CpuOptions};

    fn cpu() -> CpuBackend {
        CpuBackend::new(CpuOptions { threads: Some(1), ..CpuOptions::default() }).unwrap()
    }

    fn check(linear: &OwnedLinear, what: &str) {
        let (cpu, linear) = (cpu(), linear.view());
        let laid_out = cpu.linear(&linear).unwrap();
        assert_eq!(linear_bytes(&linear), cpu.linear_bytes(&laid_out), "{what}");
        assert_eq!(cpu.memory().taken_bytes, linear_bytes(&linear) as u64, "{what}");
        drop(laid_out);
        assert_eq!(cpu.memory().taken_bytes, 0, "{what}");
    }

    #[test]
    fn linears_take_what_is_predicted() {
        for (inputs, outputs) in [(128, 96), (256, 40), (384, 1000)] {
            let mixed = synthetic::exl2(inputs, outputs, &[(5, 0.2, 32), (3, 0.8, 64)], 1);
            check(&mixed, "exl2");
            for order in [RowOrder::Sequential, RowOrder::Shuffled] {
                check(&synthetic::gptq(inputs, outputs, 128, order, 2), "gptq");
            }
            for (bits, single) in [(2, false), (3, false), (8, true)] {
                let form = IntegerForm { bits, rounded: false, single };
                let outputs = outputs.next_multiple_of(32);
                let integers = synthetic::integer(inputs, outputs, 64, RowOrder::Shuffled, form, 2);
                check(&integers, "integers");
            }
            for kind in [SmallFloatKind::Mxfp4, SmallFloatKind::Nvfp4, SmallFloatKind::Fp8] {
                check(&synthetic::small_float(kind, inputs, outputs, 3), "small floats");
            }
            for bits in [1, 4] {
                check(&synthetic::exl3(inputs, outputs, bits, Codebook::ThreeInst, 3), "exl3");
            }
            check(&synthetic::plain_f16(inputs, outputs, 4), "plain");
        }
    }

    #[test]
    fn matrices_of_heads_take_what_is_predicted() {
        let (heads, rank, nope_dim, value_dim) = (3, 40, 24, 17);
        let unfolding = synthetic::plain_f16(rank, heads * (nope_dim + value_dim), 5);
        let cpu = cpu();
        let matrix = |in_features, out_features| HeadWeights {
            heads,
            in_features,
            out_features,
            values: vec![0.5; heads * in_features * out_features],
            dtype: TableDtype::F16,
        };
        let laid_out = [matrix(nope_dim, rank), matrix(rank, value_dim)];
        let bytes = laid_out.map(|m| cpu.head_linear_bytes(&cpu.head_linear(&m).unwrap()));
        let predicted = unfolding_bytes(&unfolding.view(), heads, nope_dim);
        assert_eq!(predicted, bytes.iter().sum::<usize>());
    }
}
