//! The kernels of `kernels/relayout.cu` and the unpackers of `kernels/t32.cuh` in scalar form, slow
//! and obvious, for tests.

mod places;

use half::f16;
use pagella_formats::exl2::scale;
use pagella_formats::{Exl2Linear, GptqLinear, Linear};

use super::chunk::{block_bytes, record_bytes};
use super::plain::{Element, PlainSource};
use super::{BLOCK_ROWS, Chunk, LayoutKind, STRIP_COLUMNS, Source, T32Plan, power_of_two};

/// Zero of padding columns of GPTQ, where the codes are the same.
const PADDING_ZERO: u8 = 8;

/// The strips of a linear by its plan; `exponent` is that of scaled plain weights.
pub(crate) fn relayout(plan: &T32Plan, linear: &Linear<'_>, exponent: i32) -> Vec<u8> {
    let mut strips = Vec::with_capacity(plan.bytes());
    for strip in 0..plan.n_strips {
        for chunk in &plan.chunks {
            strips.extend(make_chunk(plan, linear, exponent, strip, chunk));
        }
    }
    strips
}

/// One chunk of one strip: records, then blocks.
fn make_chunk(
    plan: &T32Plan,
    linear: &Linear<'_>,
    exponent: i32,
    strip: usize,
    chunk: &Chunk,
) -> Vec<u8> {
    // Stored column of a column of the strip.
    let stored = |column: usize| {
        let output = STRIP_COLUMNS * strip + column;
        let map = plan
            .columns
            .as_ref()
            .map_or(output, |columns| columns.get(output).map_or(0, |column| *column as usize));
        (output < plan.n).then_some(map)
    };
    let mut records = vec![0; usize::from(chunk.records) * record_bytes(plan.kind)];
    let mut blocks = Vec::new();
    for i in 0..usize::from(chunk.blocks) {
        let block = usize::from(chunk.first_block) + i;
        let record = usize::from(chunk.record[i]) * record_bytes(plan.kind);
        match (&plan.source, linear) {
            (Source::Exl2 { blocks: sources, steps }, Linear::Exl2(linear)) => {
                let source = sources[block];
                let step = f16::from_bits(steps[source.group as usize]);
                put_record(&mut records[record..], |column| {
                    stored(column).map_or(f16::ZERO, |column| {
                        scale::column_scale(linear.scale_code(source.group as usize, column), step)
                    })
                });
                blocks.extend(places::pack_block(chunk.bits, |row, column| {
                    stored(column).map_or(1 << (chunk.bits - 1), |column| {
                        stream_code(linear, chunk.bits, source.word as usize, row, column)
                    })
                }));
            }
            (Source::Gptq { blocks: sources }, Linear::Gptq(linear)) => {
                put_gptq_records(linear, &mut records[record..], sources[block].group, stored);
                let row_of = |row: usize| {
                    let row = BLOCK_ROWS * block + row;
                    plan.perm.as_ref().map_or(row, |perm| perm[row] as usize)
                };
                blocks.extend(places::pack_block(chunk.bits, |row, column| {
                    let code = stored(column).map(|column| linear.code(row_of(row), column));
                    code.unwrap_or(PADDING_ZERO).into()
                }));
            }
            (Source::Plain(source), linear) => {
                let bytes = source.pieces(linear).concat();
                blocks.extend(places::pack_block(chunk.bits, |row, column| {
                    let row = BLOCK_ROWS * block + row;
                    let part =
                        |column| plain_part(source, &bytes, plan.k_in, row, column, exponent);
                    stored(column).map_or(0, |column| part(column).to_bits().into())
                }));
            }
            _ => panic!("a plan of another linear"),
        }
    }
    records.extend(blocks);
    records
}

/// Writes a record: entry `4r + i` belongs to column `8i + r`.
fn put_record(record: &mut [u8], value: impl Fn(usize) -> f16) {
    for (entry, bytes) in record.as_chunks_mut::<2>().0.iter_mut().take(STRIP_COLUMNS).enumerate() {
        *bytes = value(8 * (entry % 4) + entry / 4).to_le_bytes();
    }
}

fn put_gptq_records(
    linear: &GptqLinear<'_>,
    record: &mut [u8],
    group: u32,
    stored: impl Fn(usize) -> Option<usize>,
) {
    let group = group as usize;
    put_record(record, |c| stored(c).map_or(f16::ZERO, |c| linear.scale(group, c)));
    put_record(&mut record[2 * STRIP_COLUMNS..], |c| {
        f16::from_f32(stored(c).map_or(PADDING_ZERO, |c| linear.zero(group, c)).into())
    });
}

/// A code of a block whose bit streams begin at word row `word`.
fn stream_code(linear: &Exl2Linear<'_>, bits: u8, word: usize, row: usize, column: usize) -> u32 {
    (0..usize::from(bits)).fold(0, |code, bit| {
        let at = row * usize::from(bits) + bit;
        code | (linear.words.word(word + at / 32, column) >> (at % 32) & 1) << bit
    })
}

/// The f16 of a plain weight, or of its upper or lower part, at a packed row.
fn plain_part(
    source: &PlainSource,
    bytes: &[u8],
    k_in: usize,
    packed_row: usize,
    column: usize,
    exponent: i32,
) -> f16 {
    let lower = packed_row >= source.k_upper;
    let row = packed_row - if lower { source.k_upper } else { 0 };
    if row >= k_in {
        return f16::ZERO;
    }
    let at = column * source.column_stride as usize + row * source.row_stride as usize;
    let pair = |at: usize| [bytes[2 * at], bytes[2 * at + 1]];
    let value = match source.element {
        Element::F16 => return f16::from_le_bytes(pair(at)),
        Element::Bf16 => half::bf16::from_le_bytes(pair(at)).to_f32(),
        Element::F32 => {
            let ([a, b], [c, d]) = (pair(2 * at), pair(2 * at + 1));
            f32::from_le_bytes([a, b, c, d])
        }
    };
    let value = value * power_of_two(-exponent);
    let upper = f16::from_f32(value);
    if lower { f16::from_f32(value - upper.to_f32()) } else { upper }
}

/// The weights in strips, `[k][32 · n_strips]`, rows in packed order, padding included; plain ones
/// without their exponent.
pub(crate) fn dequantise(plan: &T32Plan, strips: &[u8]) -> Vec<f16> {
    let width = STRIP_COLUMNS * plan.n_strips;
    let mut matrix = vec![f16::NAN; plan.k * width];
    for (strip, bytes) in strips.chunks(plan.strip_bytes as usize).enumerate() {
        for chunk in &plan.chunks {
            let at = chunk.offset16 as usize * 16;
            let bytes = &bytes[at..at + usize::from(chunk.bytes16) * 16];
            let (records, blocks) =
                bytes.split_at(usize::from(chunk.records) * record_bytes(plan.kind));
            for (i, block) in blocks.chunks(block_bytes(chunk.bits)).enumerate() {
                let record = usize::from(chunk.record[i]) * record_bytes(plan.kind);
                let codes = places::unpack_block(chunk.bits, block);
                for (row, codes) in codes.iter().enumerate() {
                    let row = BLOCK_ROWS * (usize::from(chunk.first_block) + i) + row;
                    for (column, code) in codes.iter().enumerate() {
                        let value =
                            weight(plan.kind, chunk.bits, *code, column, &records[record..]);
                        matrix[row * width + STRIP_COLUMNS * strip + column] = value;
                    }
                }
            }
        }
    }
    matrix
}

/// One weight from its code and the record of its block.
fn weight(kind: LayoutKind, bits: u8, code: u32, column: usize, record: &[u8]) -> f16 {
    let entry = |table: usize| {
        let at = 2 * (STRIP_COLUMNS * table + 4 * (column % 8) + column / 8);
        f16::from_le_bytes([record[at], record[at + 1]]).to_f32()
    };
    match kind {
        LayoutKind::Exl2 => scale::weight(code, bits, f16::from_f32(entry(0))),
        LayoutKind::Gptq => f16::from_f32((code as f32 - entry(1)) * entry(0)),
        LayoutKind::Plain => f16::from_bits(code as u16),
    }
}
