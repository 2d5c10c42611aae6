//! Memory that operations share: it grows when a step needs more than any before, and never in a
//! step whose shape has run already.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use pagella_backend::BackendError;

use crate::device::Device;
use crate::memory::DeviceBuffer;

/// What scratch memory is for; one buffer each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// Inputs of linears as f16 tiles, one for each distinct row order of a projection.
    Inputs(usize),
    /// Dequantised weights.
    Weights,
    /// Segment sums of linears that several blocks of threads share.
    Partials,
    /// Arrivals at such sums; zero between kernels.
    Counters,
    /// Span results of attention.
    Spans,
    /// Arrivals at such results; zero between kernels.
    SpanCounters,
    /// Span results of attention in long prompts, for heads that are coded in pairs.
    Totals,
    /// Results of narrowing logits.
    Narrowed,
    /// What happens between router and sum of a mixture of experts.
    Experts,
    /// Products of the first halves of adapters.
    Adapted,
}

const USES: usize = 12;

impl Use {
    fn index(self) -> usize {
        match self {
            Use::Inputs(order) => order.min(2),
            Use::Weights => 3,
            Use::Partials => 4,
            Use::Counters => 5,
            Use::Spans => 6,
            Use::SpanCounters => 7,
            Use::Totals => 8,
            Use::Narrowed => 9,
            Use::Experts => 10,
            Use::Adapted => 11,
        }
    }
}

/// Scratch memory of one backend.
#[derive(Default)]
pub(crate) struct Scratch {
    buffers: Mutex<[Option<DeviceBuffer>; USES]>,
    /// Counts replacements, of these buffers and of others that recordings name.
    generation: AtomicU64,
    /// Largest rank of an adapter's pair so far, as a power of two.
    rank: AtomicUsize,
}

impl Scratch {
    /// Address of at least `bytes` bytes. New memory is zeroed.
    pub(crate) fn ensure(
        &self,
        device: &Device,
        what: Use,
        bytes: usize,
    ) -> Result<u64, BackendError> {
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = &mut buffers[what.index()];
        if let Some(buffer) = slot.as_ref().filter(|buffer| buffer.bytes() >= bytes) {
            return Ok(buffer.ptr());
        }
        // The old buffer goes first: two at once could be too much.
        *slot = None;
        self.bump();
        let purpose = match what {
            Use::Experts => "the experts of a step (a smaller --step-tokens needs less)",
            _ => "scratch memory of a step",
        };
        let buffer = device.zeroed(bytes, purpose)?;
        Ok(slot.insert(buffer).ptr())
    }

    /// Room for the products of one adapter of a row.
    pub(crate) fn rank(&self) -> usize {
        self.rank.load(Ordering::Relaxed)
    }

    /// Sees to room for pairs of this rank; steps with adapters that were recorded for smaller ones are
    /// not replayed any more.
    pub(crate) fn note_rank(&self, rank: usize) {
        self.rank.fetch_max(rank.next_power_of_two(), Ordering::Relaxed);
    }

    /// Notes that a buffer which recordings may name was replaced.
    pub(crate) fn bump(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    /// Changes whenever a buffer was replaced.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }
}
