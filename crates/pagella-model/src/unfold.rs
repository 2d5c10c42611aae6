//! The linear that unfolds latent vectors, taken apart: for every head the matrix that makes keys of
//! them, turned round, and the one that makes values.
//!
//! Attention never unfolds anything. A score is `q · (K c) = (Kᵀ q) · c`, and a weighted sum of
//! values is `V` times that of latent vectors; so `Kᵀ` is applied to queries and `V` to results.
//! Weights that are stored quantised are dequantised for that, once, at load.

use pagella_arch::LatentSpec;
use pagella_backend::{HeadWeights, TableDtype};
use pagella_formats::{Dtype, Linear};

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
    let outputs = linear.out_features();
    let matrix = linear.values();
    let column = |out: usize| matrix[out..].iter().step_by(outputs).copied();
    let dtype = match linear.value_dtype() {
        Dtype::F16 => TableDtype::F16,
        Dtype::BF16 => TableDtype::BF16,
        _ => TableDtype::F32,
    };
    ((0..outputs).flat_map(column).collect(), dtype)
}

/// Whether the linear of this label is taken apart.
pub(crate) fn is_taken_apart(label: &str) -> bool {
    label.ends_with(LABEL)
}

/// Bytes of a linear on a backend that lays weights out as they are stored, with its bias.
pub(crate) fn laid_out_bytes(fact: &LinearFacts) -> u64 {
    let weights = if is_taken_apart(&fact.label) { fact.values_bytes } else { fact.stored_bytes };
    weights + fact.bias_bytes
}
