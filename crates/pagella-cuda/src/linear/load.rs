//! From the file's tensors to strips on the device.
//!
//! Tensors are uploaded as they are into one staging buffer and re-laid out from there. Everything
//! runs in stream order, so the next linear can be uploaded while this one is being re-laid out.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pagella_backend::BackendError;
use pagella_formats::Linear;

use super::CudaLinear;
use super::args::{MatrixArgs, SegmentStart};
use crate::arena::Arena;
use crate::device::{Device, Launch};
use crate::layout::args::{
    LargestArgs, RELAYOUT_THREADS, RelayoutExl2Args, RelayoutGptqArgs, RelayoutPlainArgs,
    plain_grid, quantised_grid,
};
use crate::layout::{
    Element, PlainSource, Source, T32Plan, exponent, gptq_scales, plan, power_of_two,
};
use crate::memory::DeviceBuffer;
use crate::upload::{Piece, Uploader};

/// Row orders that are remembered: linears that share one follow each other in a layer.
const ORDERS_KEPT: usize = 4;
/// Parts of the staging buffer start at multiples of this.
const PART_ALIGN: usize = 256;

/// Brings linears, norms and tables to the device.
#[derive(Default)]
pub(crate) struct Loader {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    uploader: Uploader,
    arena: Arena,
    staging: Option<DeviceBuffer>,
    /// Row orders of the last linears, so that equal ones share memory and are gathered once.
    orders: VecDeque<(Vec<u32>, Arc<DeviceBuffer>)>,
}

/// Parts of an upload, back to back in the staging buffer.
#[derive(Default)]
struct Parts<'a> {
    pieces: Vec<(usize, &'a [u8])>,
    bytes: usize,
}

impl<'a> Parts<'a> {
    /// Adds a part and returns its offset.
    fn add(&mut self, bytes: &'a [u8]) -> usize {
        let offset = self.bytes;
        self.pieces.push((offset, bytes));
        self.bytes = (offset + bytes.len()).next_multiple_of(PART_ALIGN);
        offset
    }

    /// Adds a part directly behind the last one.
    fn append(&mut self, bytes: &'a [u8]) {
        let offset = self.pieces.last().map_or(0, |(offset, last)| offset + last.len());
        self.pieces.push((offset, bytes));
        self.bytes = (offset + bytes.len()).next_multiple_of(PART_ALIGN);
    }
}

/// Plain numbers as bytes, in the order of this machine, which is the device's.
fn bytes_of<T: Copy>(values: &[T]) -> &[u8] {
    // SAFETY: only called for numbers and for structs of integers without padding.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// Memory for `bytes`, which is copied there with the other pieces.
fn keep<'a>(
    device: &Device,
    arena: &mut Arena,
    pieces: &mut Vec<Piece<'a>>,
    bytes: &'a [u8],
) -> Result<DeviceBuffer, BackendError> {
    let buffer = arena.alloc(&device.context, bytes.len(), "weights")?;
    pieces.push((buffer.ptr(), bytes));
    Ok(buffer)
}

impl Loader {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory on the device with a copy of `values`.
    pub(crate) fn upload<T: Copy>(
        &self,
        device: &Device,
        values: &[T],
        what: &'static str,
    ) -> Result<DeviceBuffer, BackendError> {
        let bytes = bytes_of(values);
        let mut state = self.state();
        let buffer = state.arena.alloc(&device.context, bytes.len(), what)?;
        // SAFETY: the buffer is as long as the bytes, and freeing it waits for the stream.
        unsafe { state.uploader.copy(device, &[(buffer.ptr(), bytes)]) }?;
        Ok(buffer)
    }

    /// Lays out a linear. The source is no longer needed when this returns.
    pub(crate) fn load(
        &self,
        device: &Device,
        linear: &Linear<'_>,
    ) -> Result<CudaLinear, BackendError> {
        let plan = plan(linear)
            .map_err(|error| BackendError::unsupported("cuda", "this linear", error.to_string()))?;
        let mut state = self.state();
        let loaded = lay_out(device, &mut state, &plan, linear);
        if loaded.is_err() {
            // An order that was noted may never have been copied.
            state.orders.clear();
        }
        loaded
    }

    /// Gives the memory of loading back, once everything is there.
    pub(crate) fn finish(&self, device: &Device) -> Result<(), BackendError> {
        let mut state = self.state();
        if !state.uploader.is_unused() {
            device.synchronize()?;
        }
        *state = State::default();
        Ok(())
    }
}

/// Brings a linear to the device by its plan.
fn lay_out(
    device: &Device,
    state: &mut State,
    plan: &T32Plan,
    linear: &Linear<'_>,
) -> Result<CudaLinear, BackendError> {
    let mut pieces = Vec::new();
    let strips = state.arena.alloc(&device.context, plan.bytes(), "weights")?;
    let chunks = keep(device, &mut state.arena, &mut pieces, bytes_of(&plan.chunks))?;
    let perm = match &plan.perm {
        Some(order) => Some(order_on(device, state, &mut pieces, order)?),
        None => None,
    };
    let bias = match linear.bias() {
        Some(bias) => Some(keep(device, &mut state.arena, &mut pieces, bytes_of(bias))?),
        None => None,
    };
    let target = Target { plan, strips: strips.ptr(), chunks: chunks.ptr() };
    let perm_ptr = perm.as_ref().map_or(0, |perm| perm.ptr());
    let alpha = match (&plan.source, linear) {
        (Source::Exl2 { .. }, Linear::Exl2(_)) => exl2(device, state, pieces, &target, linear)?,
        (Source::Gptq { .. }, Linear::Gptq(_)) => {
            gptq(device, state, pieces, &target, linear, perm_ptr)?
        }
        (Source::Plain(source), _) => plain(device, state, pieces, &target, linear, source)?,
        _ => 1.0, // A plan is made from its linear.
    };
    let buffers = [Some(&strips), Some(&chunks), bias.as_ref()];
    let bytes: usize = buffers.into_iter().flatten().map(DeviceBuffer::bytes).sum();
    let starts = SegmentStart::of(&plan.chunks);
    Ok(CudaLinear {
        args: MatrixArgs {
            strips: strips.ptr(),
            chunks: chunks.ptr(),
            perm: perm_ptr,
            bias: bias.as_ref().map_or(0, DeviceBuffer::ptr),
            out: 0,
            strip_bytes: plan.strip_bytes,
            n_chunks: plan.chunks.len() as u32,
            n_strips: plan.n_strips as u32,
            n: plan.n as u32,
            k_in: plan.k_in as u32,
            k: plan.k as u32,
            slot_bytes: plan.slot_bytes,
            kind: plan.kind as u32,
            out_stride: plan.n as u32,
            pad: 0,
            alpha,
            scale: 1.0,
        },
        starts,
        segments: plan.chunks.last().map_or(0, |chunk| u32::from(chunk.segment) + 1),
        in_features: plan.k_in,
        out_features: plan.n,
        bytes: bytes + perm.as_ref().map_or(0, |perm| perm.bytes()),
        _strips: strips,
        _chunks: chunks,
        _perm: perm,
        _bias: bias,
    })
}

/// A row order on the device; the one of an earlier linear if they are equal.
fn order_on<'a>(
    device: &Device,
    state: &mut State,
    pieces: &mut Vec<Piece<'a>>,
    order: &'a [u32],
) -> Result<Arc<DeviceBuffer>, BackendError> {
    if let Some((_, known)) = state.orders.iter().find(|(known, _)| known == order) {
        return Ok(known.clone());
    }
    let buffer = Arc::new(keep(device, &mut state.arena, pieces, bytes_of(order))?);
    state.orders.truncate(ORDERS_KEPT - 1);
    state.orders.push_front((order.to_vec(), buffer.clone()));
    Ok(buffer)
}

/// Uploads the pieces and all parts, and returns the address of the first part.
fn stage<'a>(
    device: &Device,
    state: &mut State,
    mut pieces: Vec<Piece<'a>>,
    parts: &Parts<'a>,
) -> Result<u64, BackendError> {
    let held = state.staging.as_ref().map_or(0, DeviceBuffer::bytes);
    if held < parts.bytes {
        // Freeing waits for the kernels that read the old buffer.
        state.staging = None;
        state.staging = Some(device.alloc(parts.bytes, "staging of weights")?);
    }
    let base = state.staging.as_ref().map_or(0, DeviceBuffer::ptr);
    pieces.extend(parts.pieces.iter().map(|(offset, bytes)| (base + *offset as u64, *bytes)));
    // SAFETY: the staging buffer has room for all parts, and the pieces have memory of their own;
    // later uploads and kernels follow in stream order.
    unsafe { state.uploader.copy(device, &pieces) }?;
    Ok(base)
}

fn exl2<'a>(
    device: &Device,
    state: &mut State,
    pieces: Vec<Piece<'a>>,
    target: &Target<'a>,
    linear: &'a Linear<'_>,
) -> Result<f32, BackendError> {
    let (Source::Exl2 { blocks, steps }, Linear::Exl2(linear)) = (&target.plan.source, linear)
    else {
        return Ok(1.0);
    };
    let mut parts = Parts::default();
    let words = parts.add(linear.words.bytes()) as u64;
    let scales = parts.add(linear.scales.bytes()) as u64;
    let steps = parts.add(bytes_of(steps)) as u64;
    let blocks = parts.add(bytes_of(blocks)) as u64;
    let columns = target.plan.columns.as_ref().map(|map| parts.add(bytes_of(map)) as u64);
    let base = stage(device, state, pieces, &parts)?;
    let args = RelayoutExl2Args {
        words: base + words,
        scales: base + scales,
        steps: base + steps,
        columns: columns.map_or(0, |columns| base + columns),
        blocks: base + blocks,
        chunks: target.chunks,
        strips: target.strips,
        stored: linear.columns.stored() as u32,
        n: target.plan.n as u32,
        n_strips: target.plan.n_strips as u32,
        first_strip: 0,
        strip_bytes: target.plan.strip_bytes,
        pad: 0,
    };
    device.launch("pg_relayout_exl2", target.quantised(), &args)?;
    Ok(1.0)
}

fn gptq<'a>(
    device: &Device,
    state: &mut State,
    pieces: Vec<Piece<'a>>,
    target: &Target<'a>,
    linear: &'a Linear<'_>,
    rows: u64,
) -> Result<f32, BackendError> {
    let (Source::Gptq { blocks }, Linear::Gptq(linear)) = (&target.plan.source, linear) else {
        return Ok(1.0);
    };
    let scale_values = gptq_scales(linear);
    let mut parts = Parts::default();
    let words = parts.add(linear.words.bytes()) as u64;
    let zeros = parts.add(linear.zeros.bytes()) as u64;
    let scales = parts.add(bytes_of(&scale_values)) as u64;
    let blocks = parts.add(bytes_of(blocks)) as u64;
    let columns = target.plan.columns.as_ref().map(|map| parts.add(bytes_of(map)) as u64);
    let base = stage(device, state, pieces, &parts)?;
    let args = RelayoutGptqArgs {
        words: base + words,
        zeros: base + zeros,
        scales: base + scales,
        rows,
        columns: columns.map_or(0, |columns| base + columns),
        blocks: base + blocks,
        chunks: target.chunks,
        strips: target.strips,
        stored: linear.columns.stored() as u32,
        n: target.plan.n as u32,
        n_strips: target.plan.n_strips as u32,
        first_strip: 0,
        strip_bytes: target.plan.strip_bytes,
        zero_offset: u32::from(linear.zero_offset),
    };
    device.launch("pg_relayout_gptq", target.quantised(), &args)?;
    Ok(1.0)
}

fn plain<'a>(
    device: &Device,
    state: &mut State,
    pieces: Vec<Piece<'a>>,
    target: &Target<'a>,
    linear: &'a Linear<'_>,
    source: &PlainSource,
) -> Result<f32, BackendError> {
    let plan = target.plan;
    let stored = source.pieces(linear);
    let mut parts = Parts::default();
    for piece in &stored {
        parts.append(piece);
    }
    let columns = plan.columns.as_ref().map(|map| parts.add(bytes_of(map)) as u64);
    let largest = parts.add(&[0; 4]);
    let base = stage(device, state, pieces, &parts)?;
    let columns = columns.map_or(0, |columns| base + columns);
    let (relayout, find_largest) = match source.element {
        Element::F16 => ("pg_relayout_f16", "pg_largest_f16"),
        Element::Bf16 => ("pg_relayout_bf16", "pg_largest_bf16"),
        Element::F32 => ("pg_relayout_f32", "pg_largest_f32"),
    };
    let mut e = 0;
    if source.element.is_scaled() {
        let args = LargestArgs {
            weights: base,
            columns,
            largest: base + largest as u64,
            column_stride: source.column_stride,
            row_stride: source.row_stride,
            n: plan.n as u32,
            k_in: plan.k_in as u32,
        };
        device.launch(
            find_largest,
            Launch::linear(device.limits.sms * 4, RELAYOUT_THREADS),
            &args,
        )?;
        let mut bits = [0u32];
        if let Some(staging) = &state.staging {
            device.read(staging, largest, &mut bits)?;
        }
        e = exponent(bits[0]);
    }
    let args = RelayoutPlainArgs {
        weights: base,
        columns,
        strips: target.strips,
        column_stride: source.column_stride,
        row_stride: source.row_stride,
        n: plan.n as u32,
        n_strips: plan.n_strips as u32,
        first_strip: 0,
        k_in: plan.k_in as u32,
        k: plan.k as u32,
        k_upper: source.k_upper as u32,
        strip_bytes: plan.strip_bytes,
        factor: power_of_two(-e),
    };
    let (x, y) = plain_grid(plan.n_strips, plan.k);
    let launch = Launch { grid: [x, y, 1], threads: RELAYOUT_THREADS, shared_bytes: 0 };
    device.launch(relayout, launch, &args)?;
    Ok(power_of_two(e))
}
/// Where a linear goes.
struct Target<'a> {
    plan: &'a T32Plan,
    strips: u64,
    chunks: u64,
}

impl Target<'_> {
    fn quantised(&self) -> Launch {
        let (x, y) = quantised_grid(self.plan.n_strips, self.plan.chunks.len());
        Launch { grid: [x, y, 1], threads: RELAYOUT_THREADS, shared_bytes: 0 }
    }
}
