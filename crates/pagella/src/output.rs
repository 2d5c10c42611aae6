//! Output for people and for programs: tables, sizes, progress, JSON.
//!
//! Results go to standard output through `write!`, never `println!`, which panics when the reader
//! of a pipe is gone.

use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use pagella::{Completion, Engine, EngineBuilder, LoadProgress, PlacedPart, Placement};
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

pub(crate) use crate::units::bytes;

/// A plan as a table: what goes to which device, and what is left there.
pub fn placement(placement: &Placement) -> String {
    let mut table = Table::new(&["device", "parts", "weights", "cache", "scratch", "of", "left"]);
    for part in &placement.parts {
        let sizes = [part.weights_bytes, part.cache_bytes, part.scratch_bytes, part.free_bytes];
        let cells = [part.name.clone(), part.words()].into_iter();
        let cells = cells.chain(sizes.map(bytes)).chain([bytes(part.left_bytes())]);
        table.row(cells.collect());
    }
    format!("a cache of {} tokens, placed:\n{}", placement.cache_tokens, table.render())
}

/// A plan for programs.
pub fn placement_json(placement: &Placement) -> Value {
    let part = |part: &PlacedPart| {
        json!({
            "device": part.name,
            "first_layer": part.layers.start,
            "layers": part.layers.len(),
            "embedding": part.embeds,
            "head": part.has_head,
            "draft": part.drafts,
            "weights_bytes": part.weights_bytes,
            "cache_bytes": part.cache_bytes,
            "scratch_bytes": part.scratch_bytes,
            "free_bytes": part.free_bytes,
            "reserve_bytes": part.reserve_bytes,
        })
    };
    let parts: Vec<Value> = placement.parts.iter().map(part).collect();
    json!({ "cache_tokens": placement.cache_tokens, "devices": parts })
}

/// Shows by which plan a model is about to be loaded, if it is placed. Quiet for programs.
pub fn show_placement(builder: &EngineBuilder, json: bool) -> Result<()> {
    if let (Some(plan), false) = (builder.placement()?, json) {
        note(placement(&plan).trim_end());
    }
    Ok(())
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
