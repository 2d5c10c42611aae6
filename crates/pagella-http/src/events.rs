//! What happens to the server, told to whoever listens: models, engines, downloads, settings, keys.

use serde_json::{Value, json};
use tokio::sync::broadcast;

/// Events that wait for a slow listener; older ones are lost to it.
const KEPT_MAX: usize = 1024;

/// Tells what happens; clones tell the same listeners.
#[derive(Clone)]
pub struct Events {
    sender: broadcast::Sender<Value>,
}

impl Default for Events {
    fn default() -> Self {
        Events { sender: broadcast::Sender::new(KEPT_MAX) }
    }
}

impl Events {
    /// Tells of something: `model_status`, `download_progress`, `engine_state`, `config_reload` or
    /// `keys_reload`.
    pub fn send(&self, event: &'static str, data: Value) {
        // Nobody may be listening.
        let _ = self.sender.send(json!({ "event": event, "data": data }));
    }

    /// Listens from now on.
    pub fn listen(&self) -> EventListener {
        EventListener { receiver: self.sender.subscribe() }
    }
}

/// Hears what happens.
pub struct EventListener {
    receiver: broadcast::Receiver<Value>,
}

impl EventListener {
    /// The next event; `None` when the server is gone. What a slow listener missed is left out.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            match self.receiver.recv().await {
                Ok(event) => return Some(event),
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}
