//! The engine wakes the streams of a whole step at once: one task is told, and wakes the others from
//! within the runtime. Woken from the engine's thread, each would stir a thread of the runtime.

use std::sync::{Mutex, PoisonError};
use std::task::Waker;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The way from engines to the task.
pub struct Wakes {
    send: UnboundedSender<Vec<Waker>>,
    /// Until the task has it.
    receive: Mutex<Option<UnboundedReceiver<Vec<Waker>>>>,
}

impl Default for Wakes {
    fn default() -> Self {
        let (send, receive) = unbounded_channel();
        Wakes { send, receive: Mutex::new(Some(receive)) }
    }
}

impl Wakes {
    /// What an engine is given to wake its readers.
    pub fn hook(&self) -> impl Fn(Vec<Waker>) + Send + Sync + 'static {
        let send = self.send.clone();
        move |wakers| {
            if let Err(unsent) = send.send(wakers) {
                unsent.0.into_iter().for_each(Waker::wake);
            }
        }
    }

    /// Wakes whom the engines name, for as long as there are any. Only the first call does something.
    pub fn forward(&self) -> impl Future<Output = ()> + Send + 'static {
        let receive = self.receive.lock().unwrap_or_else(PoisonError::into_inner).take();
        async move {
            let Some(mut receive) = receive else { return };
            while let Some(wakers) = receive.recv().await {
                wakers.into_iter().for_each(Waker::wake);
            }
        }
    }
}
