//! Defaults that help and guides state are those that hold. Tests only.

use clap::{Command, CommandFactory};
use pagella::{DEFAULT_CACHE_TOKENS, Engine, Place};
use pagella_cuda::CudaOptions;
use pagella_engine::GeneratorOptions;

use crate::command::Cli;
use crate::commands::MAX_NEW_TOKENS;

const RUNNING: &str = include_str!("../../../../docs/running.md");
const CHAT: &str = include_str!("../../../../docs/chat.md");
const BATCHING: &str = include_str!("../../../../docs/batching.md");

/// What the help of a flag says, in one line.
fn help(command: &Command, name: &str, flag: &str) -> String {
    let command = command.find_subcommand(name).unwrap();
    let arg = command.get_arguments().find(|arg| arg.get_long() == Some(flag));
    arg.unwrap_or_else(|| panic!("{name} has no --{flag}")).get_help().unwrap().to_string()
}

/// The row of a guide's table that begins with a flag.
fn row<'g>(guide: &'g str, flag: &str) -> &'g str {
    let begins = |line: &&str| line.starts_with('|') && line.contains(&format!("`--{flag}"));
    let begins_short =
        |line: &&str| line.starts_with("| `-") && line.contains(&format!("--{flag}"));
    guide.lines().find(|line| begins(line) || begins_short(line)).unwrap()
}

/// Defaults as text, from where they are used.
fn real() -> Vec<(&'static str, &'static str, String)> {
    let generator = GeneratorOptions::default();
    let builder = Engine::builder("demo");
    let steps = |place| builder.load_options(place).step_tokens_max;
    let steps = format!("[default: {}, on CUDA {}]", steps(Place::Cpu), steps(Place::Cuda(0)));
    let (run, chat) = MAX_NEW_TOKENS;
    let new_tokens = format!("[default: {run} for run, {chat} for chat]");
    let cache = format!("[default: {DEFAULT_CACHE_TOKENS}, or --length if that is more]");
    let unpacked = format!("[default: {}]", CudaOptions::default().dequantised_max >> 20);
    vec![
        ("run", "batch-max", format!("[default: {}]", generator.batch_max)),
        ("serve", "batch-max", format!("[default: {}]", generator.batch_max)),
        ("run", "queue-max", format!("[default: {}]", generator.queue_max)),
        ("run", "cache-tokens", cache.clone()),
        ("inspect", "cache-tokens", cache),
        ("run", "step-tokens", steps.clone()),
        ("serve", "step-tokens", steps),
        ("run", "max-dq-size", unpacked),
        ("run", "max-new-tokens", new_tokens.clone()),
        ("chat", "max-new-tokens", new_tokens),
    ]
}

#[test]
fn help_states_the_defaults_that_hold() {
    let command = Cli::command();
    for (name, flag, default) in real() {
        let said = help(&command, name, flag).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(&default), "{name} --{flag}: {said}, not {default}");
    }
}

#[test]
fn the_guides_state_the_defaults_that_hold() {
    let generator = GeneratorOptions::default();
    let (run, chat) = MAX_NEW_TOKENS;
    let unpacked = CudaOptions::default().dequantised_max >> 20;
    for (guide, flag, number) in [
        (RUNNING, "max-new-tokens", run),
        (RUNNING, "cache-tokens", DEFAULT_CACHE_TOKENS),
        (RUNNING, "max-dq-size", unpacked),
        (BATCHING, "batch-max", generator.batch_max),
    ] {
        let row = row(guide, flag);
        assert!(row.contains(&format!("{number}")), "--{flag}: {row}");
    }
    assert!(CHAT.contains(&format!("at most {chat} tokens")));
}
