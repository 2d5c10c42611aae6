//! Prompts that are far too long, several at once, and a small request beside them: how long it waits
//! for its first text, and whether memory comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::{self, Leave};
use crate::process::ServerProcess;
use crate::request::Ask;
use crate::{Error, settle};

/// So small that the first requests touch all of its memory, which then counts as there before.
pub const CACHE_TOKENS: &str = "4096";
/// Small requests before anything is measured.
const FIRST_REQUESTS: usize = 64;
/// Bytes of a long prompt.
const PROMPT_BYTES: usize = 4 << 20;
/// How long each kind is sent.
const TIME: Duration = Duration::from_secs(10);
/// Longest wait of a small request for its first text.
const FIRST_TEXT_MAX: Duration = Duration::from_secs(1);
/// What an allocator may keep, beyond what was there before.
const KEPT_BYTES_MAX: u64 = 64 << 20;
/// How long memory may take to come back.
const RETURN_TIME: Duration = Duration::from_secs(3);

/// Texts of one kind, repeated.
const KINDS: [(&str, &str); 4] = [
    ("words", "The method returns a new array, and 17 things happen. "),
    ("numbers", "1 1 1 1 "),
    ("spaces", "        "),
    ("letters", "abcdefgh"),
];

/// Runs it; false if a small request waits too long, or memory is kept.
pub async fn run(server: &ServerProcess, clients: usize, judge: bool) -> Result<bool, Error> {
    let small = Ask {
        path: "/v1/chat/completions",
        body: json!({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "seed": 1}),
    };
    for _ in 0..FIRST_REQUESTS {
        client::stream(&server.place(), &small, Leave::Never).await?;
    }
    let before = server.resident_bytes()?;
    let mut good = true;
    for (kind, text) in KINDS {
        let long = text.repeat(PROMPT_BYTES / text.len());
        // A prompt, which cannot fit; and a text of which all tokens are wanted.
        let chat = json!({"messages": [{"role": "user", "content": long}], "max_tokens": 4});
        let count = json!({ "text": long });
        for (path, body) in [("/v1/chat/completions", &chat), ("/v1/token/encode", &count)] {
            good &= beside(server, clients, (kind, path), body, &small, judge).await?;
        }
    }
    if let Some(stats) = settle(server).await? {
        println!("FAILED: something stayed behind: {stats}");
        good = false;
    }
    tokio::time::sleep(RETURN_TIME).await;
    let after = server.resident_bytes()?;
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    println!("memory: {:.1} MB before, {:.1} MB after", megabytes(before), megabytes(after));
    if after > before + KEPT_BYTES_MAX {
        println!("FAILED: memory does not come back");
        good = false;
    }
    Ok(good)
}

/// Small requests, one after the other, while `clients` send long ones without a pause.
async fn beside(
    server: &ServerProcess,
    clients: usize,
    what: (&str, &'static str),
    body: &Value,
    small: &Ask,
    judge: bool,
) -> Result<bool, Error> {
    let (over, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let body: Arc<str> = body.to_string().into();
    let long: Vec<_> = (0..clients)
        .map(|_| {
            let (place, over, sent, body) =
                (server.place(), over.clone(), sent.clone(), body.clone());
            tokio::spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    let status = client::status(&place, what.1, &body).await?;
                    if ![200, 400].contains(&status) {
                        return Err(format!("{}: status {status}", what.1).into());
                    }
                    sent.fetch_add(1, Ordering::Relaxed);
                }
                Ok::<(), Error>(())
            })
        })
        .collect();
    let begun = std::time::Instant::now();
    let (mut worst, mut n, mut peak) = (Duration::ZERO, 0, 0);
    while begun.elapsed() < TIME {
        let told = client::stream(&server.place(), small, Leave::Never).await?;
        worst = worst.max(told.first_text.unwrap_or(TIME));
        peak = peak.max(server.resident_bytes()?);
        n += 1;
    }
    over.store(true, Ordering::Relaxed);
    for client in long {
        client.await??;
    }
    println!(
        "{clients} x {PROMPT_BYTES} bytes of {} to {}: {} sent; {n} small requests beside them, first text \
         after at most {} ms; at most {:.0} MB",
        what.0,
        what.1,
        sent.load(Ordering::Relaxed),
        worst.as_millis(),
        peak as f64 / 1e6
    );
    if judge && worst > FIRST_TEXT_MAX {
        println!("FAILED: a small request waited too long");
        return Ok(false);
    }
    Ok(true)
}
