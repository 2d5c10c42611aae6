//! A layer's linears as a table in device memory, `[gate, up, down][experts]`, and what is largest
//! in it.

use pagella_backend::BackendError;

use super::Expert;
use super::args::{ExpertMatrixArgs, StackShape};
use crate::device::Device;
use crate::linear::CudaLinear;
use crate::memory::DeviceBuffer;

/// The linears of all experts.
pub(super) struct Table {
    buffer: DeviceBuffer,
    experts: usize,
    /// Of gates and ups.
    pub(super) gate_up: StackShape,
    pub(super) down: StackShape,
    /// Strips of a gate.
    pub(super) inner_strips: u32,
    /// Strips of a down.
    pub(super) hidden_strips: u32,
    /// Distinct row orders of a gate and its up: 1 if every expert has one for both.
    pub(super) orders: usize,
    /// Whether all gates and ups have the same packed height, and all downs.
    pub(super) is_even: bool,
}

impl Table {
    pub(super) fn new(device: &Device, experts: &[Expert]) -> Result<Self, BackendError> {
        let gates = experts.iter().map(|expert| &expert.gate);
        let ups = experts.iter().map(|expert| &expert.up);
        let downs = experts.iter().map(|expert| &expert.down);
        let entries: Vec<ExpertMatrixArgs> =
            gates.clone().chain(ups.clone()).chain(downs.clone()).map(entry).collect();
        let alike = |expert: &Expert| {
            expert.gate.args.perm == expert.up.args.perm && expert.gate.args.k == expert.up.args.k
        };
        let is_even = are_even(gates.clone().chain(ups.clone())) && are_even(downs.clone());
        let strips = |linear: Option<&CudaLinear>| linear.map_or(0, |linear| linear.args.n_strips);
        Ok(Table {
            buffer: device.upload(&entries, "the table of experts")?,
            experts: experts.len(),
            gate_up: largest(gates.chain(ups)),
            down: largest(downs),
            inner_strips: strips(experts.first().map(|expert| &expert.gate)),
            hidden_strips: strips(experts.first().map(|expert| &expert.down)),
            is_even,
            orders: if experts.iter().all(alike) { 1 } else { 2 },
        })
    }

    /// Address of the gates, which the ups follow.
    pub(super) fn gates(&self) -> u64 {
        self.buffer.ptr()
    }

    /// Address of the ups.
    pub(super) fn ups(&self) -> u64 {
        self.gates() + (self.experts * size_of::<ExpertMatrixArgs>()) as u64
    }

    /// Address of the downs.
    pub(super) fn downs(&self) -> u64 {
        self.gates() + (2 * self.experts * size_of::<ExpertMatrixArgs>()) as u64
    }
}

fn entry(linear: &CudaLinear) -> ExpertMatrixArgs {
    let CudaLinear { args, starts, segments, .. } = linear;
    ExpertMatrixArgs { matrix: *args, segment: *starts, segments: *segments, pad: 0 }
}

/// Whether all have the same packed height.
fn are_even<'a>(mut linears: impl Iterator<Item = &'a CudaLinear>) -> bool {
    let first = linears.next().map(|linear| linear.args.k);
    linears.all(|linear| Some(linear.args.k) == first)
}

fn largest<'a>(linears: impl Iterator<Item = &'a CudaLinear>) -> StackShape {
    linears.fold(StackShape::default(), |most, linear| StackShape {
        slot_bytes: most.slot_bytes.max(linear.args.slot_bytes),
        chunks: most.chunks.max(linear.args.n_chunks),
        k: most.k.max(linear.args.k),
        segments: most.segments.max(linear.segments),
    })
}
