//! Random load on the demo model for a while: `cargo run --release --example random_load -- --minutes 10`.
//!
//! Several threads ask, read slowly, give up, run out of time and look at statistics, over a cache
//! that is too small for all of them. Fails if memory keeps growing, if pages stay in use, if a job
//! never ends, or if any answer differs from the one its prompt gets alone.

mod load;
mod requests;
mod watch;

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pagella::Engine;

use load::Client;
use requests::Request;
use watch::Watch;

/// What the command line says.
struct Args {
    minutes: f64,
    threads: u64,
    seed: u64,
}

fn args() -> Result<Args, Box<dyn Error>> {
    let mut args = Args { minutes: 1.0, threads: 8, seed: 1 };
    let mut words = std::env::args().skip(1);
    while let Some(name) = words.next() {
        let value = words.next().ok_or_else(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--minutes" => args.minutes = value.parse()?,
            "--threads" => args.threads = value.parse()?,
            "--seed" => args.seed = value.parse()?,
            _ => return Err(format!("{name} is unknown: --minutes, --threads, --seed").into()),
        }
    }
    Ok(args)
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = args()?;
    let time = Duration::try_from_secs_f64(args.minutes * 60.0)?;
    let requests = Arc::new(requests::all()?);
    println!("{} requests with known answers; {} threads", requests.len(), args.threads);
    // Small enough that jobs lose their pages to each other, a queue short enough to be full.
    let engine = Engine::builder("demo").cache_tokens(8 * 256).batch_max(6).queue_max(4).open()?;
    let over = Arc::new(AtomicBool::new(false));
    let mut watch = Watch::new();
    let clients: Vec<_> = (0..args.threads)
        .map(|n| {
            let client = Client::new(&engine, &requests, args.seed.wrapping_add(n), &watch);
            let over = over.clone();
            std::thread::spawn(move || client.run(&over))
        })
        .collect();
    let started = Instant::now();
    let mut watched = Ok(());
    while watched.is_ok() && started.elapsed() < time {
        std::thread::sleep(Duration::from_secs(1).min(time));
        watched = watch.look(&engine);
    }
    over.store(true, Ordering::Relaxed);
    watched?;
    watch.join(clients)?;
    watch.settle(&engine)?;
    watch.memory()?;
    println!("passed");
    Ok(())
}

/// Requests and their answers, for the clients.
type Requests = Arc<Vec<(Request, Vec<pagella::Completion>)>>;
