//! Linears: weights in tiles of 16 columns, activations prepared once per shared input.
//!
//! `weights` and `relayout` say what is stored, `input` how activations arrive, `wide` and `exact`
//! are the arithmetic, `gemv` and `run` walk and cut the work. `blocks` states the canonical order of the sums.

mod blocks;
mod exact;
mod gemv;
mod input;
mod output;
mod pack;
mod quad;
mod relayout;
mod run;
mod weights;
mod wide;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use pagella_backend::BackendError;
use pagella_formats::Linear;

use crate::simd::{Isa, LANES};
use crate::threads::{Pool, Shares};
use blocks::InputLayout;
use input::{ExactInput, Shape, WideInput};
pub(crate) use input::{InputBuffers, RowSource};
use output::Output;
use run::{Job, Prepared, rows_per_tile};
pub use weights::CpuLinear;
use weights::Weights;

/// Which arithmetic quantised linears use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MathMode {
    /// The format's binary16 weights times f32 activations.
    Exact,
    /// Codes times 15-bit activations with exact integer sums; mean KL about 1e-6 from exact.
    Wide,
}

impl MathMode {
    /// Name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            MathMode::Exact => "exact",
            MathMode::Wide => "wide",
        }
    }
}

/// Input layouts seen so far; linears that agree share one, and with it their prepared inputs.
#[derive(Default)]
pub(crate) struct Layouts(Mutex<HashSet<Arc<InputLayout>>>);

impl Layouts {
    fn intern(&self, layout: InputLayout) -> Arc<InputLayout> {
        let mut set = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = set.get(&layout) {
            return known.clone();
        }
        let layout = Arc::new(layout);
        set.insert(layout.clone());
        layout
    }
}

/// Lays out a linear from its file.
pub(crate) fn load(
    isa: Isa,
    pool: &Pool,
    layouts: &Layouts,
    source: &Linear<'_>,
) -> Result<CpuLinear, BackendError> {
    let laid = relayout::lay_out(isa, pool, source)?;
    let (rows, outputs) = (source.in_features(), source.out_features());
    let input = layouts.intern(InputLayout { perm: laid.perm, blocks: laid.blocks, rows });
    let bias = source.bias().map(|bias| {
        let mut padded = bias.to_vec();
        padded.resize(outputs.next_multiple_of(LANES), 0.0);
        padded
    });
    Ok(CpuLinear { in_features: rows, out_features: outputs, bias, input, weights: laid.weights })
}

/// What linears run on.
pub(crate) struct Machine<'a> {
    pub(crate) isa: Isa,
    pub(crate) pool: &'a Pool,
    pub(crate) math: MathMode,
    pub(crate) buffers: &'a Mutex<InputBuffers>,
}

/// One output of [`run_all`].
pub(crate) struct Target<'a> {
    pub(crate) linear: &'a CpuLinear,
    /// `[m, out_features]`.
    pub(crate) out: &'a mut [f32],
    /// `Some(scale)`: `out += scale · y`.
    pub(crate) add: Option<f32>,
}

/// Runs linears that share their input; `source` writes row `i` of it, normed if need be.
pub(crate) fn run_all(
    machine: &Machine<'_>,
    m: usize,
    source: &RowSource<'_>,
    targets: &mut [Target<'_>],
) -> Result<(), BackendError> {
    let Machine { isa, pool, math, buffers } = *machine;
    let mut buffers = buffers.lock().unwrap_or_else(PoisonError::into_inner);
    let shape = Shape { m, rows_per_tile: rows_per_tile(isa, m) };
    let mut prepared: Vec<(*const InputLayout, bool, Prepared)> = Vec::new();
    let key = |linear: &CpuLinear| {
        let wide = math == MathMode::Wide && matches!(linear.weights, Weights::Packed(_));
        (Arc::as_ptr(&linear.input), wide)
    };
    for target in targets.iter() {
        let (layout, wide) = key(target.linear);
        if prepared.iter().any(|p| (p.0, p.1) == (layout, wide)) {
            continue;
        }
        let input = &target.linear.input;
        let ready = if wide {
            Prepared::Wide(WideInput::prepare(isa, pool, &mut buffers, input, shape, source)?)
        } else {
            Prepared::Exact(ExactInput::prepare(pool, &mut buffers, input, shape, source)?)
        };
        prepared.push((layout, wide, ready));
    }
    let mut jobs = Vec::with_capacity(targets.len());
    for target in targets.iter_mut() {
        let (layout, wide) = key(target.linear);
        let ready = prepared.iter().find(|p| (p.0, p.1) == (layout, wide));
        let Some((_, _, input)) = ready else { continue };
        let linear = target.linear;
        let output = Output {
            values: Shares::new(target.out),
            width: linear.out_features,
            bias: linear.bias.as_deref(),
            add: target.add,
        };
        jobs.push(Job { linear, input, output });
    }
    run::run(isa, pool, &jobs)?;
    drop(jobs);
    for (_, _, input) in prepared {
        match input {
            Prepared::Exact(input) => input.recycle(&mut buffers),
            Prepared::Wide(input) => input.recycle(&mut buffers),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
