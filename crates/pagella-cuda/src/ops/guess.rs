//! Guesses on the device: the likeliest id after every row, which the next step takes as its own.
//!
//! Nothing here waits for the device but reading. The kernels are launched beside recorded steps,
//! never within.

use pagella_backend::{BackendError, GUESS_LEVELS_MAX, Guess, GuessLevels};

use crate::device::{Device, KernelArgs, Launch};
use crate::memory::DeviceBuffer;
use crate::step::CudaStep;
use crate::tensor::Tensor;

/// Threads of the kernels: `kernels/guess.cuh`.
const GUESS_THREADS: u32 = 1024;
const FEED_THREADS: u32 = 128;
/// Words of a guess: its id, then the bits of its probability.
const GUESS_WORDS: usize = 2;

/// `GuessArgs` of `kernels/guess.cuh`.
#[repr(C)]
#[derive(Clone, Copy)]
struct GuessArgs {
    logits: u64,
    last_rows: u64,
    out: u64,
    vocab: u32,
    stride: u32,
}

// SAFETY: field for field the struct of the same name in `kernels/guess.cuh`.
unsafe impl KernelArgs for GuessArgs {}

/// `FeedArgs` of `kernels/guess.cuh`.
#[repr(C)]
#[derive(Clone, Copy)]
struct FeedArgs {
    guesses: u64,
    ids: u64,
    rows: u32,
    pad: u32,
}

// SAFETY: field for field the struct of the same name in `kernels/guess.cuh`.
unsafe impl KernelArgs for FeedArgs {}

/// Guesses of steps, in device memory.
#[derive(Default)]
pub struct CudaGuesses {
    levels: GuessLevels,
    /// The newest level's ids are below.
    vocab: usize,
    /// `[levels, rows]`, room for all levels there may be.
    buffer: Option<DeviceBuffer>,
}

impl CudaGuesses {
    /// Enqueues one more level.
    pub(crate) fn push(
        &mut self,
        device: &Device,
        step: &CudaStep,
        logits: &Tensor,
        vocab: usize,
    ) -> Result<(), BackendError> {
        let levels = self.levels.and_one(&step.plan, (logits.rows, logits.width), vocab)?;
        let level = self.room(device, levels.rows())? + level_bytes(self.levels);
        let args = GuessArgs {
            logits: logits.ptr(),
            last_rows: step.pointers.last_rows,
            out: level,
            vocab: vocab as u32,
            stride: logits.width as u32,
        };
        device.launch("pg_guess", Launch::linear(levels.rows() as u32, GUESS_THREADS), &args)?;
        (self.levels, self.vocab) = (levels, vocab);
        Ok(())
    }

    /// Address of the room for levels of so many rows; only the first level makes it.
    fn room(&mut self, device: &Device, rows: usize) -> Result<u64, BackendError> {
        let bytes = 4 * GUESS_WORDS * GUESS_LEVELS_MAX * rows;
        if let Some(buffer) = self.buffer.as_ref().filter(|buffer| buffer.bytes() >= bytes) {
            return Ok(buffer.ptr());
        }
        self.buffer = None;
        let buffer = device.alloc(bytes.next_power_of_two(), "guesses")?;
        Ok(self.buffer.insert(buffer).ptr())
    }

    /// Enqueues the copy of the newest ids to the list of a step.
    pub(crate) fn feed(&self, device: &Device, step: &mut CudaStep) -> Result<(), BackendError> {
        self.levels.check_feed(&step.plan)?;
        let (what, rows) = ("guesses to feed", self.levels.rows());
        let none = BackendError::Size { what, expected: rows, found: 0 };
        let end = self.buffer.as_ref().ok_or(none)?.ptr() + level_bytes(self.levels);
        let args = FeedArgs {
            guesses: end - (4 * GUESS_WORDS * rows) as u64,
            ids: step.pointers.ids,
            rows: rows as u32,
            pad: 0,
        };
        let blocks = args.rows.div_ceil(FEED_THREADS);
        device.launch("pg_feed", Launch::linear(blocks, FEED_THREADS), &args)?;
        // The host does not know them; the highest that there may be stands for each, so that a
        // table which is too short for it is refused.
        let highest = self.vocab.saturating_sub(1) as u32;
        step.plan.fill_ids(&vec![highest; rows])
    }

    /// Waits and gives all guesses.
    pub(crate) fn take(
        &mut self,
        device: &Device,
        out: &mut Vec<Guess>,
    ) -> Result<(), BackendError> {
        out.clear();
        let mut words = vec![0u32; GUESS_WORDS * self.levels.guesses()];
        if let Some(buffer) = &self.buffer {
            device.read(buffer, 0, &mut words)?;
        }
        let guess = |pair: &[u32]| Guess { id: pair[0], probability: f32::from_bits(pair[1]) };
        out.extend(words.chunks_exact(GUESS_WORDS).map(guess));
        self.levels = GuessLevels::default();
        Ok(())
    }
}

/// Bytes of so many levels.
fn level_bytes(levels: GuessLevels) -> u64 {
    (4 * GUESS_WORDS * levels.guesses()) as u64
}
