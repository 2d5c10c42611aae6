//! Embedding and position tables, and gathering from them.

use pagella_backend::{BackendError, StepPlan, TableDtype, TableSource};

use crate::device::{Device, KernelArgs, Launch};
use crate::linear::Loader;
use crate::memory::{DeviceBuffer, PinnedBuffer};
use crate::step::CudaStep;
use crate::tensor::Tensor;

/// A table that the device can read.
pub struct CudaTable {
    memory: TableMemory,
    dtype: TableDtype,
    rows: usize,
    width: usize,
}

/// `kernels/embed.cuh`.
#[repr(C)]
#[derive(Clone, Copy)]
struct EmbedArgs {
    table: u64,
    positions: u64,
    ids: u64,
    token_pos: u64,
    out: u64,
    width: u32,
    table_type: u32,
    position_type: u32,
    scale: f32,
}

// SAFETY: field for field the struct of the same name in `kernels/embed.cuh`.
unsafe impl KernelArgs for EmbedArgs {}

/// Where a table lies.
enum TableMemory {
    Device(DeviceBuffer),
    /// Page-locked host memory, of which the device reads the rows it needs over the bus.
    Host(PinnedBuffer),
}

impl TableMemory {
    fn ptr(&self) -> u64 {
        match self {
            TableMemory::Device(buffer) => buffer.ptr(),
            TableMemory::Host(buffer) => buffer.ptr(),
        }
    }
}

impl CudaTable {
    pub(crate) fn new(
        device: &Device,
        loader: &Loader,
        source: &TableSource,
        on_host: bool,
    ) -> Result<Self, BackendError> {
        let TableSource { bytes, dtype, rows, width } = source;
        let bytes = (**bytes).as_ref();
        let row_bytes = width.checked_mul(dtype.bytes());
        let expected = row_bytes.and_then(|b| b.checked_mul(*rows)).unwrap_or(usize::MAX);
        if bytes.len() != expected {
            let found = bytes.len();
            return Err(BackendError::Size { what: "table bytes", expected, found });
        }
        let memory = if on_host {
            let mut buffer = PinnedBuffer::new(&device.context, bytes.len())?;
            buffer.as_mut_slice()[..bytes.len()].copy_from_slice(bytes);
            TableMemory::Host(buffer)
        } else {
            TableMemory::Device(loader.upload(device, bytes, "the embedding")?)
        };
        Ok(CudaTable { memory, dtype: *dtype, rows: *rows, width: *width })
    }

    /// Checks that row `index` exists and is `width` wide.
    fn expect(&self, what: &'static str, index: usize, width: usize) -> Result<(), BackendError> {
        if self.width != width {
            return Err(BackendError::Size { what, expected: width, found: self.width });
        }
        if index >= self.rows {
            return Err(BackendError::Size { what, expected: index + 1, found: self.rows });
        }
        Ok(())
    }

    fn type_code(&self) -> u32 {
        match self.dtype {
            TableDtype::F16 => 0,
            TableDtype::BF16 => 1,
            TableDtype::F32 => 2,
        }
    }
}

/// `out[i] = scale · table[ids[i]]`, plus `positions[position(i)]` when given.
pub(crate) fn embed(
    device: &Device,
    step: &CudaStep,
    table: &CudaTable,
    scale: f32,
    positions: Option<&CudaTable>,
    out: &mut Tensor,
) -> Result<(), BackendError> {
    let (plan, width) = (&step.plan, out.width);
    plan.expect_ids()?;
    out.expect("embedding output", plan.tokens(), width)?;
    let largest = plan.ids().iter().copied().max().unwrap_or(0);
    table.expect("embedding table", largest as usize, width)?;
    if let Some(positions) = positions {
        positions.expect("position table", last_position(plan), width)?;
    }
    let args = EmbedArgs {
        table: table.memory.ptr(),
        positions: positions.map_or(0, |table| table.memory.ptr()),
        ids: step.pointers.ids,
        token_pos: step.pointers.positions,
        out: out.ptr(),
        width: width as u32,
        table_type: table.type_code(),
        position_type: positions.map_or(0, CudaTable::type_code),
        scale,
    };
    let parts = width.div_ceil(1024).clamp(1, 16) as u32;
    let launch = Launch { grid: [step.tokens as u32, parts, 1], threads: 256, shared_bytes: 0 };
    device.launch("pg_embed", launch, &args)
}

fn last_position(plan: &StepPlan) -> usize {
    let last = |row| plan.past(row) + plan.token_range(row).len() - 1;
    (0..plan.rows()).map(last).max().unwrap_or(0)
}
