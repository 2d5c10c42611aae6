//! The same work by llama.cpp: its `llama-bench` runs in turns with this program.
//!
//! Speeds of two runs on one machine differ by what else goes on there, so each repetition measures
//! both, one right after the other, and what counts is the median of the ratios.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use pagella::{KvFormat, Place, Session};
use serde_json::{Value, json};

use super::measure::{Rates, Workload};
use super::{BenchArgs, Math, load};
use crate::machine::Machine;
use crate::output;
use crate::usage::Usage;

/// Another program to measure.
#[derive(Args)]
#[command(next_help_heading = "Comparing")]
pub struct AgainstFlags {
    /// Measure prompt and writing in turns with llama.cpp: the path of its llama-bench
    #[arg(long, value_name = "LLAMA_BENCH", requires = "gguf", conflicts_with_all = ["draft", "adapters", "write", "batch"])]
    against: Option<PathBuf>,
    /// The model file that it measures
    #[arg(long, value_name = "FILE", requires = "against")]
    gguf: Option<PathBuf>,
}

impl AgainstFlags {
    /// The program and its model, if they are to be measured.
    pub fn wanted(&self) -> Option<(&Path, &Path)> {
        self.against.as_deref().zip(self.gguf.as_deref())
    }
}

/// Compares.
pub fn run(args: &BenchArgs, program: &Path, gguf: &Path) -> Result<()> {
    let place = args.model_flags.builder("", Math::Wide).place()?;
    if args.model_flags.cache_or(KvFormat::F16) != KvFormat::F16 {
        return Err(Usage::error("--against compares 16-bit caches: leave out --cache"));
    }
    let threads = args.model_flags.threads.map_or(Machine::look().cores, usize::from);
    let rival = Rival { program, gguf, threads, on_cpu: place == Place::Cpu };
    rival.check()?;
    let (forward, facts, _) = load(args)?;
    let workload = Workload {
        prompt_tokens: args.prompt_tokens as usize,
        new_tokens: args.new_tokens as usize,
        past_tokens: args.context as usize,
        repetitions: 1,
    };
    let mut session = Session::new(forward);
    // Everything that is made on first use is there afterwards; the other program warms up itself.
    workload.measure(&mut session)?;
    let (mut prompts, mut writing) = (Pairs::default(), Pairs::default());
    let mut said = None;
    for _ in 0..args.repetitions {
        prompts.ours.push(workload.prefill_seconds(&mut session)?);
        let theirs = rival.measure(["-p", &args.prompt_tokens.to_string(), "-n", "0"], 0)?;
        prompts.theirs.push(theirs.seconds);
        writing.ours.push(workload.decode_seconds(&mut session)?);
        let theirs =
            rival.measure(["-p", "0", "-n", &args.new_tokens.to_string()], args.context)?;
        writing.theirs.push(theirs.seconds);
        said = Some(theirs);
    }
    let Some(said) = said else { bail!("there was no repetition to measure") };
    let ours =
        format!("{}, {} read per token", facts.device, output::bytes(facts.memory.token_bytes));
    let theirs = format!("{}, {} of weights", said.model, output::bytes(said.model_bytes));
    let (prompt, writing) =
        (prompts.compare(args.prompt_tokens as usize), writing.compare(args.new_tokens as usize));
    if args.output.json {
        return output::print_json(&json!({
            "device": facts.device,
            "threads": threads,
            "weight_bytes_per_token": facts.memory.token_bytes,
            "prompt_tokens": args.prompt_tokens,
            "new_tokens": args.new_tokens,
            "context": args.context,
            "repetitions": args.repetitions,
            "against": {
                "program": program,
                "model": said.model,
                "model_bytes": said.model_bytes,
                "build": said.build,
            },
            "prefill_tokens_per_s": prompt.json(),
            "decode_tokens_per_s": writing.json(),
        }));
    }
    let context = args.context;
    let lines = [
        ("pagella", ours),
        ("llama.cpp", format!("{theirs}, build {}", said.build)),
        ("threads", threads.to_string()),
        ("prompt", format!("{}, {} tokens", prompt.text(), args.prompt_tokens)),
        ("writing", format!("{}, {} tokens after {context}", writing.text(), args.new_tokens)),
    ];
    Ok(output::report(&output::facts(&lines))?)
}

/// Seconds of both, repetition by repetition.
#[derive(Default)]
struct Pairs {
    ours: Vec<f64>,
    theirs: Vec<f64>,
}

/// Medians of both, in tokens per second.
struct Compared {
    ours: f64,
    theirs: f64,
    /// Median of ours over theirs.
    ratio: f64,
}

impl Pairs {
    fn compare(&self, tokens: usize) -> Compared {
        let ratios: Vec<f64> = self
            .theirs
            .iter()
            .zip(&self.ours)
            .map(|(theirs, ours)| ours / theirs.max(1e-9))
            .collect();
        Compared {
            ours: Rates::of(tokens, &self.ours).median,
            theirs: Rates::of(tokens, &self.theirs).median,
            // A rate of one token in so many seconds is the ratio itself.
            ratio: Rates::of(1, &ratios).median,
        }
    }
}

impl Compared {
    fn json(&self) -> Value {
        json!({ "median": self.ours, "against_median": self.theirs, "ratio_median": self.ratio })
    }

    fn text(&self) -> String {
        let Compared { ours, theirs, ratio } = self;
        format!("{ours:.1} tok/s, llama.cpp {theirs:.1}, ratio {ratio:.2}")
    }
}

/// How llama-bench is called.
struct Rival<'a> {
    program: &'a Path,
    gguf: &'a Path,
    threads: usize,
    on_cpu: bool,
}

/// What llama-bench said of one test.
#[derive(Debug, PartialEq)]
struct Said {
    seconds: f64,
    model: String,
    model_bytes: u64,
    build: String,
}

impl Rival<'_> {
    fn check(&self) -> Result<()> {
        // A name without a folder is looked for in PATH.
        let named = self.program.components().count() == 1;
        if !named && !self.program.is_file() {
            let program = self.program.display();
            return Err(Usage::error(format!(
                "there is no program {program}: give --against the path of llama-bench, built from llama.cpp"
            )));
        }
        if !self.gguf.is_file() {
            let gguf = self.gguf.display();
            return Err(Usage::error(format!(
                "there is no file {gguf}: give --gguf a model in GGUF"
            )));
        }
        Ok(())
    }

    /// One test, after `depth` tokens.
    fn measure(&self, test: [&str; 4], depth: u32) -> Result<Said> {
        let mut command = Command::new(self.program);
        command.arg("-m").arg(self.gguf).args(test).args(["-r", "1", "-o", "json"]);
        command.args(["-t", &self.threads.to_string(), "-d", &depth.to_string()]);
        if self.on_cpu {
            command.args(["-ngl", "0"]);
        }
        let program = self.program.display();
        let done = command.output().with_context(|| format!("{program} cannot be started"))?;
        let errors = String::from_utf8_lossy(&done.stderr);
        let last =
            errors.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no message");
        ensure!(done.status.success(), "{program} failed ({}): {last}", done.status);
        said(&String::from_utf8_lossy(&done.stdout))
            .with_context(|| format!("{program} gave no result that llama-bench gives: {last}"))
    }
}

/// Reads the one result in the output of llama-bench.
fn said(text: &str) -> Option<Said> {
    let results: Value = serde_json::from_str(text).ok()?;
    let [result] = results.as_array()?.as_slice() else { return None };
    let word =
        |name: &str| result.get(name).and_then(Value::as_str).unwrap_or("unknown").to_owned();
    Some(Said {
        seconds: result.get("avg_ns")?.as_f64()? / 1e9,
        model: word("model_type"),
        model_bytes: result.get("model_size")?.as_u64()?,
        build: word("build_commit"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What it prints for `-p 16 -n 0`, without the lines that are not read.
    const OUTPUT: &str = r#"[
      {
        "build_commit": "b21e4de",
        "model_type": "llama 1B Q4_K - Medium",
        "model_size": 595992576,
        "n_threads": 1,
        "avg_ns": 1217024794,
        "samples_ts": [ 13.1468 ]
      }
    ]"#;

    #[test]
    fn the_result_of_one_test_is_read() {
        let model = "llama 1B Q4_K - Medium".to_owned();
        let build = "b21e4de".to_owned();
        let expected = Said { seconds: 1.217_024_794, model, model_bytes: 595_992_576, build };
        assert_eq!(said(OUTPUT), Some(expected));
        for other in ["", "[]", "{}", "[{}]", &OUTPUT.replace("avg_ns", "ns")] {
            assert_eq!(said(other), None, "{other}");
        }
    }

    #[test]
    fn the_ratio_is_the_median_of_the_pairs() {
        let pairs = Pairs { ours: vec![1.0, 4.0, 2.0], theirs: vec![2.0, 4.0, 6.0] };
        let compared = pairs.compare(8);
        assert_eq!((compared.ours, compared.theirs, compared.ratio), (4.0, 2.0, 2.0));
    }

    fn rival<'a>(program: &'a str, gguf: &'a str) -> Rival<'a> {
        Rival { program: program.as_ref(), gguf: gguf.as_ref(), threads: 1, on_cpu: true }
    }

    #[test]
    fn what_is_missing_is_named() {
        let here = file!();
        let program = rival("./no-such/llama-bench", here).check().unwrap_err().to_string();
        assert!(program.contains("llama-bench") && program.contains("--against"), "{program}");
        let gguf = rival("llama-bench", "no-such.gguf").check().unwrap_err().to_string();
        assert!(gguf.contains("no-such.gguf") && gguf.contains("--gguf"), "{gguf}");
    }

    #[cfg(unix)]
    #[test]
    fn programs_that_fail_or_say_something_else_are_errors() {
        let test = ["-p", "1", "-n", "0"];
        let error = |program| format!("{:#}", rival(program, "x").measure(test, 0).unwrap_err());
        assert!(error("false").contains("false failed"), "{}", error("false"));
        assert!(error("true").contains("no result"), "{}", error("true"));
        assert!(error("./no-such").contains("cannot be started"), "{}", error("./no-such"));
    }
}
