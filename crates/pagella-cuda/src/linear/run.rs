//! Running linears that share their input: which kernel, on which grid. No choice here changes a
//! result: every kernel adds the same numbers in the same order.

mod gemv;
mod prefill;
mod stages;
mod tile;

pub(crate) use prefill::ROWS_MIN as DEQUANTISE_ROWS_MIN;
pub(crate) use prefill::launch_widest as prefill_w128;
pub(crate) use stages::{Stages, TileShape};

use pagella_backend::BackendError;

use super::CudaLinear;
use super::args::{MATRICES_MAX, MatrixArgs, NormArgs, PrepArgs, SEGMENTS_MAX, SegmentStart};
use crate::device::{Device, Launch};
use crate::scratch::{Scratch, Use};

/// Packed rows of a slice of tiled inputs.
pub(crate) const SLICE_ROWS: usize = 64;
/// Threads of a block that prepares one row.
const PREP_THREADS: u32 = 256;
/// Shared memory that it declares for itself, at most.
const PREP_SHARED_STATIC: u32 = 512;

/// What linears are applied to.
#[derive(Clone, Copy)]
pub(crate) struct Input {
    /// First row, f32.
    pub(crate) x: u64,
    /// Elements between rows.
    pub(crate) stride: usize,
    /// Which rows to take, on the device; 0: the first ones.
    pub(crate) row_map: u64,
    pub(crate) norm: NormArgs,
    /// How many rows.
    pub(crate) rows: usize,
}

/// One linear with the place of its results.
#[derive(Clone, Copy)]
pub(crate) struct Product<'a> {
    pub(crate) linear: &'a CudaLinear,
    /// First row of results, f32, `out_features` apart.
    pub(crate) out: u64,
    /// Adds the scaled result to what is there, instead of replacing it.
    pub(crate) add: Option<f32>,
}

/// Several linears of one packed height, in one launch.
struct Group<'a> {
    linears: Vec<&'a CudaLinear>,
    matrices: [MatrixArgs; MATRICES_MAX],
    segments: [[SegmentStart; SEGMENTS_MAX]; MATRICES_MAX],
    /// 0: results replace, 1: they are added.
    mode: u32,
}

/// What all kernels need to run.
pub(crate) struct Runner<'a> {
    pub(crate) device: &'a Device,
    pub(crate) scratch: &'a Scratch,
    /// Most elements of dequantised weights at once.
    pub(crate) dequantised_max: usize,
}

/// Applies linears to one input.
pub(crate) fn run(
    runner: &Runner<'_>,
    input: &Input,
    products: &[Product<'_>],
) -> Result<(), BackendError> {
    let mut rest = products;
    while let Some(first) = rest.first() {
        let alike = |product: &&Product<'_>| {
            product.linear.args.k == first.linear.args.k
                && product.add.is_some() == first.add.is_some()
        };
        let n = rest.iter().take(MATRICES_MAX).take_while(alike).count();
        let group = Group::new(&rest[..n]);
        if gemv::fits(runner, input, &group) {
            gemv::run(runner, input, &group)?;
        } else if prefill::pays(runner, input) {
            prefill::run(runner, input, &group)?;
        } else {
            tile::run(runner, input, &group)?;
        }
        rest = &rest[n..];
    }
    Ok(())
}

impl<'a> Group<'a> {
    fn new(products: &[Product<'a>]) -> Self {
        let mut group = Group {
            linears: products.iter().map(|product| product.linear).collect(),
            matrices: Default::default(),
            segments: Default::default(),
            mode: u32::from(products.iter().any(|product| product.add.is_some())),
        };
        for (i, product) in products.iter().enumerate() {
            group.matrices[i] = MatrixArgs {
                out: product.out,
                scale: product.add.unwrap_or(1.0),
                ..product.linear.args
            };
            group.segments[i] = product.linear.starts;
        }
        group
    }

    fn used(&self) -> &[MatrixArgs] {
        &self.matrices[..self.linears.len()]
    }

    fn slot_bytes(&self) -> u32 {
        self.used().iter().map(|matrix| matrix.slot_bytes).max().unwrap_or(0)
    }

    fn segments(&self) -> u32 {
        self.linears.iter().map(|linear| linear.segments).max().unwrap_or(0)
    }
}

/// Rounds the input to f16 tiles, once for each distinct row order; gives the tiles of each matrix.
fn prepare(
    runner: &Runner<'_>,
    input: &Input,
    group: &Group<'_>,
) -> Result<([u64; MATRICES_MAX], usize), BackendError> {
    let Some(first) = group.used().first() else { return Ok(([0; MATRICES_MAX], 0)) };
    let rows_padded = input.rows.next_multiple_of(8);
    let bytes = (first.k as usize).div_ceil(SLICE_ROWS) * rows_padded * SLICE_ROWS * 2;
    let mut args = PrepArgs {
        x: input.x,
        row_map: input.row_map,
        norm: input.norm,
        rows: input.rows as u32,
        rows_padded: rows_padded as u32,
        x_stride: input.stride as u32,
        k_in: first.k_in,
        k: first.k,
        ..PrepArgs::default()
    };
    let mut tiles = [0; MATRICES_MAX];
    for (matrix, tiles) in group.used().iter().zip(&mut tiles) {
        let n = args.n_outputs as usize;
        let known = args.perm[..n].iter().position(|perm| *perm == matrix.perm);
        let at = match known {
            Some(at) => at,
            None => {
                args.perm[n] = matrix.perm;
                args.out[n] = runner.scratch.ensure(runner.device, Use::Inputs(n), bytes)?;
                args.n_outputs += 1;
                n
            }
        };
        *tiles = args.out[at];
    }
    let row_bytes = (2 * first.k_in).next_multiple_of(16);
    let is_wide = row_bytes + PREP_SHARED_STATIC > runner.device.limits.shared_bytes_max;
    // Norms are of hidden states, which are nowhere near as wide.
    let (kernel, shared_bytes) =
        if is_wide && input.norm.is_none() { ("pg_prep_wide", 0) } else { ("pg_prep", row_bytes) };
    let launch = Launch { grid: [args.rows_padded, 1, 1], threads: PREP_THREADS, shared_bytes };
    runner.device.launch(kernel, launch, &args)?;
    Ok((tiles, rows_padded))
}
