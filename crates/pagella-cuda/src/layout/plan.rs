//! The plan of one linear: what its strips look like and how they are made from the file's tensors.

use pagella_formats::exl2::scale;
use pagella_formats::{Exl2Linear, Linear};

use super::args::BlockSource;
use super::chunk::{BlockShape, Chunk, directory};
use super::plain::PlainSource;
use super::{BLOCK_ROWS, STRIP_COLUMNS, gptq, plain};

/// A packed row that holds no input feature: zeros, to fill the last block.
pub const NO_ROW: u32 = u32::MAX;

/// Blocks that a directory can count, and strips that a grid can.
const MOST: usize = u16::MAX as usize;

/// What a strip holds (`MatrixKind` of `kernels/matrix.cuh`).
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LayoutKind {
    /// Codes of 2 to 8 bits around a fixed zero, with a scale per group and column.
    Exl2 = 0,
    /// Codes of 4 bits with a scale and a zero per group and column.
    Gptq = 1,
    /// f16 weights.
    Plain = 2,
}

/// Why a linear cannot be laid out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// No rows or columns, or more than directory and grids can count.
    #[error("`{name}` of {rows} inputs and {columns} outputs has no layout on this device")]
    Extent {
        /// Base name of the linear.
        name: String,
        /// Its inputs.
        rows: usize,
        /// Its stored outputs.
        columns: usize,
    },
    /// A weight format without kernels here.
    #[error("`{name}` is stored as {format}, which runs on the CPU only so far: add --device cpu")]
    Format {
        /// Base name of the linear.
        name: String,
        /// The format.
        format: &'static str,
    },
    /// Integer codes or scales that the kernels here do not know.
    #[error(
        "`{name}` has {bits}-bit codes {scales}, which run on the CPU only so far: add --device cpu"
    )]
    Codes {
        /// Base name of the linear.
        name: String,
        /// Bits of a code.
        bits: u8,
        /// What its scales are.
        scales: &'static str,
    },
}

/// Where blocks come from, by the kind of tensors that are uploaded.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// `q_weight` and `q_scale` as stored.
    Exl2 {
        /// Word rows and group of every block.
        blocks: Vec<BlockSource>,
        /// The smallest scale of every group, binary16: its ceiling / 256, rounded.
        steps: Vec<u16>,
    },
    /// `qweight` and `qzeros` as stored, scales as [`super::gptq_scales`] gives them. The stored row
    /// of a packed row is the plan's `perm`.
    Gptq {
        /// Word rows and group of every block.
        blocks: Vec<BlockSource>,
    },
    /// Unquantised elements.
    Plain(PlainSource),
}

/// What the host must know of a linear in T32.
#[derive(Clone, Debug, PartialEq)]
pub struct T32Plan {
    /// What the strips hold; may differ from the file's kind.
    pub kind: LayoutKind,
    /// Outputs.
    pub n: usize,
    /// Strips: `n / 32`, rounded up.
    pub n_strips: usize,
    /// Input features.
    pub k_in: usize,
    /// Packed rows, a multiple of 32.
    pub k: usize,
    /// The directory, shared by all strips.
    pub chunks: Vec<Chunk>,
    /// Bytes of a strip.
    pub strip_bytes: u32,
    /// Bytes of the largest chunk.
    pub slot_bytes: u32,
    /// Input feature of every packed row, or [`NO_ROW`]; `None`: row `r` holds feature `r`, and rows
    /// from `k_in` on are zero.
    pub perm: Option<Vec<u32>>,
    /// Stored column of every output; `None`: column `i` is output `i`.
    pub columns: Option<Vec<u32>>,
    /// How the strips are made.
    pub source: Source,
}

impl T32Plan {
    /// Bytes of all strips.
    pub fn bytes(&self) -> usize {
        self.n_strips * self.strip_bytes as usize
    }
}

/// Plans a linear.
pub fn plan(linear: &Linear<'_>) -> Result<T32Plan, LayoutError> {
    let (rows, columns) = (linear.in_features(), linear.columns());
    // Twice the rows: f32 weights take two.
    let fits = rows.div_ceil(BLOCK_ROWS) <= MOST / 2 && columns.div_ceil(STRIP_COLUMNS) <= MOST;
    if rows == 0 || linear.out_features() == 0 || !fits {
        let name = linear.name().to_owned();
        return Err(LayoutError::Extent { name, rows, columns });
    }
    Ok(match linear {
        Linear::Exl2(linear) => exl2(linear),
        Linear::Gptq(linear) => gptq::plan(linear)?,
        Linear::Plain(linear) => plain::plan(linear),
        other => {
            let (name, format) = (other.name().to_owned(), other.kind().name());
            return Err(LayoutError::Format { name, format });
        }
    })
}

/// What all kinds need; `blocks` are in packed order.
pub(super) fn assemble(
    (kind, source): (LayoutKind, Source),
    (k_in, n): (usize, usize),
    blocks: &[BlockShape],
    perm: Option<Vec<u32>>,
    columns: Option<Vec<u32>>,
) -> T32Plan {
    let directory = directory(kind, blocks);
    T32Plan {
        kind,
        n,
        n_strips: n.div_ceil(STRIP_COLUMNS),
        k_in,
        k: blocks.len() * BLOCK_ROWS,
        chunks: directory.chunks,
        strip_bytes: directory.strip_bytes,
        slot_bytes: directory.slot_bytes,
        perm,
        columns,
        source,
    }
}

/// `order`, or `None` if it keeps everything in place.
pub(super) fn unless_identity(order: impl Iterator<Item = usize>) -> Option<Vec<u32>> {
    let order: Vec<u32> = order.map(|index| index as u32).collect();
    let moved = order.iter().enumerate().any(|(at, index)| *index as usize != at);
    moved.then_some(order)
}

fn exl2(linear: &Exl2Linear<'_>) -> T32Plan {
    let mut shapes = Vec::new();
    let mut blocks = Vec::new();
    for (group, table) in linear.groups.iter().enumerate() {
        let (bits, group) = (table.bits, group as u32);
        for block in 0..table.rows / BLOCK_ROWS {
            shapes.push(BlockShape { bits, group });
            // 32 rows of b bits are b words.
            let word = table.first_word + block * usize::from(bits);
            blocks.push(BlockSource { word: word as u32, group });
        }
    }
    let steps = linear.groups.iter().map(|group| scale::group_step(group.scale_max, 1.0).to_bits());
    assemble(
        (LayoutKind::Exl2, Source::Exl2 { blocks, steps: steps.collect() }),
        (linear.in_features, linear.out_features),
        &shapes,
        unless_identity(linear.perm.iter().map(|row| *row as usize)),
        unless_identity(linear.columns.iter()),
    )
}
