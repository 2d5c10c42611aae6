//! The settings of a generator.

use crate::draft::DraftOptions;

/// How many pages a job takes when it starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reserve {
    /// Those of its prompt; others as it grows. When none are left, the youngest job of
    /// the lowest priority gives its pages up and goes on later.
    #[default]
    Grow,
    /// All it can ever need, so that a started job never waits.
    Full,
}

/// How a generator schedules. The defaults suit a server and a single user alike.
#[derive(Clone, Debug, PartialEq)]
pub struct GeneratorOptions {
    /// Most sequences in one step.
    pub batch_max: usize,
    /// Most tokens in one step; what the model's buffers hold unless stated.
    pub step_tokens: Option<usize>,
    /// Most prompt tokens of one sequence in one step; no limit of its own unless stated.
    pub chunk_tokens: Option<usize>,
    /// Most prompt tokens in a step in which someone writes: lower for smoother streams, higher for
    /// earlier first tokens. No limit of its own unless stated.
    pub prefill_tokens_while_decoding: Option<usize>,
    /// Longest sequence; what model and cache allow unless stated.
    pub context: Option<usize>,
    /// When pages are taken.
    pub reserve: Reserve,
    /// Fewest common tokens for which part of a page is copied instead of computed.
    pub copy_tokens_min: usize,
    /// Most jobs that wait.
    pub queue_max: usize,
    /// Order pages by sequence when idle. Nothing depends on it.
    pub defragment: bool,
    /// Threads that sample and compute masks; one per core, at most 16, unless stated.
    pub host_threads: Option<usize>,
    /// Fewest logits of a step, over all rows, for which sampling is spread over threads.
    pub parallel_logits_min: usize,
    /// Whether ids are guessed and checked several at a time.
    pub draft: DraftOptions,
    /// Bytes that all adapters together may hold.
    pub adapter_bytes_max: u64,
}

impl GeneratorOptions {
    /// Rows of logits that a step may have however small the batch: as many as the largest step that a
    /// device records has tokens.
    const LOGIT_ROWS_LEAST: usize = 128;

    /// Most rows of logits of one step, each as long as the vocabulary: one of every sequence, those of
    /// guesses, and those that score a prompt.
    pub fn logit_rows_max(&self) -> usize {
        self.batch_max.max(Self::LOGIT_ROWS_LEAST)
    }
}

impl Default for GeneratorOptions {
    fn default() -> Self {
        GeneratorOptions {
            batch_max: 256,
            step_tokens: None,
            chunk_tokens: None,
            prefill_tokens_while_decoding: None,
            context: None,
            reserve: Reserve::Grow,
            copy_tokens_min: 16,
            queue_max: 4096,
            defragment: false,
            host_threads: None,
            // Some 50 µs of one thread.
            parallel_logits_min: 1 << 18,
            draft: DraftOptions::default(),
            adapter_bytes_max: 8 << 30,
        }
    }
}
