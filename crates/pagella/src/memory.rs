//! What a run will need, wherever it runs: predicted from the configuration and the headers.

use std::path::Path;

use pagella_arch::{LatentSpec, ModelSpec, RopeSpec};
use pagella_backend::{KvFormat, StepExtent};
use pagella_cuda::predict;
use pagella_formats::Linear;
use pagella_model::{
    DeviceLayout, DevicePrediction, LoadOptions, MemoryPrediction, MemoryReport,
    predict_device_memory, predict_memory,
};

use crate::{Error, Place};

/// A prediction for the place where the model runs.
#[derive(Clone, Debug)]
pub enum MemoryNeed {
    /// Memory of the process.
    Cpu(MemoryPrediction),
    /// Memory of the device, beside the driver's own.
    Cuda(DevicePrediction<CudaLayout>),
}

/// How CUDA lays out a model, with the user's choices.
#[derive(Clone, Copy, Debug)]
pub struct CudaLayout {
    pub(crate) dequantised_max: usize,
    pub(crate) tables_on_host: bool,
    /// Whether the chip dequantises weights for long prompts at all.
    pub(crate) dequantises: bool,
}

/// How a CPU lays out a model.
pub(crate) struct CpuLayout;

impl MemoryNeed {
    pub(crate) fn predict(
        dir: &Path,
        spec: &ModelSpec,
        options: &LoadOptions,
        place: Place,
        layout: impl FnOnce(usize) -> CudaLayout,
    ) -> Result<Self, Error> {
        Ok(match place {
            Place::Cpu => MemoryNeed::Cpu(predict_memory(dir, spec, options)?),
            Place::Cuda(device) => {
                MemoryNeed::Cuda(predict_device_memory(dir, spec, options, layout(device))?)
            }
        })
    }

    /// Weights, tables, and activations with one row of logits.
    pub fn report(&self) -> &MemoryReport {
        match self {
            MemoryNeed::Cpu(need) => &need.report,
            MemoryNeed::Cuda(need) => &need.report,
        }
    }

    /// Bytes that one token takes in a cache of this format.
    pub fn kv_bytes_per_token(&self, format: KvFormat) -> u64 {
        match self {
            MemoryNeed::Cpu(need) => need.kv_bytes_per_token(format),
            MemoryNeed::Cuda(need) => need.kv_bytes_per_token(format),
        }
    }

    /// Bytes of a cache for at least `tokens` tokens.
    pub fn kv_bytes(&self, format: KvFormat, tokens: usize) -> u64 {
        match self {
            MemoryNeed::Cpu(need) => need.kv_bytes(format, tokens),
            MemoryNeed::Cuda(need) => need.kv_bytes(format, tokens),
        }
    }

    /// Bytes of logits beyond one row, in a run whose steps have up to `rows`.
    pub fn more_logits_bytes(&self, rows: usize) -> u64 {
        match self {
            MemoryNeed::Cpu(need) => need.more_logits_bytes(rows),
            MemoryNeed::Cuda(need) => need.more_logits_bytes(rows),
        }
    }

    /// Largest memory of a run with a cache of `tokens` tokens and one row of logits at a time.
    pub fn peak_bytes(&self, format: KvFormat, tokens: usize) -> u64 {
        match self {
            MemoryNeed::Cpu(need) => need.peak_bytes(format, tokens),
            MemoryNeed::Cuda(need) => need.peak_bytes(format, tokens),
        }
    }
}

impl DeviceLayout for CudaLayout {
    fn linear_bytes(&self, linear: &Linear<'_>) -> Option<u64> {
        predict::linear_bytes(linear).ok().map(|bytes| bytes as u64)
    }

    fn unfolding_bytes(&self, linear: &Linear<'_>, _: usize, _: &LatentSpec) -> u64 {
        predict::unfolding_bytes(linear) as u64
    }

    fn allocation_bytes(&self, bytes: u64) -> u64 {
        predict::allocation_bytes(bytes as usize) as u64
    }

    fn scratch_bytes(&self, extent: &StepExtent, cache_tokens: usize) -> u64 {
        let dequantised_max = self.dequantises.then_some(self.dequantised_max);
        let steps = predict::scratch_bytes(extent, dequantised_max);
        (steps + predict::attention_bytes(extent, cache_tokens)) as u64
    }

    fn tables_on_host(&self) -> bool {
        self.tables_on_host
    }
}

impl DeviceLayout for CpuLayout {
    fn linear_bytes(&self, linear: &Linear<'_>) -> Option<u64> {
        Some(pagella_cpu::predict::linear_bytes(linear) as u64)
    }

    fn unfolding_bytes(&self, linear: &Linear<'_>, heads: usize, latent: &LatentSpec) -> u64 {
        pagella_cpu::predict::unfolding_bytes(linear, heads, latent.nope_dim) as u64
    }

    fn allocation_bytes(&self, bytes: u64) -> u64 {
        bytes
    }

    fn scratch_bytes(&self, extent: &StepExtent, _: usize) -> u64 {
        pagella_cpu::predict::scratch_bytes(extent) as u64
    }

    fn layer_scratch_bytes(&self, extent: &StepExtent, inputs: usize, tokens: usize) -> u64 {
        self.scratch_bytes(&StepExtent { inputs, ..*extent }, tokens)
    }

    fn rope_bytes(&self, rope: &RopeSpec, positions: usize) -> u64 {
        pagella_cpu::predict::rope_bytes(rope.rotary_dim, positions) as u64
    }

    fn tables_on_host(&self) -> bool {
        // They stay in their file.
        true
    }
}
