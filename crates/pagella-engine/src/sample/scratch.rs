//! Buffers that one thread reuses for every row it samples. Contents never matter between calls.

use super::Candidate;
use super::spread::Buffers;

/// Working memory of [`Sampler::pick`](super::Sampler::pick); one per thread.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Highest logit of every chunk of the row.
    pub(super) chunk_max: Vec<f32>,
    /// A copy of the above, to be partitioned.
    pub(super) chunk_order: Vec<f32>,
    /// Weights of some ids, where their sum is needed.
    pub(super) weights: Vec<f32>,
    /// Those of a whole row.
    pub(super) spread: Buffers,
    /// Logits that may survive, with their ids.
    pub(super) found: Vec<(f32, u32)>,
    /// Memory of the candidates of the previous row.
    pub(super) list: Vec<Candidate>,
    /// The candidates as adaptive-p found them.
    pub(super) before: Vec<Candidate>,
    /// One bit per id: met already.
    pub(super) seen: Vec<u64>,
    /// The newest ids first, and how much of their beginning repeats at every index.
    pub(super) reversed: Vec<u32>,
    /// Lengths belonging to `reversed`.
    pub(super) matches: Vec<u32>,
    /// Ids with the length of the repetition that each would extend.
    pub(super) extensions: Vec<(u32, u32)>,
    /// A row of which only some entries are true.
    pub(super) sparse: Vec<f32>,
    /// Denied ids with the logits they had.
    pub(super) denied: Vec<(u32, f32)>,
}

impl Scratch {
    /// Empty buffers; they grow to the size of the first row.
    pub fn new() -> Self {
        Scratch::default()
    }
}
