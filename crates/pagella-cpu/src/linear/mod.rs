//! Linears: weights in tiles of 16 columns, activations prepared once per shared input.
//!
//! `weights` and `relayout` say what is stored, `input` and `quantize` how activations arrive, `wide`
//! and `exact` are the arithmetic, `gemv` and `run` walk and cut the work. `blocks` states the canonical order of the sums.

mod blocks;
mod exact;
mod exl3;
mod gemv;
mod input;
mod integer;
mod output;
mod own;
mod pack;
mod quad;
mod quantize;
mod relayout;
mod rotate;
mod run;
mod small_float;
mod weights;
mod wide;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use pagella_backend::BackendError;
use pagella_formats::Linear;

use crate::account::Claim;
use crate::simd::{Isa, LANES};
use crate::threads::{Pool, Shares};
use blocks::InputLayout;
pub(crate) use input::{InputBuffers, RowSource, Rows};
use input::{Wanted, prepare};
use output::Output;
use relayout::Laid;
pub(crate) use relayout::packs;
use rotate::Rotation;
use run::{Job, shape};
pub(crate) use small_float::laid_bytes as small_float_bytes;
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
    let (features, outputs) = (source.in_features(), source.out_features());
    let Laid { weights, perm, blocks, rotation } = laid;
    let rows = rotation.as_ref().map_or(features, Rotation::rows);
    let input = layouts.intern(InputLayout { perm, blocks, rows, rotation });
    let bias = source.bias().map(|bias| {
        let mut padded = bias.to_vec();
        padded.resize(outputs.next_multiple_of(LANES), 0.0);
        padded
    });
    let _claim = Claim::default();
    Ok(CpuLinear { in_features: features, out_features: outputs, bias, input, weights, _claim })
}

/// What linears run on.
pub(crate) struct Machine<'a> {
    pub(crate) isa: Isa,
    pub(crate) pool: &'a Pool,
    pub(crate) math: MathMode,
    pub(crate) buffers: &'a Mutex<InputBuffers>,
}

/// One linear of [`run_all`].
pub(crate) struct Target<'a> {
    pub(crate) linear: &'a CpuLinear,
    /// The rows it runs on.
    pub(crate) rows: Rows<'a>,
    /// `[rows, out_features]`.
    pub(crate) out: &'a mut [f32],
    /// `Some(scale)`: `out += scale · y`.
    pub(crate) add: Option<f32>,
}

/// Runs linears on rows of one set of activations; `source` writes one row of it, normed if need
/// be. Linears that want the same rows in the same order share a prepared input.
pub(crate) fn run_all(
    machine: &Machine<'_>,
    source: &RowSource<'_>,
    targets: &mut [Target<'_>],
) -> Result<(), BackendError> {
    let Machine { isa, pool, math, buffers } = *machine;
    let mut wanted: Vec<Wanted<'_>> = Vec::with_capacity(targets.len());
    let mut input_of = Vec::with_capacity(targets.len());
    for target in targets.iter() {
        let linear = target.linear;
        let wide = math == MathMode::Wide && matches!(linear.weights, Weights::Packed(_));
        let input = Wanted { layout: &linear.input, wide, rows: target.rows };
        let known = wanted.iter().rposition(|known| *known == input);
        input_of.push(known.unwrap_or(wanted.len()));
        if known.is_none() {
            wanted.push(input);
        }
    }
    let mut buffers = buffers.lock().unwrap_or_else(PoisonError::into_inner);
    let shape_of = |m, wide| shape(isa, m, wide);
    let inputs = prepare(isa, pool, &mut buffers, &wanted, shape_of, source)?;
    let jobs = targets.iter_mut().zip(input_of).map(|(target, input)| Job {
        linear: target.linear,
        input: &inputs[input],
        output: Output {
            values: Shares::new(target.out),
            width: target.linear.out_features,
            bias: target.linear.bias.as_deref(),
            add: target.add,
        },
    });
    run::run(isa, pool, &jobs.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests;
