//! Preparing activations: norm, packed order, scales, and the interleaving the kernels read.
//!
//! A prepared input is cut into tiles of up to `rows_per_tile` token rows. Inside a tile the
//! elements of all its rows for one packed row (or pair of rows) are neighbours, so a kernel
//! broadcasts them one after another. Missing rows of the last tile are zeros.
//!
//! All inputs of a call lie back to back in two buffers that are kept for the next call.

use std::ops::Range;
use std::sync::Arc;

use pagella_backend::BackendError;

use super::blocks::InputLayout;
use super::quantize::Quantize;
use crate::account::{Account, Claim};
use crate::memory::Aligned;
use crate::simd::{Isa, LANES};
use crate::threads::{Pool, Shares};

/// Elements that are worth handing to others: preparing them takes some microseconds.
const SHARED_ELEMENTS_MIN: usize = 8 << 10;

/// What the memory is for, in errors.
const WHAT: &str = "activations";

/// Writes one row of the activations, normed if need be, to a buffer.
pub(crate) type RowSource<'a> = dyn Fn(usize, &mut [f32]) + Sync + 'a;

/// Rows of the activations that a linear runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rows<'a> {
    /// The first so many.
    First(usize),
    /// These, in this order.
    Listed(&'a [u32]),
}

impl Rows<'_> {
    /// How many there are.
    pub(crate) fn len(self) -> usize {
        match self {
            Rows::First(len) => len,
            Rows::Listed(rows) => rows.len(),
        }
    }

    /// The row that comes in place `i`.
    fn at(self, i: usize) -> usize {
        match self {
            Rows::First(_) => i,
            Rows::Listed(rows) => rows[i] as usize,
        }
    }
}

/// An input that is wanted. Linears that want the same share it.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) layout: &'a InputLayout,
    pub(crate) wide: bool,
    pub(crate) rows: Rows<'a>,
}

impl PartialEq for Wanted<'_> {
    fn eq(&self, other: &Self) -> bool {
        // Equal layouts are one and the same, see `Layouts`.
        std::ptr::eq(self.layout, other.layout)
            && self.wide == other.wide
            && self.rows == other.rows
    }
}

/// An input in the form a linear wants it.
pub(crate) enum Prepared<'a> {
    Exact(ExactInput<'a>),
    Wide(WideInput<'a>),
}

impl Prepared<'_> {
    pub(crate) fn shape(&self) -> Shape {
        match self {
            Prepared::Exact(input) => input.shape,
            Prepared::Wide(input) => input.shape,
        }
    }
}

/// A packed input in f32: `[tile][packed row][rows_per_tile]`.
pub(crate) struct ExactInput<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) shape: Shape,
}

/// A packed input as 15-bit integers with one scale per row block.
pub(crate) struct WideInput<'a> {
    /// Two words for every quad of rows: `[tile][packed row pair][rows_per_tile]`. Those of quad `q`
    /// are the pairs (row 0, row 2) and (row 1, row 3) of two i16 each; or, for a GEMV that
    /// [takes bytes](crate::simd::Simd::BYTE_BITS_MAX), the high bytes of all four and the low ones.
    pub(crate) pairs: &'a [i32],
    /// `[tile][row block][rows_per_tile]`.
    pub(crate) scales: &'a [f32],
    /// Sum of the integers of a block, same shape.
    pub(crate) sums: &'a [i32],
    /// Packed rows.
    pub(crate) rows: usize,
    /// Row blocks.
    pub(crate) blocks: usize,
    pub(crate) shape: Shape,
}

/// Memory of prepared inputs; it grows to the largest set.
#[derive(Default)]
pub(crate) struct InputBuffers {
    floats: Aligned<f32>,
    integers: Aligned<i32>,
    claim: Claim,
}

impl InputBuffers {
    /// Without memory yet; what they grow to is claimed there.
    pub(crate) fn of(account: &Arc<Account>) -> Self {
        InputBuffers { claim: Claim::empty(account), ..InputBuffers::default() }
    }

    fn resize(&mut self, floats: usize, integers: usize) -> Result<(), BackendError> {
        self.claim.grow_to(
            4 * (self.floats.len().max(floats) + self.integers.len().max(integers)),
            WHAT,
        )?;
        self.floats.resize(floats, WHAT)?;
        self.integers.resize(integers, WHAT)
    }
}

/// Geometry of a prepared input.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    /// Token rows.
    pub(crate) m: usize,
    pub(crate) rows_per_tile: usize,
    /// Whether it is for a GEMV.
    pub(crate) direct: bool,
}

impl Shape {
    /// Tiles of token rows.
    pub(crate) fn tiles(self) -> usize {
        self.m.div_ceil(self.rows_per_tile)
    }
}

/// Where an input lies in the buffers.
struct Place {
    shape: Shape,
    /// Values of an exact input, scales of a wide one.
    floats: Part,
    /// Of a wide input.
    pairs: Part,
    /// Of a wide input.
    sums: Part,
}

/// Tiles of equal length, one after the other.
#[derive(Clone, Copy, Default)]
struct Part {
    start: usize,
    tile_len: usize,
}

impl Part {
    /// Takes room for `tiles` tiles at `end`, which moves on.
    fn take(end: &mut usize, tiles: usize, tile_len: usize) -> Self {
        let start = *end;
        *end += (tiles * tile_len).next_multiple_of(LANES);
        Part { start, tile_len }
    }

    fn tile(self, tile: usize) -> Range<usize> {
        let start = self.start + tile * self.tile_len;
        start..start + self.tile_len
    }

    fn all(self, tiles: usize) -> Range<usize> {
        self.start..self.start + tiles * self.tile_len
    }
}

/// Prepares every wanted input from the rows of `source`; `shape_of` cuts so many rows into tiles,
/// for wide arithmetic or not.
pub(crate) fn prepare<'b>(
    isa: Isa,
    pool: &Pool,
    buffers: &'b mut InputBuffers,
    wanted: &[Wanted<'_>],
    shape_of: impl Fn(usize, bool) -> Shape,
    source: &RowSource<'_>,
) -> Result<Vec<Prepared<'b>>, BackendError> {
    let (mut n_floats, mut n_integers, mut n_elements) = (0, 0, 0);
    let mut places = Vec::with_capacity(wanted.len());
    let mut tasks = Vec::new();
    for (index, input) in wanted.iter().enumerate() {
        let shape = shape_of(input.rows.len(), input.wide);
        let (tiles, width) = (shape.tiles(), shape.rows_per_tile);
        let (rows, blocks) = (input.layout.rows * width, input.layout.blocks.len() * width);
        n_elements += tiles * rows;
        let (floats, pairs, sums) =
            if input.wide { (blocks, rows / 2, blocks) } else { (rows, 0, 0) };
        places.push(Place {
            shape,
            floats: Part::take(&mut n_floats, tiles, floats),
            pairs: Part::take(&mut n_integers, tiles, pairs),
            sums: Part::take(&mut n_integers, tiles, sums),
        });
        tasks.extend((0..tiles).map(|tile| (index, tile)));
    }
    buffers.resize(n_floats, n_integers)?;
    let (floats, integers) = (Shares::new(&mut buffers.floats), Shares::new(&mut buffers.integers));
    pool.run_if(n_elements >= SHARED_ELEMENTS_MIN, tasks.len(), &|task| {
        let (index, tile) = tasks[task];
        let place = &places[index];
        // SAFETY: every tile is handed out once and owns its own ranges.
        let (floats, pairs, sums) = unsafe {
            (
                floats.part(place.floats.tile(tile)),
                integers.part(place.pairs.tile(tile)),
                integers.part(place.sums.tile(tile)),
            )
        };
        Tile { floats, pairs, sums }.fill(isa, &wanted[index], place.shape, tile, source);
    })?;
    let buffers = &*buffers;
    let prepared = places.iter().zip(wanted).map(|(place, input)| {
        let (shape, tiles) = (place.shape, place.shape.tiles());
        let floats = &buffers.floats[place.floats.all(tiles)];
        let integers = |part: Part| &buffers.integers[part.all(tiles)];
        if input.wide {
            let (pairs, sums) = (integers(place.pairs), integers(place.sums));
            let (rows, blocks) = (input.layout.rows, input.layout.blocks.len());
            Prepared::Wide(WideInput { pairs, scales: floats, sums, rows, blocks, shape })
        } else {
            Prepared::Exact(ExactInput { values: floats, shape })
        }
    });
    Ok(prepared.collect())
}

/// The memory of one tile.
struct Tile<'a> {
    floats: &'a mut [f32],
    pairs: &'a mut [i32],
    sums: &'a mut [i32],
}

impl Tile<'_> {
    fn fill(self, isa: Isa, input: &Wanted<'_>, shape: Shape, tile: usize, source: &RowSource<'_>) {
        let Tile { floats, pairs, sums } = self;
        let width = shape.rows_per_tile;
        let lanes = width.min(shape.m - tile * width);
        if input.wide || lanes < width {
            floats.fill(0.0);
            pairs.fill(0);
            sums.fill(0);
        }
        for lane in 0..lanes {
            with_scratch(|scratch| {
                packed_row(isa, input.layout, source, input.rows.at(tile * width + lane), scratch);
                let x = &scratch.packed[..];
                if input.wide {
                    let blocks = &input.layout.blocks;
                    let direct = shape.direct;
                    isa.run(Quantize {
                        x,
                        blocks,
                        width,
                        lane,
                        direct,
                        pairs,
                        scales: floats,
                        sums,
                    });
                } else {
                    let column = floats.iter_mut().skip(lane).step_by(width);
                    column.zip(x).for_each(|(out, &x)| *out = x);
                }
            });
        }
    }
}

/// Takes row `row` of `source` in packed order.
fn packed_row(
    isa: Isa,
    layout: &InputLayout,
    source: &RowSource<'_>,
    row: usize,
    scratch: &mut Scratch,
) {
    scratch.natural.resize(layout.rows, 0.0);
    scratch.packed.resize(layout.rows, 0.0);
    if let Some(rotation) = &layout.rotation {
        let Scratch { natural, packed } = scratch;
        return rotation.apply(isa, |out| source(row, out), natural, packed);
    }
    if layout.perm.is_empty() {
        source(row, &mut scratch.packed);
        return;
    }
    source(row, &mut scratch.natural);
    for (out, &from) in scratch.packed.iter_mut().zip(&layout.perm) {
        *out = scratch.natural[from as usize];
    }
}

#[derive(Default)]
struct Scratch {
    natural: Vec<f32>,
    packed: Vec<f32>,
}

thread_local! {
    static SCRATCH: std::cell::RefCell<Scratch> = std::cell::RefCell::default();
}

fn with_scratch(body: impl FnOnce(&mut Scratch)) {
    SCRATCH.with(|cell| match cell.try_borrow_mut() {
        Ok(mut scratch) => body(&mut scratch),
        Err(_) => body(&mut Scratch::default()),
    });
}
