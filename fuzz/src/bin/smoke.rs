//! Runs every fuzz target on its seeds and on mutations of them, without libFuzzer.
//!
//! Usage: `smoke [--seconds N] [--seed S] [TARGET]...`. Each target runs in a child process, which
//! leaves the input it is working on in a file; so a panic, a stack overflow, a hang and an
//! allocation that kills the process all leave their input behind. Exit code 1 if any did.

use std::fs::File;
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

use pagella_fuzz::mutate::{Rng, mutate};
use pagella_fuzz::{TARGETS, Target};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A single input that takes longer than this hangs.
const HANG: Duration = Duration::from_secs(20);

struct Options {
    seconds: u64,
    seed: u64,
    /// Where the child leaves its current input; also what makes a process a child.
    current: Option<PathBuf>,
    targets: Vec<&'static Target>,
}

fn main() -> ExitCode {
    let outcome = parse().and_then(|options| match &options.current {
        Some(current) => child(&options, current),
        None => parent(&options),
    });
    match outcome {
        Ok(code) => code,
        Err(err) => {
            eprintln!("error: {err}");
            ExitCode::from(2)
        }
    }
}

fn parse() -> Result<Options> {
    let mut options = Options { seconds: 5, seed: 1, current: None, targets: Vec::new() };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("`{arg}` needs a value"));
        match arg.as_str() {
            "--seconds" => options.seconds = value()?.parse()?,
            "--seed" => options.seed = value()?.parse()?,
            "--current" => options.current = Some(value()?.into()),
            name => {
                let target = TARGETS.iter().find(|target| target.name == name);
                options.targets.push(target.ok_or(format!("no target is called `{name}`"))?);
            }
        }
    }
    if options.targets.is_empty() {
        options.targets = TARGETS.iter().collect();
    }
    Ok(options)
}

/// One child per target, one after the other.
fn parent(options: &Options) -> Result<ExitCode> {
    let mut n_findings = 0;
    for target in &options.targets {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("artifacts").join(target.name);
        std::fs::create_dir_all(&folder)?;
        let current = folder.join(format!("current-{}", std::process::id()));
        let child = Command::new(std::env::current_exe()?)
            .args(["--seconds", &options.seconds.to_string()])
            .args(["--seed", &options.seed.to_string(), "--current"])
            .arg(&current)
            .arg(target.name)
            .spawn()?;
        match wait(child, &current)? {
            None => std::fs::remove_file(&current)?,
            Some(reason) => {
                n_findings += 1;
                let input = folder.join(format!("smoke-seed{}", options.seed));
                std::fs::rename(&current, &input)?;
                println!("FOUND: {}: {reason}; the input is {}", target.name, input.display());
            }
        }
    }
    Ok(if n_findings == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Waits for the child; says how it failed, if it did. It hangs when its current input stays the
/// same for too long.
fn wait(mut child: Child, current: &Path) -> Result<Option<String>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((!status.success()).then(|| format!("ended with {status}")));
        }
        let age = current.metadata().and_then(|m| m.modified()).ok().and_then(|m| m.elapsed().ok());
        if age.is_some_and(|age| age > HANG) {
            child.kill()?;
            child.wait()?;
            return Ok(Some(format!("one input took more than {} s", HANG.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The seeds as they are, then mutations until time is up.
fn child(options: &Options, current: &Path) -> Result<ExitCode> {
    for target in &options.targets {
        let seeds = (target.seeds)();
        let mut rng = Rng(options.seed);
        let mut file = File::create(current)?;
        let mut n_runs = 0_u64;
        let started = Instant::now();
        while n_runs < seeds.len() as u64 || started.elapsed().as_secs() < options.seconds {
            let seed = seeds.get(n_runs as usize).cloned();
            let input = seed.unwrap_or_else(|| mutate(&mut rng, &seeds));
            file.rewind()?;
            file.set_len(0)?;
            file.write_all(&input)?;
            (target.run)(&input);
            n_runs += 1;
        }
        let seconds = started.elapsed().as_secs_f64();
        println!("  {:<18} {n_runs:>9} inputs in {seconds:.1} s", target.name);
    }
    Ok(ExitCode::SUCCESS)
}
