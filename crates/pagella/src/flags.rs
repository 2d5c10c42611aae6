//! Every flag that more than one command has, and the longer lists of `run`, once.

mod adapters;
mod batch;
mod config;
mod constraint;
#[cfg(test)]
mod defaults;
mod draft;
mod json_settings;
mod model;
mod more_sampling;
mod sampling;
mod settings;
mod split;
mod tokens;

pub use adapters::AdapterFlags;
pub use batch::BatchFlags;
pub use config::ConfigFlags;
pub use constraint::ConstraintFlags;
pub use draft::{DraftFlags, depth as draft_depth};
pub use json_settings::with_json_settings;
pub use model::ModelFlags;
pub use sampling::SamplingFlags;
pub use split::SplitFlags;
pub use tokens::{TokenFlags, add_bos};

use clap::Args;

/// How results are printed.
#[derive(Args, Clone, Copy, Debug)]
pub struct OutputFlags {
    /// Print JSON for programs
    #[arg(long)]
    pub json: bool,
}

/// A number of tokens: at least one, at most what positions can count.
fn token_count(text: &str) -> Result<usize, String> {
    match text.parse::<u32>() {
        Ok(tokens) if tokens > 0 => Ok(tokens as usize),
        _ => Err("give a number of tokens, at least 1".to_owned()),
    }
}
