//! Bytes: what a loaded model holds, and what one will need.
//!
//! A prediction reads headers only. It follows the course of a run: while loading, the file's
//! pages of the linear being laid out, and its words if they are re-packed first, come on top of what
//! is laid out already; while running, scratch, cache and the embedding rows in use do. The peak is
//! the larger of the two.

mod on_device;
mod predict;
mod tally;

pub use on_device::{DeviceLayout, DevicePrediction, predict_device_memory};
pub(crate) use on_device::{linear_sizes, step_extent};
pub use predict::{MemoryPrediction, predict_memory};
pub(crate) use tally::{Tally, idle_bytes};

use pagella_formats::LinearKind;

/// Bytes of a loaded model.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryReport {
    /// Weights in the backend's layout, norms included.
    pub weights_bytes: u64,
    /// Of these, what one token reads: all but the experts that it does not take.
    pub token_bytes: u64,
    /// Embedding and learned positions, which stay where they are: in their file, or in host
    /// memory for synthetic models.
    pub mapped_bytes: u64,
    /// Activations and logits allocated so far.
    pub scratch_bytes: u64,
    /// Linears of the layers, as stored.
    pub layers: WeightShare,
    /// The head, as stored.
    pub head: WeightShare,
    /// All linears by the way they are stored; kinds that do not occur are left out.
    pub kinds: Vec<KindShare>,
}

/// A number of weights and the bytes they are stored in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WeightShare {
    /// Inputs times outputs, summed.
    pub params: u64,
    /// Bytes with scales and tables, without biases.
    pub stored_bytes: u64,
}

impl WeightShare {
    /// Average bits per weight, scales and tables included; 0 without weights.
    pub fn bits_per_weight(&self) -> f64 {
        self.stored_bytes as f64 * 8.0 / (self.params as f64).max(1.0)
    }

    fn add(&mut self, params: u64, stored_bytes: u64) {
        self.params += params;
        self.stored_bytes += stored_bytes;
    }
}

/// Linears of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindShare {
    /// How they are stored.
    pub kind: LinearKind,
    /// How many there are.
    pub count: usize,
    /// Their weights.
    pub share: WeightShare,
}
