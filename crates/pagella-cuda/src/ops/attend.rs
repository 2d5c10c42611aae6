//! Attention over pages: units of few query rows and tiles of many, with the same bits.

use std::f64::consts::LOG2_E;

use pagella_backend::{AttentionOp, BackendError, KvValues};

use crate::device::{Device, KernelArgs, Launch};
use crate::kv::{KvCode, LayerPages};
use crate::scratch::{Scratch, Use};
use crate::step::{CudaStep, WorkPointers};
use crate::work::{HeadShape, TILE_ROWS};

/// Threads of both kernels.
const THREADS: u32 = 128;
/// Keys of a block.
const BLOCK_KEYS: u32 = 64;
/// Most query rows of a unit.
const UNIT_ROWS: u32 = 16;
/// Elements that share a scale, and that are rotated together.
const SCALED: u32 = 32;
const ROTATION: u32 = 64;
/// Most elements of an entry and of its values, by instance of the kernels for latent attention.
const LATENT_SMALL: (u32, u32) = (192, 128);
const LATENT_LARGE: (u32, u32) = (576, 512);

/// `kernels/attend.cuh`.
#[repr(C)]
#[derive(Clone, Copy)]
struct AttendArgs {
    q: u64,
    out: u64,
    keys: u64,
    values: u64,
    key_scales: u64,
    value_scales: u64,
    units: u64,
    n_units: u64,
    workspace: u64,
    counters: u64,
    tiles: u64,
    pages: u64,
    totals: u64,
    sinks: u64,
    heads: u32,
    kv_heads: u32,
    group: u32,
    head_dim: u32,
    width: u32,
    key_code: u32,
    value_code: u32,
    window: u32,
    chunk: u32,
    tile_rows: u32,
    totals_step: u32,
    exponent_scale: f32,
    cap_in: f32,
    cap_out: f32,
    entry: u32,
    pad: u32,
}

// SAFETY: field for field the struct of the same name in `kernels/attend.cuh`.
unsafe impl KernelArgs for AttendArgs {}

/// How a layer's heads are attended.
#[derive(Clone, Copy)]
struct Geometry {
    key_code: KvCode,
    value_code: KvCode,
    head_dim: u32,
    /// Elements of a row as attended: a head, or with the half block that it shares with another.
    width: u32,
    /// Width of the kernel's instance.
    instance: u32,
    /// Elements of an entry of latent attention, of which `head_dim` are values; 0 elsewhere.
    entry: u32,
}

impl Geometry {
    fn of(pages: &LayerPages) -> Self {
        if let KvValues::InKeys(rank) = pages.place_of_values {
            return Self::latent(pages, rank as u32);
        }
        let head_dim = pages.head_dim as u32;
        let shares = pages.key_code.is_scaled() && !head_dim.is_multiple_of(ROTATION);
        let width = if shares { head_dim + SCALED } else { head_dim };
        let instance = if width <= 64 {
            64
        } else if width <= 128 {
            128
        } else {
            256
        };
        let (key_code, value_code) = (pages.key_code, pages.value_code);
        Geometry { key_code, value_code, head_dim, width, instance, entry: 0 }
    }

    /// Of entries whose first `rank` elements are values.
    fn latent(pages: &LayerPages, rank: u32) -> Self {
        let (code, entry) = (pages.key_code, pages.head_dim as u32);
        // Rotated values may end within a block, of which all is needed to rotate them back.
        let width = if code.is_scaled() { rank.next_multiple_of(ROTATION) } else { rank };
        let is_small = entry <= LATENT_SMALL.0 && width <= LATENT_SMALL.1;
        let instance = if is_small { LATENT_SMALL.0 } else { LATENT_LARGE.0 };
        Geometry { key_code: code, value_code: code, head_dim: rank, width, instance, entry }
    }

    fn is_coded(&self) -> bool {
        self.key_code != KvCode::F16
    }

    /// `code_buffer_bytes` of `kernels/attend_load.cuh`.
    fn code_bytes(&self, code: KvCode) -> u32 {
        let row = match code {
            KvCode::F16 => 2 * self.width,
            KvCode::Fp8 | KvCode::Q8 => self.width,
            KvCode::Q4 => self.width / 2,
        };
        let heads = if self.width == self.head_dim { 1 } else { 2 };
        let scales = heads * BLOCK_KEYS * self.head_dim / SCALED * 2;
        BLOCK_KEYS * row / 16 * 16 + if code.is_scaled() { scales } else { 0 }
    }

    /// `decode_shared_bytes` of `kernels/attend_unit.cuh`.
    fn unit_shared_bytes(&self) -> u32 {
        if self.entry > 0 {
            return self.latent_shared_bytes();
        }
        let large = self.instance == 256;
        let tile = BLOCK_KEYS * self.instance * 2;
        let buffers = if large { 1 } else { 2 };
        let tiles = if self.is_coded() { buffers } else { 2 * buffers };
        let queries = if self.is_coded() && !large { 0 } else { UNIT_ROWS * self.instance * 2 };
        let weights = UNIT_ROWS * BLOCK_KEYS * 2;
        let small = (4 * 16 + 16 + 16 + 4) * 4;
        let codes = self.code_bytes(self.key_code) + self.code_bytes(self.value_code);
        tiles * tile + queries + weights + small + if self.is_coded() { buffers * codes } else { 0 }
    }

    /// `prefill_shared_bytes` of `kernels/attend_prefill.cu`.
    fn tile_shared_bytes(&self) -> u32 {
        if self.entry > 0 {
            return self.latent_shared_bytes();
        }
        let large = self.instance == 256;
        let tile = BLOCK_KEYS * self.instance * 2;
        let queries = if large { TILE_ROWS as u32 * self.instance * 2 } else { 0 };
        if !self.is_coded() {
            return (if large { 2 } else { 4 }) * tile + queries;
        }
        tile + queries + self.code_bytes(self.key_code).max(self.code_bytes(self.value_code))
    }

    /// `LatentLayout` of `kernels/attend_latent.cu`.
    fn latent_shared_bytes(&self) -> u32 {
        let (keys, queries) = (BLOCK_KEYS * self.instance * 2, UNIT_ROWS * self.instance * 2);
        let small = (4 * 16 + 16 + 16 + 4) * 4;
        keys + queries + UNIT_ROWS * BLOCK_KEYS * 2 + small
    }

    fn latent_kernels(&self) -> [&'static str; 2] {
        let is_full = (self.entry, self.head_dim) == LATENT_LARGE;
        match (self.instance == LATENT_LARGE.0, is_full, self.is_coded()) {
            (false, _, false) => ["pg_latent_decode_f16_192", "pg_latent_prefill_f16_192"],
            (false, _, true) => ["pg_latent_decode_coded_192", "pg_latent_prefill_coded_192"],
            (true, false, false) => ["pg_latent_decode_f16_576", "pg_latent_prefill_f16_576"],
            (true, false, true) => ["pg_latent_decode_coded_576", "pg_latent_prefill_coded_576"],
            (true, true, false) => {
                ["pg_latent_decode_full_f16_576", "pg_latent_prefill_full_f16_576"]
            }
            (true, true, true) => {
                ["pg_latent_decode_full_coded_576", "pg_latent_prefill_full_coded_576"]
            }
        }
    }

    /// Blocks of threads that a tile of query rows takes.
    fn blocks_per_tile(&self) -> usize {
        if self.entry > 0 { TILE_ROWS / UNIT_ROWS as usize } else { 1 }
    }

    /// Kernels for heads that fill the instance know their format; others serve every format and
    /// size.
    fn kernels(&self) -> [&'static str; 2] {
        if self.entry > 0 {
            return self.latent_kernels();
        }
        macro_rules! kernels {
            ($($format:literal),*) => {
                match (self.name(), self.instance) {
                    $(($format, 64) => [
                        concat!("pg_attend_decode_", $format, "_64"),
                        concat!("pg_attend_prefill_", $format, "_64"),
                    ],
                    ($format, 128) => [
                        concat!("pg_attend_decode_", $format, "_128"),
                        concat!("pg_attend_prefill_", $format, "_128"),
                    ],
                    ($format, _) => [
                        concat!("pg_attend_decode_", $format, "_256"),
                        concat!("pg_attend_prefill_", $format, "_256"),
                    ],)*
                    // Every name is in the list.
                    _ => ["", ""],
                }
            };
        }
        kernels!("f16", "coded", "full_f16", "full_fp8", "full_q8", "full_q6", "full_q4")
    }

    fn name(&self) -> &'static str {
        let coded_large = self.instance == 256 && self.is_coded();
        match (self.head_dim == self.instance && !coded_large, self.key_code, self.value_code) {
            (false, KvCode::F16, _) => "f16",
            (false, ..) => "coded",
            (true, KvCode::F16, _) => "full_f16",
            (true, KvCode::Fp8, _) => "full_fp8",
            (true, KvCode::Q8, KvCode::Q4) => "full_q6",
            (true, KvCode::Q8, _) => "full_q8",
            (true, KvCode::Q4, _) => "full_q4",
        }
    }

    /// Blocks of threads per multiprocessor that units are made for.
    fn unit_blocks_per_sm(&self) -> u32 {
        match (self.instance, self.head_dim == self.instance) {
            (64, true) => 4,
            (64, false) | (128, true) => 3,
            _ => 2,
        }
    }
}

/// `decode_slot_floats` of `kernels/attend.cuh`, for rows that are attended as `width` elements.
fn slot_floats(tile_rows: u32, width: u32) -> usize {
    ((2 * tile_rows).next_multiple_of(4) + tile_rows * width.next_multiple_of(16)) as usize
}

/// Bytes that a slot of the workspace takes over all key/value heads, each as wide as `width`.
pub(crate) fn slot_bytes(shape: HeadShape, width: usize) -> usize {
    4 * shape.kv_heads * slot_floats(shape.tile_rows() as u32, width as u32)
}

/// What is attended, as addresses.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    pub(crate) q: u64,
    pub(crate) out: u64,
    /// One logit per query head, or 0.
    pub(crate) sinks: u64,
}

/// Causal attention of every new token over its row's pages.
pub(crate) fn attend(
    device: &Device,
    scratch: &Scratch,
    step: &CudaStep,
    op: &AttentionOp,
    pages: &LayerPages,
    rows: Rows,
) -> Result<(), BackendError> {
    let shape = HeadShape { heads: op.heads, kv_heads: op.kv_heads };
    let work = step.work(device, shape)?;
    let geometry = Geometry::of(pages);
    let [unit_kernel, tile_kernel] = geometry.kernels();
    let mut args = arguments(op, pages, &geometry, &work, rows);
    args.tile_rows = shape.tile_rows() as u32;
    if work.room.units > 0 {
        let kv_heads = op.kv_heads;
        let slot_bytes = slot_bytes(shape, geometry.width as usize);
        args.workspace = scratch.ensure(device, Use::Spans, work.room.slots * slot_bytes)?;
        let counters = work.room.counters * kv_heads * 4;
        args.counters = scratch.ensure(device, Use::SpanCounters, counters)?;
        let most = device.limits.sms * geometry.unit_blocks_per_sm();
        let blocks = most.min((work.room.units * kv_heads) as u32);
        let shared_bytes = geometry.unit_shared_bytes();
        let launch = Launch { grid: [blocks, 1, 1], threads: THREADS, shared_bytes };
        device.launch(unit_kernel, launch, &args)?;
    }
    if work.room.tiles > 0 {
        if geometry.width != geometry.head_dim {
            let floats = step.tokens * op.heads * geometry.width as usize;
            args.totals = scratch.ensure(device, Use::Totals, floats * 4)?;
        }
        let blocks = (work.room.tiles * op.kv_heads * geometry.blocks_per_tile()) as u32;
        let shared_bytes = geometry.tile_shared_bytes();
        let launch = Launch { grid: [blocks, 1, 1], threads: THREADS, shared_bytes };
        device.launch(tile_kernel, launch, &args)?;
    }
    Ok(())
}

fn arguments(
    op: &AttentionOp,
    pages: &LayerPages,
    geometry: &Geometry,
    work: &WorkPointers,
    Rows { q, out, sinks }: Rows,
) -> AttendArgs {
    let [keys, values, key_scales, value_scales] = pages.pointers();
    // Queries of rotated keys were divided by 8 of the 32 that rotating twice multiplies by.
    let rest = if geometry.key_code.is_scaled() { 4.0 } else { 1.0 };
    let scale = f64::from(op.scale) * LOG2_E / rest;
    let cap = op.softcap.map(f64::from);
    let positions = |n: Option<usize>| n.map_or(0, |n| n.min(i32::MAX as usize) as u32);
    AttendArgs {
        q,
        out,
        keys,
        values,
        key_scales,
        value_scales,
        units: work.units,
        n_units: work.n_units,
        workspace: 0,
        counters: 0,
        tiles: work.tiles,
        pages: work.pages,
        totals: out,
        sinks,
        heads: op.heads as u32,
        kv_heads: op.kv_heads as u32,
        group: (op.heads / op.kv_heads) as u32,
        head_dim: geometry.head_dim,
        width: geometry.width,
        key_code: geometry.key_code as u32,
        value_code: geometry.value_code as u32,
        window: positions(op.window),
        chunk: positions(op.chunk),
        tile_rows: 0,
        totals_step: geometry.width,
        exponent_scale: if cap.is_some() { 1.0 } else { scale as f32 },
        cap_in: cap.map_or(0.0, |cap| (2.0 * scale / cap) as f32),
        cap_out: cap.map_or(0.0, |cap| (cap * LOG2_E) as f32),
        entry: geometry.entry,
        pad: 0,
    }
}
