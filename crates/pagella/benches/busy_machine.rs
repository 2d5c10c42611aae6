//! Tokens per second beside programs that take cores away, for several numbers of threads.
//!
//! ```text
//! cargo bench -p pagella --no-default-features --bench busy_machine [-- ROUNDS [MODEL [THREADS]]]
//! ```
//!
//! The other programs are copies of this one that count for ever. All settings take turns within a
//! round; medians over the rounds are printed, and shares of the undisturbed speed without `--threads`.
//! MODEL is `demo`, a directory, or `synthetic:NAME`; THREADS such as `0,1,2`, 0 being no wish.

use std::ops::ControlFlow;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pagella::{Device, Engine, Session};
use pagella_engine::EngineError;
use pagella_model::SyntheticWeights;

/// Makes a copy of this program one of the others.
const COUNT: &str = "--count-for-ever";
/// Numbers of threads; 0 for what is chosen without a wish.
const THREADS: &str = "0,1,2,3,4,8";
/// How many other programs there are.
const OTHERS: [usize; 3] = [0, 1, 2];
/// How long one setting is measured at a time.
const TURN: Duration = Duration::from_millis(300);
/// Tokens after which a sequence starts again.
const TOKENS_MAX: usize = 200;

/// Programs that take cores away until this is dropped.
struct Others(Vec<Child>);

impl Others {
    fn start(n: usize) -> std::io::Result<Self> {
        let program = std::env::current_exe()?;
        let one = |_| Command::new(&program).arg(COUNT).stdin(Stdio::piped()).spawn();
        let others = Others((0..n).map(one).collect::<Result<_, _>>()?);
        std::thread::sleep(Duration::from_millis(50));
        Ok(others)
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended by itself; either way it is gone afterwards.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn open(model: &str, threads: usize) -> Result<Session, pagella::Error> {
    let mut builder = Engine::builder(model).device(Device::Cpu).cache_tokens(512);
    if threads > 0 {
        builder = builder.threads(threads);
    }
    let loaded = match model.strip_prefix("synthetic:") {
        Some(name) => {
            let weights = SyntheticWeights::Exl2 { bits: 4.0, head_bits: 6 };
            builder.load_synthetic(name, weights, &mut |_| ControlFlow::Continue(()))?
        }
        None => builder.load(&mut |_| ControlFlow::Continue(()))?,
    };
    Ok(Session::new(loaded.forward))
}

/// Tokens per second of one turn.
fn measure(session: &mut Session) -> Result<f64, EngineError> {
    let (mut tokens, mut id) = (0, 0);
    session.clear();
    session.prefill(&[1])?;
    let started = Instant::now();
    while started.elapsed() < TURN {
        if session.ids().len() >= TOKENS_MAX {
            session.clear();
            session.prefill(&[1])?;
        }
        id = session.write(id)?;
        tokens += 1;
    }
    Ok(f64::from(tokens) / started.elapsed().as_secs_f64())
}

fn median(rates: &mut [f64]) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Counts for as long as whoever started this lives.
fn count() -> ! {
    std::thread::spawn(|| {
        // Nothing is ever written: this ends when the other end of the pipe is gone.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
    let mut n = 0u64;
    loop {
        n = std::hint::black_box(n.wrapping_add(1));
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    if arguments.first().is_some_and(|first| first == COUNT) {
        count();
    }
    let rounds: usize = arguments.first().map_or(Ok(5), |n| n.parse())?;
    let model = arguments.get(1).map_or("demo", String::as_str);
    let threads = arguments.get(2).map_or(THREADS, String::as_str).split(',');
    let threads: Vec<usize> = threads.map(str::parse).collect::<Result<_, _>>()?;
    let mut sessions =
        threads.iter().map(|&n| open(model, n)).collect::<Result<Vec<Session>, _>>()?;
    let mut rates = vec![Vec::new(); OTHERS.len() * threads.len()];
    for _ in 0..rounds {
        for (o, &others) in OTHERS.iter().enumerate() {
            let _others = Others::start(others)?;
            for (t, session) in sessions.iter_mut().enumerate() {
                rates[o * threads.len() + t].push(measure(session)?);
            }
        }
    }
    let medians: Vec<f64> = rates.iter_mut().map(|rates| median(rates)).collect();
    print!("others");
    threads.iter().for_each(|n| match n {
        0 => print!("     auto"),
        n => print!(" {n:>8}"),
    });
    println!("   auto / undisturbed");
    for (o, others) in OTHERS.iter().enumerate() {
        let row = &medians[o * threads.len()..(o + 1) * threads.len()];
        print!("{others:>6}");
        row.iter().for_each(|rate| print!(" {rate:>8.1}"));
        println!("   {:.2}", row[0] / medians[0]);
    }
    Ok(())
}
