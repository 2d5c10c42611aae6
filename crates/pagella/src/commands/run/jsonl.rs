//! `pagella run --batch`: prompts from a file, one JSON object a line, each with settings of its own.
//!
//! Every line is read and checked before the model is loaded; a wrong one ends the program and names
//! its line. What turns out later, such as a prompt that is too long, becomes that line's result, and
//! the others go on.

mod line;
mod results;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use pagella::{Complete, ConstraintSpec, Engine, Record, StreamGranularity};
use serde_json::{Value, json};

use super::{RunArgs, answer, batch};
use crate::usage::Usage;
use line::Line;
use results::{Key, Results};

/// Longest line, in bytes.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// Prompts from a file.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Prompts from a file")]
pub struct JsonlFlags {
    /// Prompts as JSON objects, one a line, with settings beside them; - is standard input
    #[arg(
        long = "batch",
        id = "jsonl",
        value_name = "FILE",
        conflicts_with_all = ["prompt", "prompts", "show_pages"]
    )]
    file: Option<PathBuf>,
    /// Where the answers go, one JSON object a line [default: standard output]
    #[arg(long = "output", id = "results", value_name = "FILE", requires = "jsonl")]
    output: Option<PathBuf>,
    /// Write answers in the order of their prompts instead of as they are finished
    #[arg(long, requires = "jsonl")]
    in_order: bool,
    /// Keep the answers that --output holds already, and ask only what is missing
    #[arg(long, requires = "results")]
    resume: bool,
}

impl JsonlFlags {
    /// Flags that need `--batch`. clap does not ask for what a prompt on the command line excludes.
    pub fn check(&self) -> Result<()> {
        let asks = self.output.is_some() || self.in_order || self.resume;
        if asks && self.file.is_none() {
            return Err(Usage::error("--output, --in-order and --resume belong to --batch FILE"));
        }
        Ok(())
    }
}

/// A batch that was read and checked.
pub struct Jsonl {
    lines: Vec<Line>,
}

/// The batch that the command line names, if it does.
pub fn read(args: &RunArgs) -> Result<Option<Jsonl>> {
    let Some(path) = &args.jsonl.file else { return Ok(None) };
    let shown = path.display();
    let lines = match path == Path::new("-") {
        true => read_lines(std::io::stdin().lock()),
        false => match File::open(path) {
            Ok(file) => read_lines(BufReader::new(file)),
            Err(error) => anyhow::bail!("cannot read {shown}: {error}"),
        },
    };
    let lines = lines.map_err(|problem| Usage::error(format!("{shown}: {problem}")))?;
    Ok(Some(Jsonl { lines }))
}

/// Every line that is not empty.
fn read_lines(mut input: impl BufRead) -> Result<Vec<Line>, String> {
    let mut lines = Vec::new();
    for number in 1.. {
        let mut text = Vec::new();
        let read = (&mut input).take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut text);
        let bytes = read.map_err(|error| error.to_string())?;
        if bytes == 0 {
            break;
        }
        if bytes as u64 > LINE_BYTES_MAX {
            return Err(format!("line {number} has more than {LINE_BYTES_MAX} bytes: split it"));
        }
        // Some editors begin files with it.
        let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&text);
        if text.trim_ascii().is_empty() {
            continue;
        }
        let line = Line::read(number, text.trim_ascii());
        lines.push(line.map_err(|problem| format!("line {number}: {problem}"))?);
    }
    Ok(lines)
}

impl Jsonl {
    /// Asks everything as one batch. Fails at the end if some of it failed.
    pub fn run(
        self,
        args: &RunArgs,
        engine: &Engine,
        constraint: Option<&ConstraintSpec>,
    ) -> Result<()> {
        let (file, done) = self.begin(args)?;
        let asked: Vec<usize> = (0..self.lines.len()).filter(|idx| !done.contains(idx)).collect();
        let prompts = self.prompts(&asked, args, engine, constraint)?;
        let keys = asked.iter().flat_map(|&idx| {
            let n = self.lines[idx].n(args);
            (0..n).map(move |completion| (idx, completion))
        });
        let keys: Vec<Key> = keys.collect();
        let bar = batch::bar(keys.len());
        let mut results = Results::new(file, args.jsonl.in_order.then_some(keys));
        let (mut tokens, mut failed) = (0, 0);
        for item in engine.batch(prompts) {
            let (idx, completion) = (asked[item.prompt], item.completion);
            let refused = item.record.is_err();
            if let Ok(Record { eos: Some(done), .. }) = &item.record {
                tokens += done.new_tokens;
            }
            let object = self.object((idx, completion), item.record, engine)?;
            bar.inc(1);
            bar.set_message(format!("{tokens} tokens"));
            bar.suspend(|| results.take((idx, completion), object))?;
            if refused {
                failed += 1;
                results.refuse(idx)?;
            }
        }
        bar.finish_and_clear();
        results.end()?;
        match failed {
            0 => Ok(()),
            n => anyhow::bail!("{n} of {} prompts failed: their results say why", asked.len()),
        }
    }

    /// Where answers go, and which prompts have theirs already.
    fn begin(&self, args: &RunArgs) -> Result<(Option<File>, BTreeSet<usize>)> {
        let Some(path) = &args.jsonl.output else { return Ok((None, BTreeSet::new())) };
        if !args.jsonl.resume {
            return Ok((Some(results::create(path)?), BTreeSet::new()));
        }
        let mut answers = results::earlier(path)?;
        for (&idx, answers) in &answers {
            let line = self.lines.get(idx);
            let id = line.and_then(Line::id).unwrap_or(&Value::Null);
            if line.is_none() || answers.iter().any(|answer| answer["id"] != *id) {
                let shown = path.display();
                return Err(Usage::error(format!(
                    "{shown} holds answers to other prompts (index {idx}): name another --output"
                )));
            }
        }
        answers.retain(|&idx, answers| answers.len() == self.lines[idx].n(args));
        let file = results::keep(path, &answers)?;
        Ok((Some(file), answers.into_keys().collect()))
    }

    /// The prompts with all their settings. What the model's own numbers rule out is said here.
    fn prompts(
        &self,
        asked: &[usize],
        args: &RunArgs,
        engine: &Engine,
        constraint: Option<&ConstraintSpec>,
    ) -> Result<Vec<Complete>> {
        let prompt = |&idx: &usize| {
            let line = &self.lines[idx];
            let made = line.complete(args, engine, constraint);
            let made = made.map_err(|error| {
                Usage::error(format!("line {} of the batch: {error}", line.number))
            })?;
            Ok(made.granularity(StreamGranularity::Done))
        };
        asked.iter().map(prompt).collect()
    }

    /// An answer as its line of the output.
    fn object(
        &self,
        (idx, completion): Key,
        record: Result<Record, pagella::Error>,
        engine: &Engine,
    ) -> Result<Value> {
        let mut object = json!({"index": idx});
        if let Some(id) = self.lines[idx].id() {
            object["id"] = id.clone();
        }
        object["completion_index"] = json!(completion);
        let said = match record {
            Ok(record) => answer::json(&record, engine.tokenizer())?,
            Err(error) => json!({"error": error.to_string()}),
        };
        if let (Value::Object(object), Value::Object(said)) = (&mut object, said) {
            object.extend(said);
        }
        Ok(object)
    }
}
