//! Many clients on one server for a while: streams that are read to the end, streams that are left in
//! the middle, and the question whether anything suffered.
//!
//! ```sh
//! cargo run --release -p pagella-server --example soak -- --server target/release/pagella --seconds 300
//! ```
//!
//! Starts the server with the demo model. First every request is answered alone; then 200 clients ask
//! them in random order, some hanging up at random moments. Fails when an answer differs from the one
//! given alone, a request fails, a page or a job stays behind, memory grows, or the server's own share
//! of processor time (all threads but the engine's) exceeds its budget.
//!
//! `--streams 1000` asks for so many streams at once instead, on a server with its usual settings;
//! `--long-prompts 8` sends so many prompts of 4 MB at once, and a small request beside them.

mod burst;
mod client;
mod long_prompts;
mod numbers;
mod process;
mod request;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use client::{Ending, Leave};
use numbers::{Random, median, percentile};
use process::ServerProcess;
use request::{Ask, asks};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Processor time of the server's own threads per streamed token, at most.
const OVERHEAD_MICROS_MAX: f64 = 20.0;
/// Growth of resident memory from the second quarter of the run to the last, at most: what an
/// allocator may keep, in parts of the whole.
const GROWTH_MAX: f64 = 0.05;
/// Shortest run in which growth says something.
const GROWTH_SECONDS_MIN: u64 = 60;
/// How long the server may take to forget the last request.
const SETTLE_TIME: Duration = Duration::from_secs(10);

/// Room for every client's answer at once. Memory is flat when all of it has been used.
const CACHE_TOKENS: &str = "131072";
/// Those who leave do so before this many bytes: about 60 tokens.
const LEAVE_BYTES_MAX: usize = 16_000;

struct Options {
    server: PathBuf,
    seconds: u64,
    clients: usize,
    seed: u64,
    /// Streams at once, instead of clients for a while.
    streams: Option<usize>,
    /// Prompts at once that are too long, instead of clients for a while.
    long_prompts: Option<usize>,
    /// Whether the time per token is judged: it says little of a debug build.
    judge_overhead: bool,
}

fn options() -> Result<Options, Error> {
    let mut options = Options {
        server: PathBuf::from("target/release/pagella"),
        seconds: 300,
        clients: 200,
        seed: 1,
        streams: None,
        long_prompts: None,
        judge_overhead: true,
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        if arg == "--no-overhead" {
            options.judge_overhead = false;
            continue;
        }
        let value = args.next().ok_or_else(|| format!("{arg} needs a value"))?;
        match arg.as_str() {
            "--server" => options.server = value.into(),
            "--seconds" => options.seconds = value.parse()?,
            "--clients" => options.clients = value.parse()?,
            "--seed" => options.seed = value.parse()?,
            "--streams" => options.streams = Some(value.parse()?),
            "--long-prompts" => options.long_prompts = Some(value.parse()?),
            other => return Err(format!("unknown option {other}").into()),
        }
    }
    Ok(options)
}

/// What all clients add to.
#[derive(Default)]
struct Tally {
    finished: AtomicUsize,
    left: AtomicUsize,
    wrong: Mutex<Vec<String>>,
    first_byte: Mutex<Vec<Duration>>,
    first_text: Mutex<Vec<Duration>>,
}

fn push<T>(list: &Mutex<Vec<T>>, value: T) {
    list.lock().unwrap_or_else(PoisonError::into_inner).push(value);
}

fn take<T>(list: &Mutex<Vec<T>>) -> Vec<T> {
    std::mem::take(&mut *list.lock().unwrap_or_else(PoisonError::into_inner))
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = runtime.map_err(Error::from).and_then(|runtime| runtime.block_on(run()));
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

async fn run() -> Result<bool, Error> {
    let options = options()?;
    if let Some(streams) = options.streams {
        let server = ServerProcess::start(&options.server, &[]).await?;
        return burst::run(&server, streams).await;
    }
    if let Some(clients) = options.long_prompts {
        let cache = ["--cache-tokens", long_prompts::CACHE_TOKENS];
        let server = ServerProcess::start(&options.server, &cache).await?;
        return long_prompts::run(&server, clients, options.judge_overhead).await;
    }
    let server = ServerProcess::start(&options.server, &["--cache-tokens", CACHE_TOKENS]).await?;
    println!("{} clients, {} s, seed {}", options.clients, options.seconds, options.seed);
    let asks: Arc<Vec<Ask>> = Arc::new(asks());
    let mut alone = Vec::with_capacity(asks.len());
    for ask in asks.iter() {
        alone.push(client::whole(&server, ask).await?);
    }
    let distinct: std::collections::BTreeSet<&String> = alone.iter().collect();
    println!("{} requests answered alone, {} distinct answers", alone.len(), distinct.len());
    let n_distinct = distinct.len();
    let alone = Arc::new(alone);

    let (tally, over) = (Arc::new(Tally::default()), Arc::new(AtomicBool::new(false)));
    let (tokens_before, cpu_before) = (tokens(&server).await?, server.cpu()?);
    let clients: Vec<_> = (0..options.clients)
        .map(|idx| {
            let random = Random::new(options.seed.wrapping_mul(1000).wrapping_add(idx as u64));
            let (asks, alone) = (asks.clone(), alone.clone());
            let (tally, over, place) = (tally.clone(), over.clone(), server.place());
            tokio::spawn(behave(place, random, asks, alone, tally, over))
        })
        .collect();
    let begun = Instant::now();
    let mut memory = Vec::new();
    while begun.elapsed() < Duration::from_secs(options.seconds) {
        tokio::time::sleep(Duration::from_secs(1)).await;
        memory.push(server.resident_bytes()?);
    }
    over.store(true, Ordering::Relaxed);
    for client in clients {
        client.await?;
    }
    let settled = settle(&server).await?;
    let (streamed, cpu) =
        (tokens(&server).await? - tokens_before, server.cpu()?.since(&cpu_before));
    Ok(report(&options, &tally, streamed, cpu, &memory, settled) & (n_distinct > 1))
}

/// One client: asks until the end, and compares.
async fn behave(
    place: client::Place,
    mut random: Random,
    asks: Arc<Vec<Ask>>,
    alone: Arc<Vec<String>>,
    tally: Arc<Tally>,
    over: Arc<AtomicBool>,
) {
    while !over.load(Ordering::Relaxed) {
        let idx = random.below(asks.len());
        let leave = match random.below(4) {
            0 => Leave::AfterBytes(random.below(LEAVE_BYTES_MAX)),
            _ => Leave::Never,
        };
        match client::stream(&place, &asks[idx], leave).await {
            Err(error) => push(&tally.wrong, format!("request {idx} failed: {error}")),
            Ok(told) => {
                told.first_byte.into_iter().for_each(|time| push(&tally.first_byte, time));
                told.first_text.into_iter().for_each(|time| push(&tally.first_text, time));
                match told.ending {
                    Ending::Left => {
                        tally.left.fetch_add(1, Ordering::Relaxed);
                    }
                    Ending::Whole(text) => {
                        tally.finished.fetch_add(1, Ordering::Relaxed);
                        if text != alone[idx] {
                            let alone = &alone[idx];
                            push(&tally.wrong, format!("request {idx}: {text:?}, alone {alone:?}"));
                        }
                    }
                }
            }
        }
    }
}

/// New tokens that the engine computed so far.
async fn tokens(server: &ServerProcess) -> Result<u64, Error> {
    let stats = client::get(server, "/v1/stats").await?;
    stats["engine"]["decode_tokens"].as_u64().ok_or_else(|| "no count of tokens".into())
}

/// Waits until nothing is left of any request; the last state if that does not happen.
async fn settle(server: &ServerProcess) -> Result<Option<Value>, Error> {
    let begun = Instant::now();
    loop {
        let stats = client::get(server, "/v1/stats").await?;
        let engine = &stats["engine"];
        let idle = [
            &stats["requests"]["running"],
            &stats["requests"]["waiting"],
            &engine["pages"]["referenced"],
            &engine["queue"]["active"],
            &engine["queue"]["pending"],
        ];
        if idle.iter().all(|count| count.as_u64() == Some(0)) {
            return Ok(None);
        }
        if begun.elapsed() > SETTLE_TIME {
            return Ok(Some(stats));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn report(
    options: &Options,
    tally: &Tally,
    streamed: u64,
    cpu: process::Cpu,
    memory: &[u64],
    settled: Option<Value>,
) -> bool {
    let wrong = take(&tally.wrong);
    let (finished, left) =
        (tally.finished.load(Ordering::Relaxed), tally.left.load(Ordering::Relaxed));
    println!("{finished} answers read to the end, {left} left, {} wrong", wrong.len());
    wrong.iter().take(5).for_each(|wrong| println!("  {wrong}"));
    let millis = |mut times: Vec<Duration>, share| {
        percentile(&mut times, share).map_or(0.0, |time| time.as_secs_f64() * 1e3)
    };
    let (bytes, texts) = (take(&tally.first_byte), take(&tally.first_text));
    println!(
        "time to first byte: p50 {:.1} ms, p99 {:.1} ms; to first text: p50 {:.1} ms, p99 {:.1} ms",
        millis(bytes.clone(), 0.5),
        millis(bytes, 0.99),
        millis(texts.clone(), 0.5),
        millis(texts, 0.99),
    );
    let per_token = |time: Duration| time.as_secs_f64() * 1e6 / streamed.max(1) as f64;
    let overhead = per_token(cpu.server());
    println!(
        "{streamed} tokens, {:.0} per second; processor time per token: server {overhead:.1} us, engine {:.1} us",
        streamed as f64 / options.seconds as f64,
        per_token(cpu.engine),
    );
    let quarter = memory.len() / 4;
    let (early, late) =
        (median(&memory[quarter..quarter * 2]), median(&memory[memory.len() - quarter..]));
    let growth = late as f64 / early.max(1) as f64 - 1.0;
    println!(
        "memory: {:.1} MB in the second quarter, {:.1} MB in the last ({:+.1} %)",
        early as f64 / 1e6,
        late as f64 / 1e6,
        growth * 100.0
    );
    let mut failures = Vec::new();
    if !wrong.is_empty() || finished == 0 {
        failures.push("answers were wrong or missing".to_owned());
    }
    match settled {
        None => println!("pages, jobs and requests: back to zero"),
        Some(stats) => failures.push(format!("something stayed behind: {stats}")),
    }
    if options.seconds >= GROWTH_SECONDS_MIN && growth > GROWTH_MAX {
        failures.push("memory grows".to_owned());
    }
    if options.judge_overhead && overhead > OVERHEAD_MICROS_MAX {
        failures.push(format!("more than {OVERHEAD_MICROS_MAX} us of the server per token"));
    }
    failures.iter().for_each(|failure| println!("FAILED: {failure}"));
    failures.is_empty()
}
