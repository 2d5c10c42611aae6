//! Many streams at once from one address, on a server with its usual settings: all are answered, and
//! each as if it were alone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::client::{self, Ending, Leave};
use crate::numbers::percentile;
use crate::process::ServerProcess;
use crate::request::asks;
use crate::{Error, settle};

/// Runs it; false if an answer is missing or wrong, or something stays behind.
pub async fn run(server: &ServerProcess, streams: usize) -> Result<bool, Error> {
    let asks = Arc::new(asks());
    let mut alone = Vec::with_capacity(asks.len());
    for ask in asks.iter() {
        alone.push(client::whole(server, ask).await?);
    }
    let begun = Instant::now();
    let clients: Vec<_> = (0..streams)
        .map(|idx| {
            let (asks, place) = (asks.clone(), server.place());
            tokio::spawn(async move {
                client::stream(&place, &asks[idx % asks.len()], Leave::Never).await
            })
        })
        .collect();
    let (mut first, mut wrong) = (Vec::new(), Vec::new());
    for (idx, client) in clients.into_iter().enumerate() {
        let told = match client.await? {
            Ok(told) => told,
            Err(error) => {
                wrong.push(format!("stream {idx} failed: {error}"));
                continue;
            }
        };
        first.extend(told.first_text);
        match told.ending {
            Ending::Whole(text) if text == alone[idx % alone.len()] => {}
            _ => wrong.push(format!("stream {idx} differs from its answer alone")),
        }
    }
    let millis =
        |share| percentile(&mut first.clone(), share).unwrap_or(Duration::ZERO).as_millis();
    println!(
        "{streams} streams at once from one address: {} answered, {} wrong, {:.1} s in all",
        streams - wrong.len(),
        wrong.len(),
        begun.elapsed().as_secs_f64()
    );
    println!("time to first text: p50 {} ms, p99 {} ms", millis(0.5), millis(0.99));
    wrong.iter().take(5).for_each(|wrong| println!("  {wrong}"));
    let settled = settle(server).await?;
    settled.iter().for_each(|stats| println!("FAILED: something stayed behind: {stats}"));
    Ok(wrong.is_empty() && settled.is_none())
}
