//! How prompts share a step and the cache.

use clap::{Args, ValueEnum};
use pagella::{EngineBuilder, Reserve};

use super::token_count;

/// How prompts share a step and the cache. None of it changes an answer.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Batching")]
pub struct BatchFlags {
    /// Most sequences computed in one step [default: 256]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub batch_max: Option<u16>,
    /// Most jobs that may wait [default: 4096]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub queue_max: Option<u32>,
    /// Most prompt tokens of one sequence in one step [default: --step-tokens]
    #[arg(long, value_name = "N", value_parser = token_count)]
    pub chunk: Option<usize>,
    /// Most prompt tokens in a step in which others write [default: --step-tokens]
    #[arg(long, value_name = "N", value_parser = token_count)]
    pub prefill_while_decoding: Option<usize>,
    /// Pages a job takes when it starts: those it needs now, or all it can ever need
    #[arg(long, value_enum, default_value = "grow")]
    pub reserve: Pages,
    /// Put the pages of the cache in order when idle
    #[arg(long)]
    pub defragment: bool,
}

/// When pages are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pages {
    Grow,
    Full,
}

impl BatchFlags {
    /// A builder with these choices.
    pub fn apply(&self, mut builder: EngineBuilder) -> EngineBuilder {
        builder = builder.reserve(match self.reserve {
            Pages::Grow => Reserve::Grow,
            Pages::Full => Reserve::Full,
        });
        if let Some(rows) = self.batch_max {
            builder = builder.batch_max(usize::from(rows));
        }
        if let Some(jobs) = self.queue_max {
            builder = builder.queue_max(jobs as usize);
        }
        if let Some(tokens) = self.chunk {
            builder = builder.chunk_tokens(tokens);
        }
        if let Some(tokens) = self.prefill_while_decoding {
            builder = builder.prefill_tokens_while_decoding(tokens);
        }
        if self.defragment { builder.defragment() } else { builder }
    }
}
