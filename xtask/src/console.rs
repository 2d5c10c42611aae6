//! Where output goes: to the terminal, or to a file while other stages run.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result};

/// Takes what is said and what programs print, in the order in which it came.
pub struct Console(Option<(PathBuf, File)>);

impl Console {
    /// The terminal of this program.
    pub fn terminal() -> Self {
        Self(None)
    }

    /// A new file, in a folder that is made.
    pub fn file(path: &Path) -> Result<Self> {
        let make = || {
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            File::options().create(true).write(true).truncate(true).read(true).open(path)
        };
        let file = make().with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self(Some((path.to_owned(), file))))
    }

    /// One line.
    pub fn say(&self, line: impl Display) {
        match &self.0 {
            None => println!("{line}"),
            // A line that cannot be written down is no reason to stop.
            Some((_, file)) => drop(writeln!(&mut &*file, "{line}")),
        }
    }

    /// One line that is no result, for the terminal's second stream.
    pub fn note(&self, line: impl Display) {
        match &self.0 {
            None => eprintln!("{line}"),
            Some(_) => self.say(line),
        }
    }

    /// Runs a program and waits for it; what it prints goes here.
    pub fn status(&self, command: &mut Command) -> io::Result<ExitStatus> {
        if let Some((_, file)) = &self.0 {
            command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file.try_clone()?);
        }
        command.status()
    }

    /// Shows on the terminal what a file took.
    pub fn show(&self) -> Result<()> {
        let Some((path, _)) = &self.0 else { return Ok(()) };
        let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        io::stdout().write_all(&text).context("cannot write to the terminal")
    }
}
