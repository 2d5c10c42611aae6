//! `pagella pull`: fetches a model of the Hugging Face hub into the local cache.

use anyhow::Result;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use pagella::hub::{HubCache, HubId, PullOptions, PullProgress, Pulled, pull};
use serde_json::json;

use crate::flags::OutputFlags;
use crate::{output, printable};

/// Fetch a model from the Hugging Face hub
///
/// Fetches configuration, tokenizer and safetensors files into the cache that other Hugging Face
/// tools use. An interrupted download resumes when the command is run again. Gated models need
/// HF_TOKEN.
#[derive(Args)]
pub struct PullArgs {
    /// org/name, or org/name@revision (EXL2 repositories often have a branch per bit rate)
    #[arg(value_name = "ORG/NAME[@REVISION]")]
    id: HubId,
    /// Address of the hub [default: https://huggingface.co]
    #[arg(long, value_name = "URL", env = "HF_ENDPOINT")]
    endpoint: Option<String>,
    /// Give up after this many attempts in a row without a new byte
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    attempts: u16,
    #[command(flatten)]
    output: OutputFlags,
}

/// Runs the command.
pub fn run(args: &PullArgs) -> Result<()> {
    let cache = HubCache::from_env()?;
    let mut options =
        PullOptions { attempts: usize::from(args.attempts), ..PullOptions::from_env() };
    if let Some(endpoint) = &args.endpoint {
        options.endpoint = endpoint.clone();
    }
    let bar = if args.output.json { ProgressBar::hidden() } else { ProgressBar::no_length() };
    let style = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    bar.set_style(ProgressStyle::with_template(style)?);
    let mut shown = None;
    let pulled = pull(&args.id, &cache, &options, &mut |progress: &PullProgress<'_>| {
        if shown != Some(progress.file_idx) {
            shown = Some(progress.file_idx);
            bar.reset();
            bar.set_length(progress.bytes_total);
            let PullProgress { file, file_idx, n_files, .. } = progress;
            bar.set_message(format!("[{}/{n_files}] {}", file_idx + 1, printable::word(file)));
        }
        bar.set_position(progress.bytes_done);
    });
    bar.finish_and_clear();
    report(args, &pulled?)
}

fn report(args: &PullArgs, pulled: &Pulled) -> Result<()> {
    if args.output.json {
        return output::print_json(&json!({
            "id": args.id.to_string(),
            "commit": pulled.commit,
            "dir": pulled.dir,
            "files": pulled.files,
            "bytes_total": pulled.bytes_total,
            "bytes_fetched": pulled.bytes_fetched,
        }));
    }
    let text = format!(
        "{} is in {}\n{} in {} files, {} fetched now\ntry: pagella chat {}\n",
        args.id,
        pulled.dir.display(),
        output::bytes(pulled.bytes_total),
        pulled.files.len(),
        output::bytes(pulled.bytes_fetched),
        args.id,
    );
    Ok(output::report(&text)?)
}
