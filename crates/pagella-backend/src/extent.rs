//! How much the steps of a model compute at most, which decides what a backend's own buffers take.

/// What the steps of a model compute at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepExtent {
    /// New tokens.
    pub tokens: usize,
    /// Inputs of the widest linear of a layer that is no expert's.
    pub inputs: usize,
    /// Weights of linears that read the same rows, where these are most.
    pub weights: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// The layer with the largest experts, if there are any.
    pub experts: Option<ExpertExtent>,
}

/// Experts of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpertExtent {
    /// Inputs and outputs of each.
    pub hidden: usize,
    /// Inner width of each.
    pub inner: usize,
    /// How many there are.
    pub experts: usize,
    /// How many a token takes.
    pub per_token: usize,
}
