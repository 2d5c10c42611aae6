//! From the residual to the residual: router, then the kernels for one row or for many.

use pagella_arch::{GroupRank, RouterScore, Weigh};
use pagella_backend::BackendError;

use super::args::RouteArgs;
use super::room::Room;
use super::table::Table;
use super::{CudaExperts, expect_shape, many, one};
use crate::linear::args::NormArgs;
use crate::linear::{self, CudaLinear, Input, Product, Runner};
use crate::ops::activate;
use crate::ops::norm::CudaNorm;
use crate::scratch::Use;
use crate::step::CudaStep;
use crate::tensor::Tensor;

/// A layer on its way through a step.
pub(super) struct Mix<'a> {
    pub(super) runner: &'a Runner<'a>,
    pub(super) layer: &'a CudaExperts,
    pub(super) table: &'a Table,
    pub(super) room: Room,
    /// Address of the room.
    pub(super) base: u64,
    pub(super) norm: NormArgs,
    pub(super) residual: u64,
    pub(super) route: RouteArgs,
    /// Rows of the step, padding included.
    pub(super) rows: usize,
}

impl Mix<'_> {
    /// Address of a part of the room.
    pub(super) fn at(&self, part: usize) -> u64 {
        self.base + part as u64
    }

    /// The activation as kernels count them, and its limit.
    pub(super) fn act(&self) -> (u32, f32) {
        activate::numbered(self.layer.op.act)
    }

    /// Whether weights multiply what experts get, and no longer what they give.
    pub(super) fn weighs_inputs(&self) -> bool {
        self.layer.op.routing.weigh == Weigh::Input
    }
}

/// Adds the experts of a step's rows to the residual, from which they also read.
pub(crate) fn mix(
    runner: &Runner<'_>,
    step: &CudaStep,
    norm: Option<&CudaNorm>,
    router: &CudaLinear,
    layer: &CudaExperts,
    residual: &mut Tensor,
) -> Result<(), BackendError> {
    let op = &layer.op;
    residual.expect("residual", step.plan.tokens(), op.hidden)?;
    if let Some(norm) = norm {
        norm.expect(op.hidden)?;
    }
    expect_shape("router", router, op.hidden, op.experts)?;
    let table = layer.table()?;
    let rows = step.tokens;
    let room = Room::new(op, table, rows);
    let base = runner.scratch.ensure(runner.device, Use::Experts, room.bytes)?;
    let norm = norm.map_or(NormArgs::default(), CudaNorm::args);
    let logits = base + room.logits as u64;
    let input = Input { x: residual.ptr(), stride: op.hidden, row_map: 0, norm, rows };
    linear::run(runner, &input, &[Product { linear: router, out: logits, add: None }])?;
    let groups = op.routing.groups;
    let route = RouteArgs {
        logits,
        cache_slots: step.pointers.slots,
        bias: layer.selection_bias()?,
        experts: op.experts as u32,
        experts_per_token: op.experts_per_token as u32,
        score: match op.score {
            RouterScore::Softmax => 0,
            RouterScore::Sigmoid => 1,
        },
        renormalize: u32::from(op.renormalize),
        groups: groups.map_or(0, |groups| groups.count as u32),
        groups_taken: groups.map_or(0, |groups| groups.taken as u32),
        two_best: u32::from(groups.is_some_and(|groups| groups.rank == GroupRank::TwoBest)),
        weight_scale: op.routing.weight_scale,
    };
    let residual = residual.ptr();
    let mix = Mix { runner, layer, table, room, base, norm, residual, route, rows };
    if one::fits(&mix) { one::run(&mix) } else { many::run(&mix) }
}
