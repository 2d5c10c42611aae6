//! The linear that unfolds latent vectors, taken apart: for every head the matrix that makes keys of
//! them, turned round, and the one that makes values.
//!
//! Attention never unfolds anything. A score is `q · (K c) = (Kᵀ q) · c`, and a weighted sum of
//! values is `V` times that of latent vectors; so `Kᵀ` is applied to queries and `V` to results.
//! Weights that are stored quantised are dequantised for that, once, at load.

use pagella_arch::LatentSpec;
use pagella_backend::{HeadWeights, TableDtype};
use pagella_formats::{Dtype, Linear, LinearKind};

use crate::survey::LinearFacts;

/// How the label of such a linear ends, see [`pagella_arch::ModelSpec::linear_specs`].
const LABEL: &str = "attn.unfold";

/// Of queries into latent space, and of results out of it.
pub(crate) fn take_apart(
    linear: &Linear<'_>,
    heads: usize,
    latent: &LatentSpec,
) -> [HeadWeights; 2] {
    let (rows, dtype) = rows(linear);
    let LatentSpec { rank, nope_dim, value_dim, .. } = *latent;
    let of_head = |head: usize| &rows[head * (nope_dim + value_dim) * rank..];
    let mut keys = Vec::with_capacity(heads * rank * nope_dim);
    let mut values = Vec::with_capacity(heads * value_dim * rank);
    for head in (0..heads).map(of_head) {
        let (key, rest) = head.split_at(nope_dim * rank);
        for column in 0..rank {
            keys.extend(key[column..].iter().step_by(rank));
        }
        values.extend_from_slice(&rest[..value_dim * rank]);
    }
    [
        HeadWeights { heads, in_features: nope_dim, out_features: rank, values: keys, dtype },
        HeadWeights { heads, in_features: rank, out_features: value_dim, values, dtype },
    ]
}

/// The matrix `[out, in]`, and the narrowest type that holds it.
fn rows(linear: &Linear<'_>) -> (Vec<f32>, TableDtype) {
    let (inputs, outputs) = (linear.in_features(), linear.out_features());
    match linear {
        Linear::Exl2(linear) => {
            let matrix = linear.dequantize();
            let column = |out: usize| matrix[out..].iter().step_by(outputs).map(|x| x.to_f32());
            ((0..outputs).flat_map(column).collect(), TableDtype::F16)
        }
        Linear::Gptq(linear) => {
            let column = |n| (0..inputs).map(move |k| linear.product(k, n));
            (linear.columns.iter().flat_map(column).collect(), TableDtype::F32)
        }
        Linear::Plain(linear) => {
            let dtype = match linear.dtype {
                Dtype::F16 => TableDtype::F16,
                Dtype::BF16 => TableDtype::BF16,
                _ => TableDtype::F32,
            };
            (linear.rows_f32(), dtype)
        }
    }
}

/// Whether the linear of this label is taken apart.
pub(crate) fn is_taken_apart(label: &str) -> bool {
    label.ends_with(LABEL)
}

/// Bytes of a linear on a backend that lays weights out as they are stored, with its bias.
pub(crate) fn laid_out_bytes(fact: &LinearFacts) -> u64 {
    let weights = match fact.kind {
        LinearKind::Exl2 if is_taken_apart(&fact.label) => 2 * fact.params,
        LinearKind::Gptq if is_taken_apart(&fact.label) => 4 * fact.params,
        _ => fact.stored_bytes,
    };
    weights + fact.bias_bytes
}
