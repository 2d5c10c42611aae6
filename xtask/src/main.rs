//! Project automation: `cargo xtask <command>`.
//!
//! Logic that other projects keep in shell scripts lives here, so that it is checked by the compiler,
//! runs wherever Rust runs, and has tests of its own. `cargo xtask help` lists the commands.

mod console;
mod cuda;
mod dist;
mod fuzz;
mod node;
mod python;
mod test;
mod tidy;
mod tools;
mod workspace;

// Parts of a build script, which cannot have tests of its own: they run here.
#[cfg(test)]
#[path = "../../crates/pagella-cuda/build/compile.rs"]
mod compile;
#[cfg(test)]
#[allow(dead_code, reason = "the build script's; only its tests run here")]
#[path = "../../crates/pagella-server/build/join.rs"]
mod join;
#[path = "../../crates/pagella-cuda/build/nvcc.rs"]
mod nvcc;
#[cfg(test)]
#[path = "../../crates/pagella-cuda/build/target.rs"]
mod target;

use std::process::ExitCode;

use anyhow::{Result, bail};

use workspace::Workspace;

/// What a command concluded; errors of the automation itself travel as `Err`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Good,
    Bad,
}

/// One `cargo xtask` command.
struct Command {
    name: &'static str,
    usage: &'static str,
    about: &'static str,
    run: fn(&Workspace, &[String]) -> Result<Verdict>,
}

/// Every command, in the order `help` shows them.
const COMMANDS: &[Command] = &[
    Command {
        name: "test",
        usage: "test [--only STAGE]... [--skip STAGE]... [--list]",
        about: "everything a change must pass; what continuous integration runs",
        run: test::command,
    },
    Command {
        name: "tidy",
        usage: "tidy [--list]",
        about: "the style rules that a program can check",
        run: tidy::command,
    },
    Command {
        name: "fuzz",
        usage: "fuzz [--seconds N] [TARGET]...",
        about: "mutate inputs against the fuzz targets, N seconds each (default 60)",
        run: fuzz::command,
    },
    Command {
        name: "cuda-toolchain",
        usage: "cuda-toolchain",
        about: "fetch the CUDA compiler into target/cuda-toolchain; prints its path",
        run: cuda::toolchain::command,
    },
    Command {
        name: "gpu-bundle",
        usage: "gpu-bundle DIR [PROGRAM]",
        about: "programs and gpu.sh, for a machine with a GPU and no Rust",
        run: cuda::bundle::command,
    },
    Command {
        name: "dist",
        usage: "dist DIR [PROGRAM]",
        about: "program, demo model, manual pages, completions and unit, below a prefix",
        run: dist::command,
    },
    Command { name: "help", usage: "help", about: "this list", run: help },
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&args) {
        Ok(Verdict::Good) => ExitCode::SUCCESS,
        Ok(Verdict::Bad) => ExitCode::from(1),
        Err(err) => {
            eprintln!("error: {err:#}");
            ExitCode::from(2)
        }
    }
}

fn dispatch(args: &[String]) -> Result<Verdict> {
    let (name, rest) = match args.split_first() {
        None => ("help", &[][..]),
        Some((name, rest)) => (name.as_str(), rest),
    };
    let name = if matches!(name, "-h" | "--help") { "help" } else { name };
    let Some(command) = COMMANDS.iter().find(|c| c.name == name) else {
        bail!("unknown command `{name}`; `cargo xtask help` lists them");
    };
    (command.run)(&Workspace::locate()?, rest)
}

fn help(_: &Workspace, _: &[String]) -> Result<Verdict> {
    println!("Usage: cargo xtask <command>\n");
    for command in COMMANDS {
        println!("  {:<52} {}", command.usage, command.about);
    }
    println!("\nStages of `test` (see also `cargo xtask test --list`):");
    test::print_stages();
    Ok(Verdict::Good)
}
