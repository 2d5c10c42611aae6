//! Connections that go on in another protocol after an answer.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderMap, header};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;

use super::busy::{Answering, Busy};

type Rest = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What a connection does once its answers are sent.
#[derive(Clone, Default)]
pub struct Later(Arc<Mutex<Option<Rest>>>);

impl Later {
    /// What is left to do, if anything is.
    pub fn take(&self) -> Option<Rest> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn set(&self, rest: Rest) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(rest);
    }
}

/// A connection that can go on in another protocol.
pub struct Upgrade {
    on: OnUpgrade,
    busy: Busy,
    later: Later,
    /// Its first message has to say who the client is.
    pub awaits_key: bool,
}

impl Upgrade {
    /// Of a request.
    pub fn new(on: OnUpgrade, busy: Busy, later: Later, awaits_key: bool) -> Self {
        Upgrade { on, busy, later, awaits_key }
    }

    /// What the connection does after the answer. While the second value lives, it counts as one that
    /// answers: its client may be silent.
    pub fn go_on<F: Future<Output = ()> + Send>(
        self,
        rest: impl FnOnce(TokioIo<Upgraded>, Answering) -> F + Send + 'static,
    ) {
        let Upgrade { on, busy, later, .. } = self;
        let answering = busy.upgrade();
        later.set(Box::pin(async move {
            if let Ok(socket) = on.await {
                rest(TokioIo::new(socket), answering).await;
            }
        }));
    }
}

/// Whether headers ask for a WebSocket of the version that there is.
pub fn is_websocket(headers: &HeaderMap) -> bool {
    let says = |name: header::HeaderName, word: &str| {
        let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|one| one.trim().eq_ignore_ascii_case(word))
    };
    says(header::CONNECTION, "upgrade")
        && says(header::UPGRADE, "websocket")
        && says(header::SEC_WEBSOCKET_VERSION, "13")
        && headers.contains_key(header::SEC_WEBSOCKET_KEY)
}
