//! Where the answers of a batch go: one JSON object a line, as they are finished or in the order of
//! the prompts, to standard output or to a file that a later run can continue.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::output;

/// Number of a prompt and of one of its answers.
pub type Key = (usize, usize);

/// Answers that are written, and those that wait for earlier ones.
pub struct Results {
    /// `None`: standard output.
    file: Option<File>,
    order: Order,
}

/// When an answer is written.
enum Order {
    /// When it is finished.
    Finished,
    /// When all before it are written.
    Input { waiting: BTreeMap<Key, Value>, expected: Vec<Key> },
}

impl Results {
    /// Writes as answers are finished; with `expected`, in that order, which is reversed here.
    pub fn new(file: Option<File>, expected: Option<Vec<Key>>) -> Self {
        let order = match expected {
            None => Order::Finished,
            Some(mut expected) => {
                expected.reverse();
                Order::Input { waiting: BTreeMap::new(), expected }
            }
        };
        Results { file, order }
    }

    /// Takes an answer; writes it and whatever waited for it, or keeps it.
    pub fn take(&mut self, key: Key, answer: Value) -> Result<()> {
        match &mut self.order {
            Order::Finished => return write(self.file.as_mut(), &answer),
            Order::Input { waiting, .. } => drop(waiting.insert(key, answer)),
        }
        self.advance()
    }

    /// No further answers of this prompt will come.
    pub fn refuse(&mut self, prompt: usize) -> Result<()> {
        if let Order::Input { waiting, expected } = &mut self.order {
            expected.retain(|key| key.0 != prompt || waiting.contains_key(key));
        }
        self.advance()
    }

    /// Writes what still waits.
    pub fn end(mut self) -> Result<()> {
        let Order::Input { waiting, .. } = self.order else { return Ok(()) };
        waiting.values().try_for_each(|answer| write(self.file.as_mut(), answer))
    }

    fn advance(&mut self) -> Result<()> {
        let Order::Input { waiting, expected } = &mut self.order else { return Ok(()) };
        while let Some(answer) = expected.last().and_then(|key| waiting.remove(key)) {
            expected.pop();
            write(self.file.as_mut(), &answer)?;
        }
        Ok(())
    }
}

/// In one piece, so that a run that is killed leaves whole lines.
fn write(file: Option<&mut File>, answer: &Value) -> Result<()> {
    match file {
        None => output::print_json(answer),
        Some(file) => {
            let line = format!("{answer}\n");
            file.write_all(line.as_bytes()).map_err(|error| anyhow::anyhow!("--output: {error}"))
        }
    }
}

/// A file that is begun anew.
pub fn create(path: &Path) -> Result<File> {
    let created = File::create(path);
    created.map_err(|error| anyhow::anyhow!("cannot write {}: {error}", path.display()))
}

/// Answers of an earlier run by the number of their prompt; none where there is no file. Errors, and a
/// line that was cut off, do not count: they are asked again.
pub fn earlier(path: &Path) -> Result<BTreeMap<usize, Vec<Value>>> {
    let shown = path.display();
    let file = match File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        opened => opened.map_err(|error| anyhow::anyhow!("cannot read {shown}: {error}"))?,
    };
    let mut found: BTreeMap<usize, Vec<Value>> = BTreeMap::new();
    for line in BufReader::new(file).split(b'\n') {
        let line = line.with_context(|| format!("cannot read {shown}"))?;
        let Ok(answer) = serde_json::from_slice::<Value>(&line) else { continue };
        let index = answer["index"].as_u64().and_then(|index| usize::try_from(index).ok());
        if let (Some(index), true) = (index, answer["error"].is_null()) {
            found.entry(index).or_default().push(answer);
        }
    }
    Ok(found)
}

/// Leaves only these answers in a file, and opens it to add more.
pub fn keep(path: &Path, answers: &BTreeMap<usize, Vec<Value>>) -> Result<File> {
    let rewrite = || {
        let begun = path.with_extension("part");
        let mut text = String::new();
        answers.values().flatten().for_each(|answer| text.push_str(&format!("{answer}\n")));
        std::fs::write(&begun, text)?;
        std::fs::rename(&begun, path)?;
        OpenOptions::new().append(true).open(path)
    };
    rewrite().map_err(|error| anyhow::anyhow!("cannot write {}: {error}", path.display()))
}
