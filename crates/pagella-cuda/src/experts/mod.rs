//! Mixtures of experts: all experts of a layer in a few launches, chosen and ordered on the device.
//!
//! - `table`: what kernels know of a layer's experts, in device memory;
//! - `room`: memory between router and sum, and how much of it some rows need at most;
//! - `run`: from the residual to the residual; `one` for a single row, `many` for more, with
//!   `prefill` where experts have many;
//! - `args`: mirrors of the kernels' structs.
//!
//! Nothing is asked of the host: grids depend on the number of rows only, and what the router chose
//! is read from device memory, so that steps can be recorded. Sums have the order of dense linears.

mod args;
mod many;
mod one;
mod prefill;
mod room;
mod run;
mod table;

pub(crate) use prefill::ROWS_MIN as DEQUANTISE_EXPERT_ROWS_MIN;
pub(crate) use room::room_bytes;
pub(crate) use run::mix;

use pagella_arch::Weigh;
use pagella_backend::{BackendError, MoeOp};

use crate::device::Device;
use crate::linear::CudaLinear;
use crate::scratch::{Scratch, Use};
use crate::step::bucket_rows;
use crate::vector::CudaVector;
use args::{EXPERTS_MAX, GROUPS_MAX};
use room::Room;
use table::Table;

/// The experts of one layer.
pub struct CudaExperts {
    op: MoeOp,
    /// Most rows of a step.
    rows: usize,
    /// In order of id; the layer is ready when there are `op.experts`.
    experts: Vec<Expert>,
    /// Present when the layer is ready.
    table: Option<Table>,
    /// Added to scores for the choice.
    selection_bias: Option<CudaVector>,
}

/// The linears of one expert.
struct Expert {
    gate: CudaLinear,
    up: CudaLinear,
    down: CudaLinear,
}

impl CudaExperts {
    /// A layer without experts yet.
    pub(crate) fn new(op: MoeOp, rows: usize) -> Result<Self, BackendError> {
        if !(1..=op.experts).contains(&op.experts_per_token) {
            let (expected, found) = (op.experts, op.experts_per_token);
            return Err(BackendError::Size { what: "experts per token", expected, found });
        }
        if op.experts > EXPERTS_MAX {
            return Err(BackendError::unsupported(
                "cuda",
                format!("a layer of {} experts", op.experts),
                format!("at most {EXPERTS_MAX} are; use the CPU for this model"),
            ));
        }
        if let Some(groups) = op.routing.groups {
            let divides = groups.count > 0 && op.experts.is_multiple_of(groups.count);
            if !divides || groups.count > GROUPS_MAX {
                return Err(BackendError::unsupported(
                    "cuda",
                    format!("{} experts in {} groups", op.experts, groups.count),
                    format!("groups are equal, and at most {GROUPS_MAX}"),
                ));
            }
        }
        let experts = Vec::with_capacity(op.experts);
        Ok(CudaExperts { op, rows, experts, table: None, selection_bias: None })
    }

    /// Adds the next expert. With the last one, memory for steps is had: if it is too much, this
    /// is the time to say so.
    pub(crate) fn add(
        &mut self,
        device: &Device,
        scratch: &Scratch,
        [gate, up, down]: [CudaLinear; 3],
    ) -> Result<(), BackendError> {
        let (hidden, inner) = (self.op.hidden, self.op.inner);
        expect_shape("expert gate", &gate, hidden, inner)?;
        expect_shape("expert up", &up, hidden, inner)?;
        expect_shape("expert down", &down, inner, hidden)?;
        expect("experts", self.op.experts, self.op.experts.max(self.experts.len() + 1))?;
        // `w · (W x)` is `W (w · x)`, but a bias would be weighed with it.
        let has_bias = gate.args.bias != 0 || up.args.bias != 0;
        if self.op.routing.weigh == Weigh::Input && has_bias {
            return Err(BackendError::unsupported(
                "cuda",
                "experts with weighed inputs and biases",
                "no known model has them",
            ));
        }
        self.experts.push(Expert { gate, up, down });
        if self.experts.len() == self.op.experts {
            let table = Table::new(device, &self.experts)?;
            let room = Room::new(&self.op, &table, bucket_rows(self.rows));
            scratch.ensure(device, Use::Experts, room.bytes)?;
            self.table = Some(table);
        }
        Ok(())
    }

    /// Takes what is added to scores for the choice.
    pub(crate) fn bias_selection(&mut self, bias: CudaVector) -> Result<(), BackendError> {
        bias.expect("selection bias", self.op.experts)?;
        self.selection_bias = Some(bias);
        Ok(())
    }

    /// Address of what is added to scores; 0 where nothing is.
    fn selection_bias(&self) -> Result<u64, BackendError> {
        let (what, experts) = ("selection bias", self.op.experts);
        match (&self.selection_bias, self.op.routing.selection_bias) {
            (Some(bias), true) => bias.expect(what, experts),
            (Some(_), false) => Err(BackendError::Size { what, expected: 0, found: experts }),
            (None, true) => Err(BackendError::Size { what, expected: experts, found: 0 }),
            (None, false) => Ok(0),
        }
    }

    /// The table of a layer that is ready.
    fn table(&self) -> Result<&Table, BackendError> {
        let (expected, found) = (self.op.experts, self.experts.len());
        self.table.as_ref().ok_or(BackendError::Size { what: "experts", expected, found })
    }
}

fn expect(what: &'static str, expected: usize, found: usize) -> Result<(), BackendError> {
    if expected == found { Ok(()) } else { Err(BackendError::Size { what, expected, found }) }
}

fn expect_shape(
    what: &'static str,
    linear: &CudaLinear,
    inputs: usize,
    outputs: usize,
) -> Result<(), BackendError> {
    expect(what, inputs, linear.in_features)?;
    expect(what, outputs, linear.out_features)
}
