//! `--show-pages`: the cache and the jobs while they run.
//!
//! On a terminal the picture is redrawn in place; elsewhere it is a line now and then. All of it goes
//! to standard error, so that standard output holds answers only.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use pagella::{Engine, PageInfo, Record, Stage, Stats};

use crate::output;

/// Time between two pictures on a terminal.
const REDRAW: Duration = Duration::from_millis(100);
/// Time between two lines elsewhere.
const REPEAT: Duration = Duration::from_millis(500);
/// Pages in a line of the picture.
const LINE_PAGES: usize = 64;
/// Most lines of pages and of jobs that are drawn.
const LINES_MAX: usize = 16;
/// Last characters of a job's text that are shown.
const TAIL_CHARS: usize = 60;
const LEGEND: &str = ". empty   o cached, nobody uses it   1-9 users   + ten or more";

/// The picture and what it is drawn from.
pub struct PagesView {
    jobs: BTreeMap<(usize, usize), JobLine>,
    /// The lines on a terminal; `None` elsewhere.
    screen: Option<Screen>,
    last: Option<Instant>,
}

/// From top to bottom.
struct Screen {
    pages: Vec<ProgressBar>,
    legend: ProgressBar,
    counts: ProgressBar,
    jobs: Vec<ProgressBar>,
}

/// What is known of one job.
#[derive(Default)]
struct JobLine {
    stage: Stage,
    /// Prompt tokens done, and all of them.
    prompt: (usize, usize),
    n_tokens: usize,
    tail: String,
    end: Option<&'static str>,
}

impl PagesView {
    pub fn new(engine: &Engine, n_jobs: usize) -> Result<Self> {
        let terminal = output::stderr_is_terminal();
        let n_pages = engine.pages()?.len();
        let screen = terminal.then(|| Screen::new(n_pages, n_jobs));
        Ok(PagesView { jobs: BTreeMap::new(), screen, last: None })
    }

    /// Takes what a job says.
    pub fn take(&mut self, key: (usize, usize), record: &Record) {
        let job = self.jobs.entry(key).or_default();
        job.stage = record.stage;
        if let (Some(done), Some(all)) = (record.curr_progress, record.max_progress) {
            job.prompt = (done, all);
        }
        job.n_tokens += record.token_ids.len();
        job.tail.push_str(&record.text);
        if let Some((cut, _)) = job.tail.char_indices().rev().nth(TAIL_CHARS) {
            job.tail.drain(..cut);
        }
        job.end = record.eos.as_ref().map(|done| done.eos_reason.name());
    }

    /// Draws, if it is time.
    pub fn redraw(&mut self, engine: &Engine) -> Result<()> {
        let period = if self.screen.is_some() { REDRAW } else { REPEAT };
        if self.last.is_some_and(|last| last.elapsed() < period) {
            return Ok(());
        }
        self.last = Some(Instant::now());
        let (pages, stats) = look(engine)?;
        match &self.screen {
            Some(screen) => screen.draw(&pages, &stats, &self.jobs),
            None => output::note(&format!("pages {}  {}", map(&pages), counts(&stats))),
        }
        Ok(())
    }

    /// Takes the picture away and says what it came to.
    pub fn end(self, engine: &Engine) -> Result<()> {
        if let Some(screen) = &self.screen {
            screen.clear();
        }
        let (pages, stats) = look(engine)?;
        for line in map(&pages).as_bytes().chunks(LINE_PAGES) {
            output::note(&format!("  {}", String::from_utf8_lossy(line)));
        }
        output::note(&format!("  {LEGEND}\n{}", summary(&stats).trim_end()));
        Ok(())
    }
}

impl Screen {
    fn new(n_pages: usize, n_jobs: usize) -> Self {
        let lines = MultiProgress::new();
        let line = || {
            let bar = lines.add(ProgressBar::no_length());
            if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
                bar.set_style(style);
            }
            bar
        };
        let pages = (0..n_pages.div_ceil(LINE_PAGES).min(LINES_MAX)).map(|_| line()).collect();
        let legend = line();
        legend.set_message(LEGEND);
        let counts = line();
        let jobs = (0..n_jobs.min(LINES_MAX)).map(|_| line()).collect();
        Screen { pages, legend, counts, jobs }
    }

    fn clear(&self) {
        let single = [&self.legend, &self.counts];
        let lines = self.pages.iter().chain(single).chain(&self.jobs);
        lines.for_each(ProgressBar::finish_and_clear);
    }

    fn draw(&self, pages: &[PageInfo], stats: &Stats, jobs: &BTreeMap<(usize, usize), JobLine>) {
        let map = map(pages);
        for (line, pages) in self.pages.iter().zip(map.as_bytes().chunks(LINE_PAGES)) {
            line.set_message(String::from_utf8_lossy(pages).into_owned());
        }
        self.counts.set_message(counts(stats));
        // Those that have ended make room for those that run.
        let (running, ended): (Vec<_>, Vec<_>) =
            jobs.iter().partition(|(_, job)| job.end.is_none());
        for (line, (key, job)) in self.jobs.iter().zip(running.into_iter().chain(ended)) {
            line.set_message(format!("{:>4}.{}  {}", key.0 + 1, key.1 + 1, job.describe()));
        }
    }
}

impl JobLine {
    fn describe(&self) -> String {
        let stage = match (self.end, self.stage) {
            (Some(reason), _) => reason.to_owned(),
            (None, Stage::Streaming) => "writing".to_owned(),
            (None, _) => format!("reading {}/{}", self.prompt.0, self.prompt.1),
        };
        let tail: String =
            self.tail.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        format!("{stage:17} {:5} tokens  {tail}", self.n_tokens)
    }
}

/// Pages and counts of the same moment.
fn look(engine: &Engine) -> Result<(Vec<PageInfo>, Stats)> {
    Ok(engine.worker().call(|generator| (generator.pages().describe(), generator.stats()))?)
}

/// One character per page.
fn map(pages: &[PageInfo]) -> String {
    let mark = |page: &PageInfo| match (page.refs, page.fill) {
        (0, 0) => '.',
        (0, _) => 'o',
        (refs @ 1..=9, _) => char::from(b'0' + refs as u8),
        _ => '+',
    };
    pages.iter().map(mark).collect()
}

fn counts(stats: &Stats) -> String {
    let (pages, queue) = (&stats.pages, &stats.queue);
    format!(
        "{} of {} pages in use, {} shared; {} writing, {} reading, {} waiting; {:.0} tok/s",
        pages.referenced,
        pages.total,
        pages.shared,
        queue.decoding,
        queue.prefilling,
        queue.pending,
        stats.decode_tokens_per_second,
    )
}

fn summary(stats: &Stats) -> String {
    output::facts(&[
        (
            "prompt tokens",
            format!(
                "{} computed, {} from the cache ({:.0} %)",
                stats.prefill_tokens,
                stats.cached_tokens,
                100.0 * stats.cache_hit_ratio
            ),
        ),
        ("new tokens", stats.decode_tokens.to_string()),
        ("steps", format!("{}, {:.1} rows each", stats.steps, stats.batch_occupancy)),
        (
            "pages",
            format!(
                "{}, {} hold something",
                stats.pages.total,
                stats.pages.total - stats.pages.free
            ),
        ),
        ("preemptions", stats.preemptions.to_string()),
        ("rewinds", stats.rewinds.to_string()),
        ("guesses", format!("{} right, {} wrong", stats.draft.accepted, stats.draft.rejected)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_shows_its_end_and_one_line_of_text() {
        let mut view = PagesView { jobs: BTreeMap::new(), screen: None, last: None };
        let progress = Record {
            stage: Stage::Prefill,
            curr_progress: Some(3),
            max_progress: Some(9),
            ..Record::default()
        };
        view.take((0, 0), &progress);
        assert!(view.jobs[&(0, 0)].describe().starts_with("reading 3/9"));
        let text = "é\n".repeat(100);
        let record = Record { text, token_ids: vec![1, 2], ..Record::default() };
        view.take((0, 0), &record);
        let shown = view.jobs[&(0, 0)].describe();
        assert!(shown.starts_with("writing") && shown.contains("    2 tokens"), "{shown}");
        assert!(!shown.contains('\n') && shown.ends_with("é "), "{shown}");
    }
}
