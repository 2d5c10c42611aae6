//! Output for people and for programs: tables, sizes, progress, JSON.
//!
//! Results go to standard output through `write!`, never `println!`, which panics when the reader
//! of a pipe is gone.

use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use pagella::{Completion, Engine, LoadProgress};
use serde_json::{Value, json};

use crate::printable;

/// Prints a JSON value and a line break.
pub fn print_json(value: &Value) -> Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", printable::json(&value.to_string()))?;
    Ok(out.flush()?)
}

/// Prints lines about a model, which may repeat names of its files.
pub fn report(text: &str) -> io::Result<()> {
    print(&printable::lines(text))
}

/// Prints text and flushes, so that streams appear as they come.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// A note for people on standard error, which must not end the program when it cannot be written.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{}", printable::lines(text));
}

/// What a person should know of a model before reading what it writes.
pub fn warn(engine: &Engine) {
    for warning in &engine.facts().warnings {
        note(&format!("warning: {warning}"));
    }
}

/// A completed generation as the stable JSON object of `run` and `chat`; times in seconds.
pub fn completion_json(done: &Completion) -> Value {
    json!({
        "text": done.text,
        "token_ids": done.token_ids,
        "eos_reason": done.eos_reason.name(),
        "prompt_tokens": done.prompt_tokens,
        "cached_tokens": done.cached_tokens,
        "new_tokens": done.new_tokens,
        "time_prefill": done.time_prefill.as_secs_f64(),
        "time_generate": done.time_generate.as_secs_f64(),
        "time_enqueued": done.time_enqueued.as_secs_f64(),
        "time_to_first_token": done.time_to_first_token.map(|time| time.as_secs_f64()),
        "cached_pages": done.cached_pages,
        "preemptions": done.preemptions,
        "rewinds": done.rewinds,
        "accepted_draft_tokens": done.accepted_draft_tokens,
        "rejected_draft_tokens": done.rejected_draft_tokens,
        "draft_steps": done.draft_steps,
        "time_draft": done.time_draft.as_secs_f64(),
        "seed": done.seed,
        "eos_triggering_token_id": done.eos_token,
        "eos_triggering_token_str": done.eos_token_text,
        "eos_triggering_string": done.eos_string,
        "held": done.held,
        "warnings": done.warnings,
    })
}

/// Speeds and counts of a completed generation, for people.
pub fn completion_line(done: &Completion) -> String {
    format!(
        "{} tokens, {:.1} tok/s; prompt {} tokens ({} cached), {:.0} tok/s; {}; seed {}",
        done.new_tokens,
        done.tokens_per_second(),
        done.prompt_tokens,
        done.cached_tokens,
        done.prefill_tokens_per_second(),
        done.eos_reason.name(),
        done.seed,
    )
}

/// Bytes in the unit that fits.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = if unit == 0 || value >= 100.0 { 0 } else { 1 };
    format!("{value:.decimals$} {}", UNITS[unit])
}

/// Rows of cells, aligned: the first column to the left, the others to the right.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table that starts with this row.
    pub fn new(header: &[&str]) -> Self {
        Table { rows: vec![header.iter().map(|&cell| cell.to_owned()).collect()] }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.iter().map(|cell| printable::word(cell).into_owned()).collect());
    }

    /// The table as text, indented by two spaces.
    pub fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| Some(row.get(column)?.chars().count())).max()
        };
        let widths: Vec<usize> = (0..columns).map(|c| width(c).unwrap_or(0)).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::from(" ");
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                let padding = " ".repeat(width - cell.chars().count());
                match column {
                    0 => line.extend([" ", cell, &padding]),
                    _ => line.extend(["  ", &padding, cell]),
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Aligned `label  value` lines.
pub fn facts(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(label, _)| label.chars().count()).max().unwrap_or(0);
    let line =
        |(label, value): &(&str, String)| format!("{label:width$}  {}\n", printable::word(value));
    pairs.iter().map(line).collect()
}

/// Shows loading on a terminal; silent elsewhere.
pub struct LoadBar {
    bar: ProgressBar,
}

impl LoadBar {
    /// A bar that appears once loading takes long enough to be noticed.
    pub fn new(json: bool) -> Self {
        let bar = if json { ProgressBar::hidden() } else { ProgressBar::no_length() };
        let style = "loading {wide_bar} {bytes}/{total_bytes} {msg}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        LoadBar { bar }
    }

    /// Takes a report; never cancels.
    pub fn update(&mut self, progress: &LoadProgress<'_>) -> ControlFlow<()> {
        // Small models are there before the eye could read the bar.
        if self.bar.elapsed() > Duration::from_millis(300) {
            self.bar.set_length(progress.bytes_total);
            self.bar.set_position(progress.bytes_done);
            self.bar.set_message(printable::word(progress.name).into_owned());
        }
        if progress.modules_done == progress.modules_total {
            self.bar.finish_and_clear();
        }
        ControlFlow::Continue(())
    }
}

impl Drop for LoadBar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Whether notes for people are read by people.
pub fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_a_fitting_unit() {
        let cases = [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (200 << 20, "200 MiB")];
        for (n, text) in cases {
            assert_eq!(bytes(n), text);
        }
        assert_eq!(bytes(u64::MAX), "16777216 TiB");
    }

    #[test]
    fn tables_are_aligned() {
        let mut table = Table::new(&["context", "fp16"]);
        table.row(vec!["2048".into(), "1.5 GiB".into()]);
        assert_eq!(table.render(), "  context     fp16\n  2048     1.5 GiB\n");
        assert_eq!(facts(&[("a", "1".into()), ("long", "2".into())]), "a     1\nlong  2\n");
    }
}
