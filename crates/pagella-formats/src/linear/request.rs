//! What a model loader asks for when it wants one linear.

use std::ops::Range;

use crate::gptq::GptqZeros;

/// Where to find one linear and what it must be.
#[derive(Clone, Copy, Debug)]
pub struct LinearRequest<'a> {
    /// Alternative base names, tried in order; per base the formats in the order of the registry.
    pub bases: &'a [String],
    /// A tensor that holds this linear among others; it is tried first and wins.
    pub fused: Option<FusedPart<'a>>,
    /// Length of the vectors it takes.
    pub in_features: usize,
    /// Length of the vectors it gives.
    pub out_features: usize,
    /// Whether there must be a bias.
    pub bias: BiasRule,
    /// Plain weights are stored `[in, out]`; of a linear that may be fused, only in the fused tensor.
    pub transposed: bool,
    /// How zero points of GPTQ are stored.
    pub gptq_zeros: GptqZeros,
}

/// Which part of a fused tensor is meant.
#[derive(Clone, Copy, Debug)]
pub struct FusedPart<'a> {
    /// Base name of the fused tensor.
    pub base: &'a str,
    /// Its extent along the axis that is cut, normally the outputs of all parts together.
    pub total_out: usize,
    /// Ranges along that axis, taken in this order.
    ///
    /// They add up to `out_features`. The one other case is a `transposed` plain tensor stacked
    /// along its inputs, `[total_out, out_features]`, where one range of `in_features` is taken.
    pub rows: &'a [Range<usize>],
    /// Of each range every so many indices are taken, from its first on; 1 for all.
    pub step: usize,
    /// A plain tensor that stacks matrices, `[count, …]`: index of the one that is meant, and
    /// count. Everything else is said of that matrix. Its bias is stacked like it.
    pub slab: Option<(usize, usize)>,
}

/// Whether a linear has a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BiasRule {
    /// It must be there.
    Required,
    /// It must be absent, or all zero.
    Forbidden,
    /// The files decide.
    IfPresent,
}
