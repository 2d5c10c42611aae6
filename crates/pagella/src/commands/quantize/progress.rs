//! A bar per stage with the time that is left, and Ctrl-C.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use pagella_quant::JobProgress;

use crate::command::EXIT_INTERRUPTED;
use crate::output;

/// Steps of a bar.
const STEPS: u64 = 10_000;

/// Shows progress and notices Ctrl-C.
pub struct Watcher {
    bar: ProgressBar,
    stage: std::sync::Mutex<String>,
    is_stopping: Arc<AtomicBool>,
}

impl Watcher {
    /// Takes over Ctrl-C: the first lets the step end, the second ends the program. What is written is
    /// whole in either case.
    pub fn new(json: bool) -> Result<Self> {
        let bar = if json { ProgressBar::hidden() } else { ProgressBar::new(STEPS) };
        let style = "{prefix:>20} {wide_bar} {percent:>3} %  {elapsed} +{eta} {msg}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        let is_stopping = Arc::new(AtomicBool::new(false));
        let pressed = is_stopping.clone();
        ctrlc::set_handler(move || {
            if pressed.swap(true, Ordering::SeqCst) {
                std::process::exit(i32::from(EXIT_INTERRUPTED));
            }
            output::note("stopping after this step; Ctrl-C again stops at once, which is safe too");
        })
        .context("cannot take over Ctrl-C")?;
        Ok(Self { bar, stage: std::sync::Mutex::default(), is_stopping })
    }

    /// Takes a report.
    pub fn update(&self, progress: &JobProgress) -> ControlFlow<()> {
        let mut name = progress.stage.name().to_owned();
        if let Some(bits) = progress.bits {
            name.push_str(&format!(" {bits:?}"));
        }
        if let Ok(mut stage) = self.stage.lock()
            && *stage != name
        {
            // Every stage has a speed of its own.
            self.bar.reset();
            self.bar.set_prefix(name.clone());
            *stage = name;
        }
        self.bar.set_position((progress.done * STEPS as f64) as u64);
        self.bar.set_message(progress.part.clone());
        match self.is_stopping.load(Ordering::SeqCst) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// Takes the bar away.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
