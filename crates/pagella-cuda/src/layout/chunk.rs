//! The directory of a matrix: its blocks in chunks, in the order in which a strip stores them.
//!
//! A chunk is a run of blocks of one width inside one segment, stored as `[scale records][blocks]`,
//! with one record for every group that it touches. All strips of a matrix share the directory.

use super::plan::LayoutKind;
use super::{BLOCK_ROWS, STRIP_COLUMNS};

/// Most partial sums of an output.
const SEGMENTS: usize = 8;

/// Rows of a segment are a multiple of this.
const SEGMENT_MULTIPLE: usize = 64;

/// One entry of the directory, as kernels read it (`struct Chunk` of `kernels/matrix.cuh`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// Byte offset in the strip, divided by 16.
    pub offset16: u32,
    /// First packed row, divided by 32.
    pub first_block: u16,
    /// Blocks of 32 rows, 1 to 4.
    pub blocks: u8,
    /// Width of the codes; 16 for plain f16.
    pub bits: u8,
    /// Scale record of each block, counted inside the chunk.
    pub record: [u8; 4],
    /// Scale records before the first block.
    pub records: u8,
    /// Which of the partial sums it belongs to.
    pub segment: u8,
    /// Bytes, divided by 16.
    pub bytes16: u16,
}

const _: () = assert!(size_of::<Chunk>() == 16 && align_of::<Chunk>() == 4);

/// What the directory needs to know of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockShape {
    pub bits: u8,
    pub group: u32,
}

/// The chunks of a matrix and their sizes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Directory {
    pub chunks: Vec<Chunk>,
    pub strip_bytes: u32,
    pub slot_bytes: u32,
}

/// Rows of a segment of a matrix with `k` packed rows: a property of the matrix, never of a launch.
pub fn segment_rows(k: usize) -> usize {
    SEGMENT_MULTIPLE * k.div_ceil(SEGMENTS * SEGMENT_MULTIPLE)
}

/// Bytes of a scale record.
pub(super) fn record_bytes(kind: LayoutKind) -> usize {
    match kind {
        LayoutKind::Exl2 => STRIP_COLUMNS * 2,
        LayoutKind::Gptq => STRIP_COLUMNS * 4,
        LayoutKind::Plain => 0,
    }
}

/// Bytes of a block.
pub(super) fn block_bytes(bits: u8) -> usize {
    BLOCK_ROWS * STRIP_COLUMNS / 8 * usize::from(bits)
}

/// Most blocks of a chunk, as `kernels/chunk.cuh` expects full ones: about 2 KB of codes, so that buffers of equal size serve all widths. One
/// larger chunk makes all buffers of a matrix larger, and then fewer thread blocks fit into a
/// multiprocessor.
fn most_blocks(bits: u8) -> usize {
    match bits {
        16 => 1,
        6 | 8 => 2,
        5 => 3,
        _ => 4,
    }
}

/// Cuts blocks into chunks. There are at most 2^16 blocks.
pub(super) fn directory(kind: LayoutKind, blocks: &[BlockShape]) -> Directory {
    let segment_blocks = segment_rows(blocks.len() * BLOCK_ROWS) / BLOCK_ROWS;
    let mut directory = Directory::default();
    let mut first = 0;
    while let Some(head) = blocks.get(first) {
        let segment = first / segment_blocks;
        let end = (first + most_blocks(head.bits)).min((segment + 1) * segment_blocks);
        let same_width = blocks[first..end.min(blocks.len())]
            .iter()
            .take_while(|block| block.bits == head.bits)
            .count();
        let len = whole_groups(&blocks[first..], same_width);
        let offset = directory.strip_bytes;
        let mut chunk = chunk_of(kind, &blocks[first..first + len]);
        chunk.offset16 = offset / 16;
        chunk.first_block = first as u16;
        chunk.segment = segment as u8;
        let bytes = u32::from(chunk.bytes16) * 16;
        directory.strip_bytes += bytes;
        directory.slot_bytes = directory.slot_bytes.max(bytes);
        directory.chunks.push(chunk);
        first += len;
    }
    directory
}

/// The length of a chunk that begins with `blocks` and has room for `len`: it ends with a group if
/// it can, because a group cut in two has its record twice.
fn whole_groups(blocks: &[BlockShape], len: usize) -> usize {
    let cuts_group =
        |at: usize| blocks.get(at).is_some_and(|next| at > 0 && blocks[at - 1].group == next.group);
    let last_border = (1..=len).rev().find(|at| !cuts_group(*at));
    last_border.unwrap_or(len)
}

/// The chunk of some blocks, without its place.
fn chunk_of(kind: LayoutKind, blocks: &[BlockShape]) -> Chunk {
    let mut chunk = Chunk { blocks: blocks.len() as u8, ..Chunk::default() };
    let mut last_group = None;
    for (block, record) in blocks.iter().zip(&mut chunk.record) {
        chunk.bits = block.bits;
        if kind != LayoutKind::Plain && last_group != Some(block.group) {
            chunk.records += 1;
            last_group = Some(block.group);
        }
        *record = chunk.records.saturating_sub(1);
    }
    let bytes =
        usize::from(chunk.records) * record_bytes(kind) + blocks.len() * block_bytes(chunk.bits);
    chunk.bytes16 = (bytes / 16) as u16;
    chunk
}
