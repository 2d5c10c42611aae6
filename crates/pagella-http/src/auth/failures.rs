//! Guessing keys is slow: a peer that failed too often is refused for a while, unless its key is
//! right.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Failures that a peer may have per window.
const FAILURES_MAX: u32 = 20;
/// How long failures count.
const WINDOW: Duration = Duration::from_secs(60);
/// Peers that are remembered; beyond it the oldest windows are forgotten.
const PEERS_MAX: usize = 4096;

/// Failures by peer address.
#[derive(Default)]
pub struct Failures {
    peers: Mutex<HashMap<IpAddr, (Instant, u32)>>,
}

impl Failures {
    /// Notes a failure. Returns how long the peer is refused, if it is.
    pub fn note(&self, peer: IpAddr, now: Instant) -> Option<Duration> {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if peers.len() >= PEERS_MAX && !peers.contains_key(&peer) {
            peers.retain(|_, (since, _)| now.duration_since(*since) < WINDOW);
            if peers.len() >= PEERS_MAX {
                peers.clear();
            }
        }
        let (since, count) = peers.entry(peer).or_insert((now, 0));
        if now.duration_since(*since) >= WINDOW {
            (*since, *count) = (now, 0);
        }
        *count += 1;
        (*count > FAILURES_MAX).then(|| WINDOW - now.duration_since(*since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_twenty_first_failure_of_a_minute_is_refused() {
        let (failures, peer, now) =
            (Failures::default(), IpAddr::from([10, 0, 0, 1]), Instant::now());
        for _ in 0..FAILURES_MAX {
            assert_eq!(failures.note(peer, now), None);
        }
        assert_eq!(failures.note(peer, now), Some(WINDOW));
        assert_eq!(failures.note(IpAddr::from([10, 0, 0, 2]), now), None);
        assert_eq!(failures.note(peer, now + WINDOW), None);
    }

    #[test]
    fn memory_is_bounded() {
        let (failures, now) = (Failures::default(), Instant::now());
        for peer in 0..3 * PEERS_MAX as u32 {
            failures.note(IpAddr::from(peer.to_be_bytes()), now);
        }
        assert!(failures.peers.lock().unwrap().len() <= PEERS_MAX);
    }
}
