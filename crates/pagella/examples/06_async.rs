//! Streams without a thread of their own: `cargo run --release --example 06_async`.
//!
//! Streams implement `futures_core::Stream`, so any executor can drive them; this program brings the
//! smallest one there is.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use futures_core::Stream;
use pagella::Engine;

fn main() -> Result<(), pagella::Error> {
    let engine = Engine::open("demo")?;
    println!("{}", block_on(answer(&engine, "The `filter()` method"))?);
    Ok(())
}

async fn answer(engine: &Engine, prompt: &str) -> Result<String, pagella::Error> {
    let mut stream = engine.complete(prompt).greedy().max_tokens(40).stream()?;
    let mut text = String::new();
    // With the `futures` crate this is `while let Some(record) = stream.next().await`.
    while let Some(record) = poll_fn(|context| Pin::new(&mut stream).poll_next(context)).await {
        text.push_str(&record?.text);
    }
    Ok(text)
}

/// Wakes a sleeping thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let (mut future, mut context) = (pin!(future), Context::from_waker(&waker));
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}
