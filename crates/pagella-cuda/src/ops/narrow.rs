//! Narrowing rows of logits: the device finds the candidates, the host reads a few hundred numbers.
//!
//! Asks and masks lie in page-locked memory that the kernels read over the bus, and answers are
//! written to such memory, so nothing is copied apart from them.

use pagella_backend::{BackendError, NarrowAsk, NarrowRow};

use crate::device::{Device, KernelArgs, Launch};
use crate::memory::PinnedBuffer;
use crate::scratch::{Scratch, Use};
use crate::tensor::Tensor;

/// Threads of the two kernels, entries of a slice and of a chunk: `kernels/narrow.cuh`.
const SCAN_THREADS: u32 = 256;
const TOP_THREADS: u32 = 1024;
const SLICE: usize = 4096;
const CHUNK: usize = 64;
const NO_MASK: u32 = u32::MAX;
/// Widest row the kernels take.
pub(crate) const WIDTH_MAX: usize = 524_288;
/// Words of an answer before its candidates.
const ANSWER_WORDS: usize = 8;
/// Words of an ask.
const ASK_WORDS: usize = size_of::<DeviceAsk>() / 4;
/// Room that is made at least.
const BYTES_MIN: usize = 64 << 10;

/// `NarrowAsk` of `kernels/narrow.cuh`.
#[repr(C)]
#[derive(Clone, Copy)]
struct DeviceAsk {
    row: u32,
    vocab: u32,
    mask: u32,
    mask_words: u32,
    apart: u32,
    n_apart: u32,
    top: u32,
    out: u32,
    scale: f32,
    wants_mass: u32,
}

/// `NarrowArgs` of `kernels/narrow.cuh`.
#[repr(C)]
#[derive(Clone, Copy)]
struct NarrowArgs {
    logits: u64,
    asks: u64,
    words: u64,
    out: u64,
    slices: u64,
    chunk_keys: u64,
    open_words: u64,
    n_open: u64,
    arrived: u64,
    width: u32,
    stride: u32,
}

// SAFETY: field for field the struct of the same name in `kernels/narrow.cuh`.
unsafe impl KernelArgs for NarrowArgs {}

/// Page-locked memory of asks and answers; used by one call at a time, which waits for its end.
#[derive(Default)]
pub(crate) struct NarrowBuffers {
    asks: Option<PinnedBuffer>,
    answers: Option<PinnedBuffer>,
}

/// A buffer of at least `bytes`.
fn room<'b>(
    device: &Device,
    slot: &'b mut Option<PinnedBuffer>,
    bytes: usize,
) -> Result<&'b mut PinnedBuffer, BackendError> {
    if slot.as_ref().is_none_or(|buffer| buffer.bytes() < bytes) {
        *slot = None;
        let bytes = bytes.next_power_of_two().max(BYTES_MIN);
        return Ok(slot.insert(PinnedBuffer::new(&device.context, bytes)?));
    }
    let what = "asks of narrowed rows";
    slot.as_mut().ok_or(BackendError::Size { what, expected: bytes, found: 0 })
}

/// Where everything lies that a call needs.
struct Layout {
    asks: Vec<DeviceAsk>,
    /// Masks and ids set apart, after the asks.
    words: usize,
    answers: usize,
}

impl Layout {
    fn of(asks: &[NarrowAsk<'_>]) -> Self {
        let mut layout = Layout { asks: Vec::with_capacity(asks.len()), words: 0, answers: 0 };
        for ask in asks {
            let mask_words = ask.mask.map_or(0, <[u32]>::len);
            let mask = layout.words;
            let apart = mask + mask_words;
            layout.words = apart + ask.apart.len();
            layout.asks.push(DeviceAsk {
                row: ask.row as u32,
                vocab: ask.vocab as u32,
                mask: if ask.mask.is_some() { mask as u32 } else { NO_MASK },
                mask_words: mask_words as u32,
                apart: apart as u32,
                n_apart: ask.apart.len() as u32,
                top: ask.top as u32,
                out: layout.answers as u32,
                scale: ask.scale.unwrap_or(0.0),
                wants_mass: u32::from(ask.scale.is_some()),
            });
            let words = ANSWER_WORDS + 2 * ask.top + ask.apart.len();
            layout.answers += words.next_multiple_of(4);
        }
        layout
    }

    fn fill(&self, asks: &[NarrowAsk<'_>], words: &mut [u32]) {
        // SAFETY: an ask is words and nothing else.
        let heads: &[u32] = unsafe {
            std::slice::from_raw_parts(self.asks.as_ptr().cast(), self.asks.len() * ASK_WORDS)
        };
        let (first, rest) = words.split_at_mut(heads.len());
        first.copy_from_slice(heads);
        let mut at = 0;
        for part in asks.iter().flat_map(|ask| [ask.mask.unwrap_or_default(), ask.apart]) {
            rest[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
    }
}

/// Answers `asks` about rows of `logits`; waits for everything enqueued before.
pub(crate) fn narrow(
    device: &Device,
    scratch: &Scratch,
    buffers: &mut NarrowBuffers,
    logits: &Tensor,
    asks: &[NarrowAsk<'_>],
    out: &mut Vec<NarrowRow>,
) -> Result<(), BackendError> {
    let width = logits.width;
    if width > WIDTH_MAX {
        let (expected, found) = (WIDTH_MAX, width);
        return Err(BackendError::Size { what: "entries of a row", expected, found });
    }
    for ask in asks {
        ask.check(logits.rows, width)?;
    }
    out.resize_with(asks.len(), NarrowRow::default);
    if asks.is_empty() {
        return Ok(());
    }
    let layout = Layout::of(asks);
    let ask_words = asks.len() * ASK_WORDS;
    let staged = room(device, &mut buffers.asks, 4 * (ask_words + layout.words))?;
    layout.fill(asks, staged.words_mut());
    let asks_at = staged.ptr();
    let answers = room(device, &mut buffers.answers, 4 * layout.answers)?;
    let n = asks.len();
    let (slices, chunks) = (width.div_ceil(SLICE), width.div_ceil(CHUNK));
    // 16 bytes a slice, a key and two words a chunk, two counters.
    let sizes = [16 * n * slices, 4 * n * chunks, 8 * n * chunks, 4 * n];
    let arrived = scratch.ensure(device, Use::Counters, 4 * n)?;
    let total = sizes.iter().map(|bytes| bytes.next_multiple_of(256)).sum();
    let mut at = scratch.ensure(device, Use::Narrowed, total)?;
    let [slices_at, chunk_keys, open_words, n_open] = sizes.map(|bytes| {
        let start = at;
        at += bytes.next_multiple_of(256) as u64;
        start
    });
    let args = NarrowArgs {
        logits: logits.ptr(),
        asks: asks_at,
        words: asks_at + 4 * ask_words as u64,
        out: answers.ptr(),
        slices: slices_at,
        chunk_keys,
        open_words,
        n_open,
        arrived,
        width: width as u32,
        stride: width as u32,
    };
    let grid = [slices as u32, n as u32, 1];
    device.launch("pg_narrow", Launch { grid, threads: SCAN_THREADS, shared_bytes: 0 }, &args)?;
    if asks.iter().any(|ask| ask.top > 1) {
        device.launch("pg_narrow_top", Launch::linear(n as u32, TOP_THREADS), &args)?;
    }
    device.synchronize()?;
    for ((ask, device_ask), row) in asks.iter().zip(&layout.asks).zip(out) {
        read_answer(ask, &answers.words()[device_ask.out as usize..], row);
    }
    Ok(())
}

/// `NarrowAnswer` of `kernels/narrow.cuh`, then the candidates, then the logits set apart.
fn read_answer(ask: &NarrowAsk<'_>, words: &[u32], row: &mut NarrowRow) {
    let (head, rest) = words.split_at(ANSWER_WORDS);
    let n_top = (head[0] as usize).min(ask.top);
    row.open = head[1] as usize;
    row.nan = head[2] as usize;
    row.mass = f64::from_bits(u64::from(head[4]) | u64::from(head[5]) << 32);
    let (top, rest) = rest.split_at(2 * ask.top);
    row.top.clear();
    row.top.extend(top.chunks_exact(2).take(n_top).map(|pair| (pair[0], f32::from_bits(pair[1]))));
    row.apart.clear();
    row.apart.extend(rest.iter().take(ask.apart.len()).map(|bits| f32::from_bits(*bits)));
}
