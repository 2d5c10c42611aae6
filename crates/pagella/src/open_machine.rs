//! Where models run, opened: a model and the one that drafts for it share it.

use pagella_cpu::CpuBackend;
use pagella_cuda::CudaBackend;

use crate::Place;

/// A backend that models share: threads or a device, and scratch memory.
pub(crate) enum OpenMachine {
    Cpu(CpuBackend),
    /// With its index.
    Cuda(usize, CudaBackend),
}

impl OpenMachine {
    /// Where it is.
    pub fn place(&self) -> Place {
        match self {
            OpenMachine::Cpu(_) => Place::Cpu,
            OpenMachine::Cuda(index, _) => Place::Cuda(*index),
        }
    }
}
