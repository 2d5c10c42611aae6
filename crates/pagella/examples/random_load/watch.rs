//! What is watched meanwhile, and what must hold at the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pagella::Engine;

/// Longest time of one action, in seconds.
const STUCK_SECONDS: u64 = 300;
/// How much the memory may grow over the second half, by its trend.
const GROWTH_BYTES_MAX: f64 = (4 << 20) as f64;
/// Seconds between two lines.
const LINE_SECONDS: u64 = 10;

/// What the clients did.
pub struct Counts {
    started: Instant,
    pub compared: AtomicU64,
    pub dropped: AtomicU64,
    pub late: AtomicU64,
    pub busy: AtomicU64,
}

impl Counts {
    /// Seconds since the start.
    pub fn now(&self) -> u64 {
        self.started.elapsed().as_secs()
    }
}

pub struct Watch {
    counts: Arc<Counts>,
    /// When each client began what it does.
    began: std::cell::RefCell<Vec<Arc<AtomicU64>>>,
    /// Memory in bytes, once a second.
    memory: Vec<f64>,
    next_line: u64,
}

impl Watch {
    pub fn new() -> Self {
        let counts = Counts {
            started: Instant::now(),
            compared: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            late: AtomicU64::new(0),
            busy: AtomicU64::new(0),
        };
        let began = std::cell::RefCell::default();
        Watch { counts: Arc::new(counts), began, memory: Vec::new(), next_line: 0 }
    }

    pub fn counts(&self) -> Arc<Counts> {
        self.counts.clone()
    }

    /// A clock hand for one client.
    pub fn register(&self) -> Arc<AtomicU64> {
        let hand = Arc::new(AtomicU64::new(self.counts.now()));
        self.began.borrow_mut().push(hand.clone());
        hand
    }

    /// Takes a sample, prints a line when it is time, fails when a client is stuck.
    pub fn look(&mut self, engine: &Engine) -> Result<(), String> {
        let memory = memory_bytes();
        self.memory.extend(memory);
        let now = self.counts.now();
        if now >= self.next_line {
            self.next_line = now + LINE_SECONDS;
            self.line(now, memory, engine)?;
        }
        self.stuck()
    }

    fn line(&self, now: u64, memory: Option<f64>, engine: &Engine) -> Result<(), String> {
        let stats = engine.stats().map_err(|error| error.to_string())?;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let memory = memory.map_or("unknown".to_owned(), |m| format!("{:.1} MiB", m / 1048576.0));
        println!(
            "{now:5} s  {memory}  pages {}/{}/{} used/cached/all  jobs {}+{}  steps {}  preempted {}  \
             compared {}  dropped {}  timed {}  busy {}",
            stats.pages.referenced,
            stats.pages.cached,
            stats.pages.total,
            stats.queue.active,
            stats.queue.pending,
            stats.steps,
            stats.preemptions,
            count(&self.counts.compared),
            count(&self.counts.dropped),
            count(&self.counts.late),
            count(&self.counts.busy),
        );
        Ok(())
    }

    fn stuck(&self) -> Result<(), String> {
        let now = self.counts.now();
        let late = |hand: &&Arc<AtomicU64>| {
            now.saturating_sub(hand.load(Ordering::Relaxed)) > STUCK_SECONDS
        };
        match self.began.borrow().iter().find(late) {
            Some(_) => Err(format!("a job did not end within {STUCK_SECONDS} s")),
            None => Ok(()),
        }
    }

    /// Waits for the clients.
    pub fn join(&self, clients: Vec<JoinHandle<Result<(), String>>>) -> Result<(), String> {
        while clients.iter().any(|client| !client.is_finished()) {
            self.stuck()?;
            std::thread::sleep(Duration::from_millis(50));
        }
        clients.into_iter().try_for_each(|client| {
            client.join().unwrap_or_else(|_| Err("a client panicked".to_owned()))
        })
    }

    /// Nothing may be in use once nobody asks.
    pub fn settle(&self, engine: &Engine) -> Result<(), String> {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let stats = engine.stats().map_err(|error| error.to_string())?;
            let (jobs, pages) = (stats.queue.active + stats.queue.pending, stats.pages.referenced);
            if jobs == 0 && pages == 0 {
                let checked = engine.worker().call(|generator| generator.check());
                return checked.map_err(|error| error.to_string())?;
            }
            if Instant::now() > deadline {
                return Err(format!("{jobs} jobs and {pages} pages were left behind"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Memory may not keep growing once everything was used for a while.
    pub fn memory(&self) -> Result<(), String> {
        let half = &self.memory[self.memory.len() / 2..];
        if half.len() < 10 {
            println!("SKIPPED: too few samples of the memory to see a trend");
            return Ok(());
        }
        let growth = slope(half) * half.len() as f64;
        println!("memory grew by {:.2} MiB over the second half, by its trend", growth / 1048576.0);
        match growth <= GROWTH_BYTES_MAX {
            true => Ok(()),
            false => Err("memory keeps growing".to_owned()),
        }
    }
}

/// Least-squares slope per sample.
fn slope(samples: &[f64]) -> f64 {
    let n = samples.len() as f64;
    let (x_mean, y_mean) = ((n - 1.0) / 2.0, samples.iter().sum::<f64>() / n);
    let deviations = samples.iter().enumerate().map(|(x, y)| (x as f64 - x_mean, y - y_mean));
    let (xy, xx) = deviations.fold((0.0, 0.0), |(xy, xx), (x, y)| (xy + x * y, xx + x * x));
    xy / xx
}

/// Resident memory of this process, where the system tells.
fn memory_bytes() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok()? * 1024.0)
}
